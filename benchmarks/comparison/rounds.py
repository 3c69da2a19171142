"""The order of the turns, and the figures of several rounds: medians, quartiles, and ratios.

A ratio divides the figures of two sides in the same round. The machine's speed drifts from minute
to minute, and so affects both.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles

Figures = Mapping[str, float | None]
# Figures of one round by side.
Round = Mapping[str, Figures]
RATIOS = ("per_second", "p50_ms", "cpu_ms", "database_cpu_ms")


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several rounds, the quartiles, and the lowest and highest values."""

    median: float
    lower: float
    upper: float
    lowest: float
    highest: float


def orders(sides: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """Return the random order of the sides in each round."""
    dice = random.Random(seed)
    return [dice.sample(sides, len(sides)) for _ in range(rounds)]


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of at least one value, with four significant digits."""
    lower, _, upper = quantiles(values, method="inclusive") if values[1:] else [*values] * 3
    figures = (median(values), lower, upper, min(values), max(values))
    return Spread(*(float(f"{figure:.4g}") for figure in figures))


def summary(rounds: Sequence[Round]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the spread of each figure of each side, over the rounds that have it."""
    return {side: _spreads([figures[side] for figures in rounds]) for side in rounds[0]}


def ratios(rounds: Sequence[Round], of: str, to: str) -> dict[str, dict[str, float]]:
    """Return the spread of the ratios of a side's figures to those of another side."""
    return _spreads([_divide(figures[of], figures[to]) for figures in rounds])


def _divide(of: Figures, to: Figures) -> Figures:
    pairs = {name: (of.get(name), to.get(name)) for name in RATIOS}
    return {name: one / other for name, (one, other) in pairs.items() if one and other}


def _spreads(figures: Sequence[Figures]) -> dict[str, dict[str, float]]:
    names = dict.fromkeys(name for of_round in figures for name in of_round)
    values = {name: [v for f in figures if (v := f.get(name)) is not None] for name in names}
    return {name: asdict(spread(of_name)) for name, of_name in values.items() if of_name}
