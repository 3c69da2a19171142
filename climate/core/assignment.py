"""Who gets what when several demands share candidates: a pure bipartite assignment.

A lease may ask for "any two hosts" and "one host with a GPU" at once; taking hosts demand by
demand could give the only GPU host to the first. Augmenting paths (Kuhn, 1955) find an
assignment whenever there is one. All that can take the same path takes it at once, so the work
grows with the number of candidates and not with its square.
"""

from collections.abc import Sequence
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
    search = _Search(demands)
    for index, demand in enumerate(demands):
        if search.fill(index, demand.minimum) < demand.minimum:
            return None
    for index, demand in enumerate(demands):
        search.fill(index, demand.maximum - demand.minimum)
    return tuple(
        tuple(id_ for id_ in demand.candidates if search.holder.get(id_) == index)
        for index, demand in enumerate(demands)
    )


class _Search:
    """An assignment under way: what is held stays held, though perhaps by another demand."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.holder: dict[int, int] = {}
        self._demands = demands
        self._fresh = [iter(demand.candidates) for demand in demands]
        # Demands that cannot reach a free id, and never will: all they could take is held by
        # one another.
        self._closed: set[int] = set()

    def fill(self, index: int, wanted: int) -> int:
        """Give demand ``index`` up to ``wanted`` more ids; return how many it got."""
        got = 0
        while got < wanted:
            free = next((id_ for id_ in self._fresh[index] if id_ not in self.holder), None)
            if free is None:
                break
            self.holder[free] = index
            got += 1
        while got < wanted and (moved := self._augment(index, wanted - got)):
            got += moved
        return got

    def _augment(self, index: int, wanted: int) -> int:
        """Give demand ``index`` up to ``wanted`` more by moving others to their alternatives.

        Each taker on the path takes from the next, and the last one takes what is free.
        """
        path = self._path(index)
        if not path:
            return 0
        movable = [
            [id_ for id_ in self._demands[taker].candidates if self.holder.get(id_) == loser]
            for taker, loser in path
        ]
        count = min(wanted, *(len(ids) for ids in movable))
        for (taker, _), ids in zip(path, movable, strict=True):
            self.holder.update(dict.fromkeys(ids[:count], taker))
        return count

    def _path(self, index: int) -> list[tuple[int, int | None]]:
        """Return the shortest path of (taker, loser) from free ids (loser None) to ``index``.

        Empty if there is none.
        """
        if index in self._closed:
            return []
        taker: dict[int | None, int] = {}
        reached = [index]
        for present in reached:
            for id_ in self._demands[present].candidates:
                loser = self.holder.get(id_)
                if loser == index or loser in taker or loser in self._closed:
                    continue
                taker[loser] = present
                if loser is None:
                    return _chain(taker, index)
                reached.append(loser)
        self._closed.update(reached)
        return []


def _chain(taker: dict[int | None, int], index: int) -> list[tuple[int, int | None]]:
    chain: list[tuple[int, int | None]] = [(taker[None], None)]
    while (last := chain[-1][0]) != index:
        chain.append((taker[last], last))
    return chain
