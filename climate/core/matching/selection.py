"""Which of the resources that could serve a reservation it gets: filters, then weighers. Pure.

Both are plug-ins (docs/plugins.md) and know nothing but what they are given: no clock, no input
or output, as they run inside the transaction that books.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from climate.core.lease.model import Resource
from climate.core.matching.requirement import Requirement


@dataclass(frozen=True, slots=True)
class Candidate:
    """A resource that matches and has room; ``free`` is how much, by resource class.

    ``free`` is empty where resources are taken whole.
    """

    resource: Resource
    free: Mapping[str, int] = field(default_factory=dict)


#: Whether the candidate may be taken.
Filter = Callable[[Candidate, Requirement], bool]
#: How good the candidate is, the bigger the better; only the order and distances matter.
Weigher = Callable[[Candidate, Requirement], float]


@dataclass(frozen=True, slots=True)
class Selection:
    """What the operator chose: filters, and weighers with how much each counts."""

    filters: tuple[Filter, ...] = ()
    weighers: tuple[tuple[Weigher, float], ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there is anything to choose by."""
        return bool(self.filters or self.weighers)


@dataclass(frozen=True, slots=True)
class Preference:
    """Which candidates a request is to have rather than others.

    ``rotation`` (0..1) is where in the order of ids it begins to look, so that parallel requests
    do not all want the same; ``selection`` counts more.
    """

    rotation: float = 0.0
    selection: Selection = field(default_factory=Selection)


def rank(
    candidates: Sequence[Candidate],
    requirement: Requirement,
    filters: Sequence[Filter],
    weighers: Sequence[tuple[Weigher, float]],
) -> list[Candidate]:
    """Return the candidates that pass all filters, the best first; ties keep the given order.

    As in Nova's scheduler, what a weigher says is scaled to 0 (its worst candidate) .. 1 (its
    best), so that weighers count as their multipliers say, whatever they measure; a negative one
    turns the order round. Raises ValueError for a weight that is not finite.
    """
    left = [one for one in candidates if all(passes(one, requirement) for passes in filters)]
    scores = [0.0] * len(left)
    for weigher, multiplier in weighers:
        weights = _scaled([_weight(weigher, one, requirement) for one in left])
        scores = [
            score + multiplier * weight for score, weight in zip(scores, weights, strict=True)
        ]
    best_first = sorted(range(len(left)), key=lambda at: -scores[at])
    return [left[at] for at in best_first]


def _weight(weigher: Weigher, candidate: Candidate, requirement: Requirement) -> float:
    weight = float(weigher(candidate, requirement))
    if not math.isfinite(weight):
        raise ValueError(f"{weigher} gives {candidate.resource.external_id} the weight {weight}")
    return weight


def _scaled(weights: Sequence[float]) -> list[float]:
    """Return the weights between 0 and 1; all 0 if they are equal."""
    if not weights:
        return []
    # Halves, so that the distance of the largest numbers there are is one, too.
    least, most = min(weights) / 2, max(weights) / 2
    if least == most:
        return [0.0] * len(weights)
    return [(weight / 2 - least) / (most - least) for weight in weights]
