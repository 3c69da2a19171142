"""Passes: place the leases of a pool in the order of the wait list.

A pass has three steps:

1. Move promised bookings to earlier times.
2. Book the earliest window for the first leases, until ``promises`` leases have a promise.
3. Backfill: book now whatever fits now, for its whole duration, beside all bookings.

One process at a time has the *turn* for a pool (``turns``). The turn only keeps the order. Nothing
depends on it for safety, because each placement is an ordinary admission. A pass remembers nothing:
whoever looks next finds what can be placed. If climate cannot decide about a lease, because of an
error, the pass holds this lease back and goes on with the others.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError
from climate.core.lease.model import Lease
from climate.core.lease.wait_list import HeldBack, Wait
from climate.core.matching.requirement import Requirement
from climate.core.window import later, second_from
from climate.db.engine.database import is_transient, is_unavailable
from climate.db.leases import leases, waits
from climate.db.leases.waits import Shape
from climate.manager.admission import availability
from climate.manager.admission.requirements import learned_cleaning
from climate.manager.process.periodic_task import PeriodicTask
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list.earlier_room import EarlierRoom
from climate.manager.wait_list.placing import (
    book_earliest,
    book_now,
    hold_back,
    move_forward,
    requirements_of_lease,
)
from climate.manager.wait_list.turns import take_turn

LOG = logging.getLogger(__name__)
T = TypeVar("T")

# Seconds between two passes of a process, so that a busy service spends little time on them.
_PAUSE = 0.1
# Entries that one query reads: of all entries, where few are needed, and of those that seem to fit.
_FEW, _BATCH = 10, 200
# Placements that may fail in one step of a pass.
_VAIN = 20


def wait_list_task(runtime: Runtime) -> PeriodicTask:
    """Return the task of a manager that places waiting leases after each hint."""
    return PeriodicTask(
        "wait list",
        lambda: place_waiting(runtime),
        interval=runtime.settings.poll_interval,
        pause=_PAUSE,
    )


def place_waiting(runtime: Runtime) -> int:
    """Place the waiting leases of all pools; return how many bookings were made or moved."""
    with runtime.database.read() as session:
        pools = waits.pools(session)
    return sum(place_pool(runtime, pool) for pool in pools)


def place_pool(
    runtime: Runtime, pool: str, *, moves: bool = True, patience: timedelta | None = None
) -> int:
    """Place the waiting leases of a pool; return how many bookings were made or moved.

    ``moves`` is whether to look for earlier times for promised leases: a new lease makes no room.
    The function stops after ``patience`` (None: when nothing is left to do). Returns 0 if another
    process has the turn. That process then looks at the pool once more.
    """
    turn = take_turn(runtime, pool, patience)
    if turn is None:
        return 0
    count, is_over = 0, False
    try:
        while not is_over:
            count += run_pass(runtime, pool, moves=moves, goes_on=turn.goes_on)
            moves = True
            is_over = turn.leave(even_if_wanted=turn.is_overdue)
    finally:
        if not is_over:
            turn.leave(even_if_wanted=True)
    return count


def run_pass(
    runtime: Runtime,
    pool: str,
    *,
    moves: bool = True,
    goes_on: Callable[[], bool] = lambda: True,
) -> int:
    """Run one pass over a pool, without a turn; return how many bookings were made or moved.

    The pass ends early if ``goes_on`` returns False.
    """
    now, rules = runtime.clock.now(), runtime.settings.wait_list
    with runtime.database.read() as session:
        has_started = waits.has_started(session, pool)
        promised = waits.promised(session, pool, now)
    if has_started:
        runtime.database.write(lambda session: waits.forget_started(session, pool))
    moved = _move(runtime, promised, goes_on) if moves else [None] * len(promised)
    starts = [start or wait.promised_start for start, wait in zip(moved, promised, strict=True)]
    count = sum(start is not None for start in moved)
    future = sum(start is not None and start > now for start in starts)
    step = _Step(runtime, pool, goes_on)
    if rules.promises:
        count += step.book_first(rules.promises - future)
    else:
        count += step.book_in_order()
    return count + (step.backfill() if rules.backfills else 0)


def _move(
    runtime: Runtime, promised: Sequence[Wait], goes_on: Callable[[], bool]
) -> list[datetime | None]:
    """Move promised leases to earlier times, where possible; return the new start of each."""
    room = EarlierRoom.of(runtime, promised)
    moved = []
    for wait in promised:
        is_worth_it = goes_on() and room.may_help(wait)
        start = _tried(runtime, wait, move_forward) if is_worth_it else None
        if start is not None:
            room.read()
        moved.append(start)
    return moved


def _tried(runtime: Runtime, wait: Wait, place: Callable[[Runtime, Wait], T]) -> T | None:
    """Return the result of ``place``, or None after an error: one lease must not stop the others.

    An error that the database or a conflict with other requests caused says nothing about the
    lease.
    """
    try:
        return place(runtime, wait)
    except Exception as error:
        if is_transient(error):
            LOG.info("lease %s was not placed, because of conflicts: %s", wait.lease_id, error)
            return None
        if is_unavailable(error):
            raise
        LOG.exception("lease %s was not placed", wait.lease_id)
        hold_back(runtime, wait, HeldBack.ERROR)
        return None


@dataclass(slots=True)
class _Step:
    """The second and third step of a pass over a pool; see ``run_pass``."""

    runtime: Runtime
    pool: str
    goes_on: Callable[[], bool]

    def book_first(self, missing: int) -> int:
        """Book the first leases, until ``missing`` of them have a start in the future.

        Returns how many were booked. If many leases cannot be booked, the next pass continues.
        """
        count = vain = 0
        found, after = self._first(None) if missing > 0 else [], None
        while found and missing > 0 and vain < _VAIN and self.goes_on():
            now, after = self.runtime.clock.now(), found.pop(0)
            start = _tried(self.runtime, after, book_earliest)
            count += start is not None
            missing -= start is not None and start > second_from(now)
            if start is None:  # leases like this one may be held back now
                vain += 1
                found = []
            found = found or self._first(after)
        if found and vain >= _VAIN:
            self.runtime.wakeup.hint()
        return count

    def book_in_order(self) -> int:
        """Book the first leases in their order, as long as they fit now; return how many."""
        count, found = 0, self._first(None)
        while found and self.goes_on() and _tried(self.runtime, found[0], book_now):
            count, after = count + 1, found.pop(0)
            found = found or self._first(after)
        return count

    def _first(self, after: Wait | None) -> list[Wait]:
        with self.runtime.database.read() as session:
            now = self.runtime.clock.now()
            return waits.first_waiting(session, self.pool, now, after, _FEW)

    def backfill(self) -> int:
        """Book leases that fit now for their whole duration; return how many.

        Each booking leaves less room. So what fits is only read again if a lease did not fit.
        """
        count = vain = 0
        fits, is_new = FreeNow.of(self.runtime, self.pool), True
        found, after = self._fitting(fits, None), None
        while found and vain < _VAIN and self.goes_on():
            wait = found.pop(0)
            if not fits.has_room_for(wait):
                after = wait
            elif _tried(self.runtime, wait, book_now):
                count, after, is_new = count + 1, wait, False
            elif is_new:  # its reservations do not fit together, or a limit forbids it
                vain, after, found = vain + 1, wait, []
            else:
                fits.read()
                is_new, found = True, []
            found = found or self._fitting(fits, after)
        return count

    def _fitting(self, fits: "FreeNow", after: Wait | None) -> list[Wait]:
        """Return the next waiting leases that seem to fit, in the order of the list."""
        if not fits.longest:
            return []
        with self.runtime.database.read() as session:
            return waits.of_shapes(session, self.pool, fits.now, fits.longest, after, _BATCH)


@dataclass(slots=True)
class FreeNow:
    """For each shape of waiting leases, the longest duration that fits from ``now`` on.

    A shape with no free room is not in ``longest``. If a lease has several reservations, each fits
    alone, but perhaps not all together. ``needs`` are the requirements of each shape.
    """

    runtime: Runtime
    now: datetime
    needs: list[tuple[Shape, Sequence[Requirement]]]
    longest: dict[str, timedelta]

    @classmethod
    def of(cls, runtime: Runtime, pool: str) -> "FreeNow":
        """Return the free room for the waiting leases of a pool."""
        now = runtime.clock.now()
        with runtime.database.read() as session:
            shapes = waits.shapes(session, pool, now)
            examples = leases.find_some(session, [shape.lease_id for shape in shapes])
        needs = [
            (shape, parts)
            for shape in shapes
            if shape.lease_id in examples
            if (parts := _needs(runtime, examples[shape.lease_id])) is not None
        ]
        free = cls(runtime, now, needs, {})
        free.read()
        return free

    def has_room_for(self, wait: Wait) -> bool:
        """Return whether the lease fits from now on, and may start and end then."""
        fits = wait.length <= self.longest.get(wait.shape, timedelta(0))
        start = second_from(self.now)
        return fits and wait.earliest <= start and start + wait.length <= wait.end_by

    def read(self) -> None:
        """Read the bookings, and compute what fits."""
        self.now, self.longest = self.runtime.clock.now(), {}
        if not self.needs:
            return
        start = second_from(self.now)
        longest = max((shape.longest for shape, _ in self.needs), default=timedelta(0))
        with self.runtime.database.read() as session:
            cleanings = [self._cleaning(session, needs) for _, needs in self.needs]
            horizon = later(start, longest + max(cleanings))
            room = availability.FreeRoom(self.runtime, session, start, horizon)
            for (shape, needs), cleaning in zip(self.needs, cleanings, strict=True):
                until = _lasts_until(room, needs)
                if until is not None and until - cleaning - start >= shape.shortest:
                    self.longest[shape.name] = until - cleaning - start

    def _cleaning(self, session: Session, needs: Sequence[Requirement]) -> timedelta:
        """Return how long a lease with these requirements would occupy resources after its end."""
        learned = learned_cleaning(self.runtime, session, needs, self.now)
        return self.runtime.settings.cleaning_time if learned is None else learned


def _lasts_until(room: availability.FreeRoom, needs: Sequence[Requirement]) -> datetime | None:
    """Return until when a lease would have room; None if that cannot be computed."""
    try:
        return room.lasts_until(needs)
    except ClimateError as error:  # for example, an operator's filter fails
        LOG.warning("waiting leases are left out: %s", error.message)
        return None


def _needs(runtime: Runtime, lease: Lease) -> Sequence[Requirement] | None:
    """Return the requirements of a lease; None if climate does not understand them any more."""
    try:
        return requirements_of_lease(runtime, lease)
    except ClimateError as error:
        LOG.warning("waiting leases like %s are left out: %s", lease.id, error)
        return None
