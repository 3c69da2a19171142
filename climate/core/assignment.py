"""Who gets what when several demands share candidates: a pure bipartite assignment.

A lease may ask for "any two hosts" and "one host with a GPU" at once; taking hosts demand by
demand could give the only GPU host to the first. Augmenting paths (Kuhn, 1955) find an
assignment whenever there is one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """``minimum``..``maximum`` of ``candidates`` (resource ids, the preferred ones first)."""

    minimum: int
    maximum: int
    candidates: tuple[int, ...]


def assign(demands: Sequence[Demand]) -> tuple[tuple[int, ...], ...] | None:
    """Return the resource ids for each demand, no id twice; None if a minimum cannot be met.

    Every minimum is met before any demand gets more, and each then gets as many as are left up
    to its maximum.
    """
    holder: dict[int, int] = {}
    fresh = [iter(demand.candidates) for demand in demands]
    held = [0] * len(demands)
    for index, demand in enumerate(demands):
        held[index] = _fill(demands, holder, fresh, index, demand.minimum)
        if held[index] < demand.minimum:
            return None
    for index, demand in enumerate(demands):
        _fill(demands, holder, fresh, index, demand.maximum - held[index])
    return tuple(
        tuple(id_ for id_ in demand.candidates if holder.get(id_) == index)
        for index, demand in enumerate(demands)
    )


def _fill(
    demands: Sequence[Demand],
    holder: dict[int, int],
    fresh: Sequence[Iterator[int]],
    index: int,
    wanted: int,
) -> int:
    """Give demand ``index`` up to ``wanted`` more ids; return how many it got."""
    for count in range(wanted):
        free = next((id_ for id_ in fresh[index] if id_ not in holder), None)
        if free is not None:
            holder[free] = index
        elif not _augment(demands, holder, index):
            return count
    return wanted


def _augment(demands: Sequence[Demand], holder: dict[int, int], index: int) -> bool:
    """Give demand ``index`` one more id by moving others to their alternatives.

    Breadth first; ``taker`` says who would take an id, ``loses`` which id a demand would lose.
    """
    taker: dict[int, int] = {}
    loses: dict[int, int] = {}
    queue = [index]
    for present in queue:
        for id_ in demands[present].candidates:
            if id_ in taker or holder.get(id_) == present:
                continue
            taker[id_] = present
            if id_ not in holder:
                _shift(holder, taker, loses, id_)
                return True
            if holder[id_] not in loses and holder[id_] != index:
                loses[holder[id_]] = id_
                queue.append(holder[id_])
    return False


def _shift(holder: dict[int, int], taker: dict[int, int], loses: dict[int, int], free: int) -> None:
    """Hand ``free`` to its taker, what that one loses to its taker, and so on to the first."""
    while True:
        gainer = taker[free]
        holder[free] = gainer
        if gainer not in loses:
            return
        free = loses[gainer]
