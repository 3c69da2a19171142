"""Filters and weighers: they decide which of the matching resources a reservation gets.

Filters and weighers are plug-ins (docs/reference/plugins.md). They run inside the transaction that
books the resources, so they must be pure functions: without clock, input or output.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from climate.core.lease.model import Inventory, Resource
from climate.core.matching.requirement import Requirement


@dataclass(frozen=True, slots=True)
class Candidate:
    """A resource that matches a requirement, so that the reservation may get it.

    ``free`` is how much of the resource is free, such as ``{"VCPU": 8}``. It is empty if the
    reservation needs the whole resource. ``inventories`` contains the total amounts by resource
    class; it is empty if the operator has configured no screens.
    """

    resource: Resource
    free: Mapping[str, int] = field(default_factory=dict)
    inventories: Mapping[str, Inventory] = field(default_factory=dict)


#: Returns whether the reservation may have the candidate.
Filter = Callable[[Candidate, Requirement], bool]
#: Returns those of the candidates that the reservation may have. Unlike a filter, a screen compares
#: all candidates of a request at once.
Screen = Callable[[Sequence[Candidate], Requirement], Sequence[Candidate]]
#: Returns the quality of the candidate, higher is better; only order and distances matter.
Weigher = Callable[[Candidate, Requirement], float]


@dataclass(frozen=True, slots=True)
class Selection:
    """The operator's filters and screens, and the weighers with their multipliers."""

    filters: tuple[Filter, ...] = ()
    weighers: tuple[tuple[Weigher, float], ...] = ()
    screens: tuple[Screen, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rejects or self.weighers)

    @property
    def rejects(self) -> bool:
        """Whether a filter or a screen may reject resources that match."""
        return bool(self.filters or self.screens)


@dataclass(frozen=True, slots=True)
class Preference:
    """In which order a request tries the resources that match.

    The filters and weighers in ``selection`` decide first. Equally good resources are tried in the
    order of ids. The first of them is at the fraction ``rotation`` (0 to 1) of the range of ids;
    after the highest id follows the lowest. ``rotation`` differs between requests, so that
    simultaneous requests try different resources first.
    """

    rotation: float = 0.0
    selection: Selection = field(default_factory=Selection)


def rank(
    candidates: Sequence[Candidate],
    requirement: Requirement,
    filters: Sequence[Filter],
    weighers: Sequence[tuple[Weigher, float]],
    screens: Sequence[Screen] = (),
) -> list[Candidate]:
    """Return the candidates that pass all filters, and then all screens, the best first.

    ``weighers`` are pairs (weigher, multiplier). As in Nova's scheduler, the weights from each
    weigher are scaled (the worst candidate has 0, the best has 1), and then multiplied by the
    multiplier. A negative multiplier reverses the order. Equally good candidates keep their order.
    Raises ValueError if a weight is not finite.
    """
    passing = [c for c in candidates if all(passes(c, requirement) for passes in filters)]
    for screen in screens:
        passing = list(screen(passing, requirement))
    scores = [0.0] * len(passing)
    for weigher, multiplier in weighers:
        weights = _scaled([_weight(weigher, candidate, requirement) for candidate in passing])
        scores = [
            score + multiplier * weight for score, weight in zip(scores, weights, strict=True)
        ]
    best_first = sorted(range(len(passing)), key=lambda index: -scores[index])
    return [passing[index] for index in best_first]


def _weight(weigher: Weigher, candidate: Candidate, requirement: Requirement) -> float:
    weight = float(weigher(candidate, requirement))
    if not math.isfinite(weight):
        raise ValueError(f"{weigher} gives {candidate.resource.external_id} the weight {weight}")
    return weight


def _scaled(weights: Sequence[float]) -> list[float]:
    """Return the weights scaled to the range from 0 to 1. If all are equal, all are 0."""
    if not weights:
        return []
    # Halves, so that the difference of the largest floats does not overflow.
    least, most = min(weights) / 2, max(weights) / 2
    if least == most:
        return [0.0] * len(weights)
    return [(weight / 2 - least) / (most - least) for weight in weights]
