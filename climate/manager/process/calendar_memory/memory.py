"""The copy of the calendar in the memory of a process: load it, bring it up to date, compare it.

- **Load**: a thread loads the copy after the first question. Until then, there is no answer, and
  the caller asks SQL.
- **Catch up**: each question first reads what was committed since the last catch-up. So the answer
  contains everything that was committed before the question. Questions of several threads share a
  catch-up that began after all of them. Requests that the database decides anyway skip this step.
- **Compare**: the thread compares the bookings of a few resources at a time with the rows of the
  database (their times, not their owners). If they differ, it reports a broken invariant, drops the
  copy and loads it again. SQL also checks some of the refusals (``shall_check``).

A wrong copy can cause a wrong refusal, but never a wrong booking, because the database decides.
"""

import logging
import random
import threading
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from climate.core.lease.model import HOST
from climate.core.matching.booked_hours.booked_hours import BookedHours
from climate.core.matching.booked_hours.booking_change import ResourceSpans, ResourceState
from climate.db.engine.database import Database
from climate.db.resources import resources
from climate.db.resources.feed.dialects import for_dialect
from climate.db.resources.feed.port import Changes, Position
from climate.manager.process.calendar_memory.view import CalendarView, ticks
from climate.manager.process.periodic_task import logged
from climate.observability.metrics import Metrics

LOG = logging.getLogger(__name__)

# The types whose resources leases book as a whole.
TYPES = (HOST,)
# With 50 hosts, SQL needs 5 to 20 ms to refuse a request, and memory 1 to 2 ms. In a smaller cloud,
# a thread in each process is not worth the difference.
_LEAST_RESOURCES = 50
# Mean seconds between two turns of the thread: catch up, and compare some resources.
_TURN = 5.0
# Seconds until the thread counts the resources again, if they were too few.
_RECOUNT = 300.0
# Resources that one turn compares.
_COMPARED = 50
# The share of refusals that SQL checks, and the least seconds between two checks of a process. A
# check reads the bookings of all matching resources: at 1,000 refusals per second, checks of one
# percent would take a third of a processor.
_CHECKED_SHARE = 0.01
_CHECK_PAUSE = 1.0
# On MariaDB, each catch-up reads all changes that have no number yet. Managers number them each
# second. If they do not run, this process numbers the changes when they are so many.
_MOST_UNNUMBERED = 500
# Findings that a report contains.
_FINDINGS = 20


class Use(StrEnum):
    """Whether a process keeps a copy: AUTO does if there are at least 50 resources."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


@dataclass(slots=True)
class _Copy:
    """A copy of the resources and bookings at ``position``, by resource type.

    ``types`` contains the type of each resource. The next comparison begins after the resource
    ``compared``. Bookings that ended before ``forgotten`` are not in the copy.
    """

    position: Position
    hours: Mapping[str, BookedHours]
    types: dict[int, str]
    compared: int = 0
    forgotten: datetime | None = None


class CalendarMemory:
    """The calendar in the memory of this process. Threads may share it.

    ``report`` is called with findings when the copy was found to differ from the database, and with
    an empty list when a later comparison of all resources finds no difference.
    """

    def __init__(
        self,
        database: Database,
        metrics: Metrics,
        use: Use,
        report: Callable[[Sequence[str]], object],
    ) -> None:
        self._database, self._metrics, self._use, self._report = database, metrics, use, report
        self._feed = for_dialect(database.dialect)
        self._copy: _Copy | None = None
        # Whoever catches up holds ``_catching``. Whoever uses the copy holds ``_using``. A thread
        # that needs both takes ``_catching`` first.
        self._catching, self._using = threading.Lock(), threading.RLock()
        # Catch-ups that began and ended, and whether the last one succeeded for this copy.
        self._begun = self._done = 0
        self._is_current = False
        self._is_broken = False
        self._next_check = float("-inf")
        self._unreported: list[Sequence[str]] = []
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._starting, self._is_started = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._loop, name="calendar memory", daemon=True)

    def view(self, resource_type: str) -> CalendarView | None:
        """Return a view of the bookings that were committed when the call began.

        Returns None if there is no copy, for example because it is not loaded yet.
        """
        is_used = resource_type in TYPES and self._use is not Use.OFF
        copy = self._caught_up() if is_used else None
        self._metrics.calendar_question(from_memory=copy is not None)
        return None if copy is None else CalendarView(copy.hours[resource_type], self._using)

    def view_without_catching_up(self, resource_type: str) -> CalendarView | None:
        """Return a view that may lack the latest changes, which costs no query.

        Returns None if there is no copy.
        """
        if resource_type not in TYPES or self._use is Use.OFF:
            return None
        self._start()
        copy = self._copy
        return None if copy is None else CalendarView(copy.hours[resource_type], self._using)

    def shall_check(self, dice: float, now: float) -> bool:
        """Return whether SQL shall check a refusal: about 1 %, but at most one per second.

        ``dice`` is a random number from 0 to 1, ``now`` is in seconds of a monotonic clock.
        """
        if dice >= _CHECKED_SHARE or now < self._next_check:
            return False
        self._next_check = now + _CHECK_PAUSE
        return True

    def found_wrong(self, finding: str) -> None:
        """Drop the copy, because an answer of it was wrong; the thread loads it again."""
        self._drop([finding])

    def close(self) -> None:
        """Stop the thread, and wait for its end."""
        self._stopping.set()
        self._wake.set()
        if self._is_started.is_set():
            self._thread.join()

    def load(self) -> None:
        """Load the copy now, in this thread."""
        with self._database.snapshot() as session:
            snapshot = self._feed.snapshot(session, TYPES)
            copy = _Copy(snapshot.position, {type_: BookedHours() for type_ in TYPES}, {})
            for state in snapshot.resources:
                copy.types[state.resource_id] = state.type
                copy.hours[state.type].put_resource(state)
            for bookings in snapshot.bookings:
                copy.hours[copy.types[bookings.resource_id]].put_bookings(bookings)
        for hours in copy.hours.values():
            hours.finish_loading()
        with self._catching, self._using:
            # A request that waits for a catch-up may have come after the snapshot.
            self._copy, self._is_current = copy, False

    def compare(self) -> None:
        """Compare some resources of the copy with the database; report a difference."""
        # A catch-up during the comparison would make memory newer than the rows.
        with self._catching:
            copy = self._copy
            found = [] if copy is None else self._differences(copy)
        if copy is None or copy is not self._copy:
            return
        if found:
            self._drop([f"resource {id_}: memory has other bookings" for id_ in found])
        elif not copy.compared and self._is_broken:
            self._is_broken = False
            self._unreported.append([])

    def _differences(self, copy: _Copy) -> list[int]:
        """Return which of the next resources differ. At the end of a round, ``compared`` is 0."""
        with self._database.snapshot() as session:
            changes = self._feed.changes_since(session, copy.position)
            self._apply(changes, self._states(session, changes.resources))
            ids = sorted(id_ for id_ in copy.types if id_ > copy.compared)[:_COMPARED]
            rows = {(s.resource_id, s.is_shared): s for s in self._feed.spans_of(session, ids)}
        if copy is not self._copy:
            return []
        copy.compared = ids[-1] if ids else 0
        read_at = ticks(copy.position.read_at) if copy.position.read_at else 0
        with self._using:
            return [id_ for id_ in ids if _differs(copy, id_, rows, read_at)]

    def _caught_up(self) -> _Copy | None:
        """Bring the copy up to date and return it; return None if that is impossible now."""
        self._start()
        if self._copy is None:
            return None
        needed = self._begun + 1  # a catch-up that began before this call may lack changes
        with self._catching:
            # If a catch-up that began after this call failed, do not wait for a time-out again.
            if self._done < needed:
                self._begun += 1
                self._is_current = self._try_to_catch_up()
                self._done = self._begun
            return self._copy if self._is_current else None

    def _try_to_catch_up(self) -> bool:
        try:
            self._catch_up()
        except SQLAlchemyError as error:
            LOG.warning("the calendar in memory is not up to date, SQL answers: %s", error)
            return False
        except Exception as error:  # a defect here must not fail the request
            LOG.exception("cannot bring the calendar in memory up to date, climate loads it again")
            self._drop([f"{type(error).__name__}: {error}"])
            return False
        return True

    def _catch_up(self) -> None:
        copy = self._copy
        if copy is None:
            return
        changes = self._feed.latest_changes(self._database, copy.position)
        states: Sequence[ResourceState] = ()
        if changes.resources:
            with self._database.read() as session:
                states = self._states(session, changes.resources)
        self._apply(changes, states)

    def _apply(self, changes: Changes, present: Sequence[ResourceState]) -> None:
        """Apply changes to the copy. The caller holds ``_catching``.

        ``present`` are the states of those changed resources that still exist.
        """
        copy = self._copy
        if copy is None:
            return
        if changes.is_lost:
            LOG.warning(
                "the changes of bookings have a gap, climate loads the calendar in memory again"
            )
            self._drop([])
            return
        states = {state.resource_id: state for state in present}
        with self._using:
            for id_ in changes.resources:
                if id_ in states:
                    copy.types[id_] = states[id_].type
                    copy.hours[states[id_].type].put_resource(states[id_])
                elif id_ in copy.types:
                    copy.hours[copy.types.pop(id_)].drop_resource(id_)
            read_at = ticks(copy.position.read_at) if copy.position.read_at else 0
            wrong = [
                change
                for hours in copy.hours.values()
                for change in hours.apply(changes.changes)
                if change.end > read_at
            ]
            copy.position = changes.position
        if wrong:
            self._drop(
                [f"resource {c.resource_id}: a removed booking is not in memory" for c in wrong]
            )

    def _states(self, session: Session, ids: Collection[int]) -> list[ResourceState]:
        found = self._feed.resource_states(session, ids) if ids else []
        return [state for state in found if state.type in TYPES]

    def report(self) -> None:
        """Report findings, and the end of a difference. Requests leave this to the thread."""
        while self._unreported:
            self._report(self._unreported[0])
            del self._unreported[0]

    def _drop(self, findings: Sequence[str]) -> None:
        """Drop the copy, and let the thread report the findings and load the copy again."""
        with self._using:
            self._copy = None
        if findings and not self._is_broken:
            self._is_broken = True
            self._unreported.append(findings[:_FINDINGS])
        self._wake.set()

    def _start(self) -> None:
        """Start the thread that loads and compares the copy, once in each process."""
        if self._is_started.is_set():
            return
        with self._starting:
            if self._is_started.is_set() or self._stopping.is_set():
                return
            with suppress(RuntimeError):  # too many threads: SQL answers, and the next call tries
                self._thread.start()
                self._is_started.set()

    def _loop(self) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            # Many processes that were started together must not all do their turns at once.
            self._wake.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311 - not a secret
            self._wake.clear()
            pause = _TURN
            with logged("the calendar in memory was not loaded or compared, will try again"):
                pause = self._turn()

    def _turn(self) -> float:
        """Load the copy, or catch up and compare; return the seconds until the next turn."""
        with logged("cannot report that the calendar in memory differs from the database"):
            self.report()
        if self._copy is not None:
            self._number_if_late(self._copy.position)
            self.compare()
            self._forget()
        elif self._pays():
            self.load()
        else:
            return _RECOUNT
        return _TURN

    def _number_if_late(self, position: Position) -> None:
        """Number changes of bookings if managers do not; only MariaDB needs it."""
        if len(position.ahead) > _MOST_UNNUMBERED:
            while self._database.write(self._feed.number):
                pass

    def _pays(self) -> bool:
        if self._use is Use.ON:
            return True
        with self._database.read() as session:
            return resources.count_of_types(session, TYPES) >= _LEAST_RESOURCES

    def _forget(self) -> None:
        copy = self._copy
        if copy is None or copy.position.read_at is None:
            return
        hour = copy.position.read_at.replace(minute=0, second=0, microsecond=0)
        if hour == copy.forgotten:
            return
        with self._using:
            for hours in copy.hours.values():
                hours.forget_before(ticks(hour))
        copy.forgotten = hour


def _differs(
    copy: _Copy, id_: int, rows: Mapping[tuple[int, bool], ResourceSpans], read_at: int
) -> bool:
    """Return whether the copy of a resource has other bookings than ``rows`` at ``read_at``."""
    none = (array("q"), array("q"))
    kinds = [rows.get((id_, kind)) or ResourceSpans(id_, kind, *none) for kind in (False, True)]
    return any(copy.hours[copy.types[id_]].differs(kind, read_at) for kind in kinds)
