"""Passes: place the leases of a pool in the order of the wait list.

A pass has three steps:

1. Move promised bookings to earlier times.
2. Book the earliest window for the first leases, until ``promises`` leases have a promise.
3. Backfill: book now whatever fits now, for its whole duration, beside all bookings.

One process at a time has the *turn* for a pool. The turn only keeps the order. Nothing depends on
it for safety, because each placement is an ordinary admission. A pass remembers nothing: whoever
looks next finds what can be placed.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.core.lease.wait_list import Wait
from climate.core.matching.requirement import Requirement
from climate.core.window import later, second_from
from climate.db.leases import leases, waits
from climate.db.leases.waits import Shape
from climate.manager.admission import availability
from climate.manager.process.periodic_task import PeriodicTask
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list.placing import (
    book_earliest,
    book_now,
    move_forward,
    requirements_of_lease,
)

LOG = logging.getLogger(__name__)

# How long a process keeps the turn at most. A pass takes milliseconds, and rarely seconds.
_TURN = timedelta(seconds=30)
# Seconds between two passes of a process, so that a busy service spends little time on them.
_PAUSE = 0.1
# Entries that one query reads, and placements that may fail in one pass.
_BATCH, _VAIN = 200, 20


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


def place_pool(runtime: Runtime, pool: str, *, moves: bool = True) -> int:
    """Place the waiting leases of a pool; return how many bookings were made or moved.

    ``moves`` is whether to look for earlier times for promised leases: a new lease makes no room.
    Returns 0 if another process has the turn. That process then looks at the pool once more.
    """
    owner, count, is_over = uuid.uuid4().hex, 0, False
    if not _take_turn(runtime, pool, owner):
        return 0
    try:
        while not is_over:
            count += run_pass(runtime, pool, moves=moves)
            moves = True
            is_over = runtime.database.write(lambda s: waits.leave_turn(s, pool, owner))
    finally:
        while not is_over:
            is_over = runtime.database.write(lambda s: waits.leave_turn(s, pool, owner))
    return count


def _take_turn(runtime: Runtime, pool: str, owner: str) -> bool:
    now = runtime.clock.now()
    return runtime.database.write(
        lambda session: waits.take_turn(session, pool, owner, now, now + _TURN)
    )


def run_pass(runtime: Runtime, pool: str, *, moves: bool = True) -> int:
    """Run one pass over a pool, without a turn; return how many bookings were made or moved."""
    now, rules = runtime.clock.now(), runtime.settings.wait_list
    with runtime.database.read() as session:
        has_started = waits.has_started(session, pool)
        promised = waits.promised(session, pool, now)
    if has_started:
        runtime.database.write(lambda session: waits.forget_started(session, pool))
    moved = [move_forward(runtime, wait) if moves else None for wait in promised]
    starts = [start or wait.promised_start for start, wait in zip(moved, promised, strict=True)]
    count = sum(start is not None for start in moved)
    future = sum(start is not None and start > now for start in starts)
    count += _book_first(runtime, pool, rules.promises - future, only_now=rules.promises == 0)
    return count + (_backfill(runtime, pool) if rules.backfills else 0)


def _book_first(runtime: Runtime, pool: str, missing: int, *, only_now: bool) -> int:
    """Book the first waiting leases, until ``missing`` of them have a start in the future.

    If ``only_now`` is set, book leases in their order as long as they fit now. Returns how many
    leases were booked.
    """
    count, tried = 0, set[str]()
    while missing > 0 or only_now:
        now = runtime.clock.now()
        with runtime.database.read() as session:
            first = waits.first_waiting(session, pool, now, max(missing, 1) + len(tried))
        new = [wait for wait in first if wait.lease_id not in tried]
        for wait in new:
            start = _book_first_one(runtime, wait, only_now=only_now)
            if only_now and start is None:
                return count
            tried.add(wait.lease_id)
            count += start is not None
            missing -= start is not None and start > second_from(now)
        if not new:
            break
    return count


def _book_first_one(runtime: Runtime, wait: Wait, *, only_now: bool) -> datetime | None:
    if not only_now:
        return book_earliest(runtime, wait)
    return runtime.clock.now() if book_now(runtime, wait) else None


def _backfill(runtime: Runtime, pool: str) -> int:
    """Book leases that fit now for their whole duration; return how many."""
    count = vain = 0
    fits = FreeNow.of(runtime, pool)
    for wait in _fitting(runtime, pool, fits):
        if not fits.has_room_for(wait):
            continue
        if book_now(runtime, wait):
            count += 1
            fits.read()
        else:
            vain += 1
        if vain >= _VAIN or not fits.longest:
            break
    return count


def _fitting(runtime: Runtime, pool: str, fits: "FreeNow") -> Iterator[Wait]:
    """Yield the waiting leases that seemed to fit when they were read, in the order of the list."""
    after = None
    while fits.longest:
        with runtime.database.read() as session:
            found = waits.of_shapes(session, pool, fits.now, fits.longest, after, _BATCH)
        yield from found
        if len(found) < _BATCH:
            return
        after = found[-1]


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
            (shape, requirements_of_lease(runtime, examples[shape.lease_id]))
            for shape in shapes
            if shape.lease_id in examples
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
        self.longest = {}
        if not self.needs:
            return
        start, cleaning = second_from(self.now), self.runtime.settings.cleaning_time
        longest = max((shape.longest for shape, _ in self.needs), default=timedelta(0))
        horizon = later(start, longest + cleaning)
        with self.runtime.database.read() as session:
            room = availability.FreeRoom(self.runtime, session, start, horizon)
            for shape, needs in self.needs:
                until = room.lasts_until(needs)
                if until is not None and until - cleaning - start >= shape.shortest:
                    self.longest[shape.name] = until - cleaning - start
