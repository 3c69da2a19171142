"""Who gets a worker: nobody's many, and nothing that hangs, may keep all others waiting. Pure.

- Each resource type, and what only tells, has some workers that no other takes.
- A project never has all workers.
- Projects, and within them types, get a worker in turn, those with fewest at work first.
- Calls that were given up, and still run, count against their type, so that they stay few.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest

from climate.db.line import Waiting
from climate.manager.claims import Claim

# Of what acts on no resource: heads-ups, users' events, upkeep.
_TELLING = frozenset({""})
_Group = tuple[str | None, frozenset[str]]


class Shares:
    """The workers of one manager, and who had them."""

    def __init__(self, workers: int, types: Collection[str]) -> None:
        """Share ``workers`` among resource types, and what only tells."""
        self._workers = workers
        self._lanes = _TELLING | set(types)
        self._kept = max(1, workers // (2 * len(self._lanes))) if workers > len(self._lanes) else 0
        self._most = max(1, workers - max(1, self._kept))
        self._turn = 0
        self._served: dict[_Group, int] = {}

    def choose(
        self, waiting: Sequence[Waiting], running: Collection[Claim], given_up: Collection[Claim]
    ) -> list[Waiting]:
        """Return those of the ones who wait that may run now beside what runs, the first first."""
        lanes = Counter(_lanes_of(running))
        projects = Counter(claim.project_id for claim in running)
        stuck = Counter(_lanes_of(given_up))
        chosen: list[Waiting] = []
        for one in self._in_turn(waiting, projects):
            room = self._workers - len(running) - len(chosen)
            if room <= 0:
                break
            mine = one.types or _TELLING
            kept = sum(max(0, self._kept - lanes[lane]) for lane in self._lanes - mine)
            if room <= kept or self._is_full(one, projects, stuck):
                continue
            lanes.update(mine)
            projects[one.project_id] += 1
            chosen.append(one)
            self._turn += 1
            self._served[one.project_id, one.types] = self._turn
        return chosen

    def _is_full(self, one: Waiting, projects: Counter[str | None], stuck: Counter[str]) -> bool:
        if any(stuck[lane] >= self._workers for lane in one.types):
            return True
        return one.project_id is not None and projects[one.project_id] >= self._most

    def _in_turn(
        self, waiting: Sequence[Waiting], projects: Counter[str | None]
    ) -> Iterator[Waiting]:
        groups: dict[_Group, list[Waiting]] = {}
        for one in waiting:
            groups.setdefault((one.project_id, one.types), []).append(one)
        self._served = {group: turn for group, turn in self._served.items() if group in groups}
        order = sorted(groups, key=lambda group: (projects[group[0]], self._served.get(group, 0)))
        for turn in zip_longest(*(groups[group] for group in order)):
            yield from (one for one in turn if one is not None)


def _lanes_of(claims: Iterable[Claim]) -> Iterator[str]:
    for claim in claims:
        yield from claim.types or _TELLING
