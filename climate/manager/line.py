"""The line of events that wait for a worker, as it was when it was looked at last.

To put very many in order takes the database a while, so a look serves many claims; what comes
meanwhile is seen at the next look, which is due after ten times what the last one took.
"""

from collections.abc import Collection, Mapping

from climate.db import line
from climate.db.line import Group, Waiting
from climate.manager.runtime import Runtime

# So many are looked at; there are more only if a day's work waits.
PAGE = 10_000
# A look that took longer (seconds) serves for so many times as long as it took.
_LONG = 0.02
_SERVES = 10.0
# But nobody who comes meanwhile has to wait longer (seconds), whatever it was that took so long.
_AT_MOST = 10.0


class Line:
    """Who waits, in the order of turns, by project and resource types."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare; nobody was seen yet."""
        self._runtime = runtime
        self._waiting: dict[Group, dict[str, Waiting]] = {}
        self._good_until = float("-inf")

    @property
    def is_good(self) -> bool:
        """Whether the last look still serves: it was laborious, and not all that it saw left."""
        return bool(self._waiting) and self._runtime.clock.elapsed() < self._good_until

    @property
    def waiting(self) -> Mapping[Group, Collection[Waiting]]:
        """Those who were seen, and did not leave."""
        return {group: some.values() for group, some in self._waiting.items()}

    def look(self, skip: int) -> bool:
        """Look anew, past the first ``skip``; return whether there may be more behind these."""
        began, now = self._runtime.clock.elapsed(), self._runtime.clock.now()
        with self._runtime.database.read() as session:
            found = line.waiting(session, now, PAGE, skip)
        is_full = len(found) == PAGE
        if is_full:  # each manager begins somewhere else, or they would be after the same ones
            first = self._runtime.rng.randrange(PAGE)
            found = found[first:] + found[:first]
        self._waiting = {}
        for one in found:
            self._waiting.setdefault(one.group, {})[one.event_id] = one
        present = self._runtime.clock.elapsed()
        took = present - began
        self._good_until = present + (min(_SERVES * took, _AT_MOST) if took > _LONG else 0.0)
        return is_full

    def leave(self, gone: Collection[Waiting]) -> None:
        """Pass these over until the next look: they were claimed, or have to wait for others."""
        for one in gone:
            del self._waiting[one.group][one.event_id]
        for group in {one.group for one in gone}:
            if not self._waiting[group]:
                del self._waiting[group]
