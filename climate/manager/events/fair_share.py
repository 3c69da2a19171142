"""Who gets a worker: nobody's many, and nothing that hangs, may keep all others waiting. Pure.

- Each resource type, and what only tells, has some workers that no other takes.
- A project never has all workers.
- Projects, and within them types, get a worker in turn, those with fewest at work first.
- What is quick is taken by a few workers, as many at a time as is quickly done, of all projects in
  turn: more would only be in each other's way.
- Calls that were given up, and still run, count against their type, so that they stay few.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from climate.db.line import Group, Waiting
from climate.manager.events.batch import Batch
from climate.manager.events.pace import Pace

# Of what acts on no resource: heads-ups, users' events, upkeep.
_TELLING = frozenset({""})
# So many workers take what is quick, of each combination of types.
_TOGETHER = 2


class Shares:
    """The workers of one manager, and who had them."""

    def __init__(self, workers: int, types: Collection[str], pace: Pace) -> None:
        """Share ``workers`` among resource types, and what only tells."""
        self._workers = workers
        self._pace = pace
        self._lanes = _TELLING | set(types)
        self._kept = max(1, workers // (2 * len(self._lanes))) if workers > len(self._lanes) else 0
        self._most = max(1, workers - max(1, self._kept))
        self._turn = 0
        self._served: dict[Group, int] = {}

    def choose(
        self,
        waiting: Mapping[Group, Iterable[Waiting]],
        running: Collection[Batch],
        given_up: Collection[Batch],
    ) -> list[list[Waiting]]:
        """Return those of the ones who wait that may run now beside what runs, by worker.

        The first come first.
        """
        busy = _Busy(running, given_up)
        lines = list(self._lines(waiting, busy))
        chosen: list[list[Waiting]] = []
        while lines and busy.workers < self._workers:
            for line in list(lines):
                some = next(line, None)
                if some is None or not self._may_run(some, busy):
                    lines.remove(line)
                    continue
                busy.begin({one.project_id for one in some}, some[0].types, len(some) > 1)
                chosen.append(some)
                self._turn += 1
                self._served.update({one.group: self._turn for one in some})
        return chosen

    def _lines(
        self, waiting: Mapping[Group, Iterable[Waiting]], busy: "_Busy"
    ) -> Iterator[Iterator[list[Waiting]]]:
        """Yield those who wait, as one worker after the other may take them.

        There is a line for each group, and for all groups together whose types are quick.
        """
        quick: dict[frozenset[str], dict[str, Iterable[Waiting]]] = {}
        for group in self._order(waiting, busy):
            project_id, types = group
            if project_id is None or self._pace.fits(types) == 1:
                # What is no lease's may have to wait for services that we know nothing of.
                yield ([one] for one in waiting[group])
            elif types in quick:
                quick[types][project_id] = waiting[group]
            else:
                quick[types] = {project_id: waiting[group]}
                yield self._together(quick[types], self._pace.fits(types), busy)

    def _together(
        self, waiting: Mapping[str, Iterable[Waiting]], fits: int, busy: "_Busy"
    ) -> Iterator[list[Waiting]]:
        """Yield as many at a time as fit, one of each project and then the next of each."""
        rest = {project_id: iter(some) for project_id, some in waiting.items()}
        while True:
            some: list[Waiting] = []
            turn = deque(one for one in rest if busy.projects[one] < self._most)
            while turn and len(some) < fits:
                project_id = turn.popleft()
                if one := next(rest[project_id], None):
                    some.append(one)
                    turn.append(project_id)
            if not some:
                return
            yield some

    def _order(self, waiting: Collection[Group], busy: "_Busy") -> list[Group]:
        self._served = {group: turn for group, turn in self._served.items() if group in waiting}
        return sorted(waiting, key=lambda one: (busy.projects[one[0]], self._served.get(one, 0)))

    def _may_run(self, some: Sequence[Waiting], busy: "_Busy") -> bool:
        types = some[0].types
        others = self._lanes - (types or _TELLING)
        kept = sum(max(0, self._kept - busy.lanes[lane]) for lane in others)
        if self._workers - busy.workers <= kept:
            return False
        if any(busy.stuck[lane] >= self._workers for lane in types):
            return False
        if len(some) > 1 and busy.together[types] >= _TOGETHER:
            return False
        whose = {one.project_id for one in some} - {None}
        return all(busy.projects[project_id] < self._most for project_id in whose)


class _Busy:
    """How many workers there are at work, by resource type, project, and what they share."""

    def __init__(self, running: Collection[Batch], given_up: Collection[Batch]) -> None:
        self.workers = 0
        self.lanes: Counter[str] = Counter()
        self.projects: Counter[str | None] = Counter()
        self.together: Counter[frozenset[str]] = Counter()
        self.stuck = Counter(lane for batch in given_up for lane in batch.types or _TELLING)
        for batch in running:
            self.begin(batch.projects, batch.types, batch.is_shared)

    def begin(
        self,
        projects: Iterable[str | None],
        types: frozenset[str],
        is_shared: bool,  # noqa: FBT001 - not a switch, a fact
    ) -> None:
        """Count one more."""
        self.workers += 1
        self.lanes.update(types or _TELLING)
        self.projects.update(projects)
        self.together[types] += is_shared
