"""The line of events that wait for a worker, as it was when it was looked at last.

To put very many in order takes the database a while, so a look serves many claims: for twenty times
what it took. Meanwhile only newcomers are looked for, so that nobody's many keep another's few from
being seen.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from climate.db import line
from climate.db.line import Group, Waiting
from climate.db.order import BEGINNING
from climate.manager.process.runtime import Runtime

# So many are looked at; there are more only if a day's work waits.
PAGE = 100_000
# With so many, managers begin in different places, or they would be after the same ones.
_CROWD = 10_000
# A look that took longer (seconds) serves for so many times as long as it took.
_LONG = 0.02
_SERVES = 20.0
# But not for longer (seconds), whatever it was that took so long: who was let go is seen then.
_AT_MOST = 10.0
_AT_ONCE = float("-inf")
# What becomes due at once is written after its time, most of it by so much at most (a lease's start
# is its minute's beginning).
_WRITTEN_AFTER = timedelta(minutes=1)
# So often in a row few could be claimed, before it is asked how far others have come; if as large a
# share still waits, they are not what makes it vain.
_IN_VAIN = 2
_STILL_THERE = 0.9


class Line:
    """Who waits, in the order of turns, by project and resource types."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare; nobody was seen yet."""
        self._runtime = runtime
        self._waiting: dict[Group, dict[str, Waiting]] = {}
        self._known: dict[str, Waiting] = {}
        self._seen_at, self._good_until, self._see_again = BEGINNING, _AT_ONCE, _AT_ONCE
        self._in_vain, self._may_ask = 0, False

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
            found = line.waiting(session, now, PAGE, skip, self._known)
        self._known, self._seen_at = {one.event_id: one for one in found}, now
        self._form(self._apart(found))
        self._good_until, self._see_again = self._serves(began), _AT_ONCE
        return len(found) == PAGE

    def look_for_newcomers(self) -> None:
        """Have those join who became due since the last look, and those who were written late.

        For the latter a minute is looked through again: if that takes long, not all the time.
        """
        began, now = self._runtime.clock.elapsed(), self._runtime.clock.now()
        is_again = began >= self._see_again
        since = self._seen_at - _WRITTEN_AFTER if is_again else self._seen_at
        with self._runtime.database.read() as session:
            found = line.newcomers(session, since, now, PAGE, self._known)
        self._known.update({one.event_id: one for one in found})
        self._seen_at = now
        self._join(self._apart(found))
        if is_again:
            self._see_again = self._serves(began)

    def _serves(self, began: float) -> float:
        """Return until when a look that ``began`` then, and is over now, serves."""
        present = self._runtime.clock.elapsed()
        took = present - began
        return present + (min(_SERVES * took, _AT_MOST) if took > _LONG else 0.0)

    def leave(self, gone: Collection[Waiting]) -> None:
        """Pass these over until the next look: they were claimed, or have to wait for others."""
        for one in gone:
            del self._waiting[one.group][one.event_id]
        for group in {one.group for one in gone}:
            if not self._waiting[group]:
                del self._waiting[group]

    def note(self, asked: int, claimed: Collection[str]) -> None:
        """Note how many of those that left were asked for, and which of them were claimed.

        If few were, again, others may be here, too. Who was and comes back is a newcomer.
        """
        self._in_vain = self._in_vain + 1 if len(claimed) < asked / 2 else 0
        for id_ in claimed:
            self._known.pop(id_, None)

    def go_on(self) -> None:
        """If others are here, have those leave that they have claimed, and go on elsewhere.

        If not, as those in vain are blocked, that is not asked again before the next look.
        """
        if not self._may_ask or self._in_vain < _IN_VAIN:
            return
        self._in_vain, self._may_ask = 0, False
        seen = {id_: one for some in self._waiting.values() for id_, one in some.items()}
        with self._runtime.database.read() as session:
            left = line.still_waiting(session, seen)
        if len(left) < len(seen) * _STILL_THERE:
            self._form(self._from_anywhere([one for id_, one in seen.items() if id_ in left]))

    def _apart(self, found: Sequence[Waiting]) -> Sequence[Waiting]:
        return self._from_anywhere(found) if len(found) >= _CROWD else found

    def _from_anywhere(self, found: Sequence[Waiting]) -> Sequence[Waiting]:
        first = self._runtime.rng.randrange(len(found)) if found else 0
        return [*found[first:], *found[:first]]

    def _form(self, found: Iterable[Waiting]) -> None:
        self._waiting, self._in_vain, self._may_ask = {}, 0, True
        self._join(found)

    def _join(self, found: Iterable[Waiting]) -> None:
        for one in found:
            self._waiting.setdefault(one.group, {})[one.event_id] = one
