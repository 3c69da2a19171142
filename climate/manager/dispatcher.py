"""The manager's heart: claims due events and has a bounded number of workers run them.

It looks when the timer rings at the next due time, when a hint says that work was written, when
one of its workers is done (which may unblock others), and every poll interval as a net. Any
number of managers may do so on one database; claims keep them apart.

How an event runs: ``_claim`` takes it from those that wait, a thread of ``_begin`` runs it
(``events``), ``keep`` extends its claim meanwhile, ``_give_up`` ends a call that takes too long.
"""

import logging
import os
import socket
import threading
import uuid
from collections.abc import Sequence
from datetime import timedelta

from climate.db import events, idempotency
from climate.db.engine.database import is_unavailable
from climate.db.limits import forget_past_use
from climate.db.line import Waiting
from climate.db.resources import allocations
from climate.manager import farewells, notifications
from climate.manager.batch import Batch, Result
from climate.manager.claims import Claim, Task
from climate.manager.events import hand_back, run, settle
from climate.manager.failures import give_up
from climate.manager.keeping import Keeper
from climate.manager.line import PAGE, Line
from climate.manager.pace import Pace
from climate.manager.runtime import Runtime
from climate.manager.shares import Shares
from climate.manager.timer import Timer
from climate.observability import log_context
from climate.plugins.fencing import FencingToken

LOG = logging.getLogger(__name__)
# Seconds between two looks at what can be forgotten.
_TIDY = 10.0
# A call that takes longer (seconds) keeps nothing else waiting.
_LONG = 1.0


def owner_name() -> str:
    """Return a name for this manager that no other, and no later one, has."""
    return f"{socket.gethostname()[:32]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def _report(text: str, error: Exception) -> None:
    """Log a failure: in a line if the database is away, as a defect of ours otherwise."""
    if is_unavailable(error):
        LOG.warning("%s: %s", text, error)
    else:
        LOG.error(text, exc_info=error)


class Dispatcher:
    """Claims and runs due events until it is stopped."""

    def __init__(self, runtime: Runtime, owner: str) -> None:
        """Prepare; nothing happens before ``start``."""
        self.last_tick: float | None = None
        self._runtime = runtime
        self._owner = owner
        self._timer = Timer(runtime.clock)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._keeper = Keeper(runtime, owner)
        self._line = Line(runtime)
        self._pace = Pace()
        self._shares = Shares(runtime.settings.workers, runtime.plugins, self._pace)
        self._running: list[Batch] = []
        self._given_up: list[Batch] = []
        self._done = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Begin to work, in threads of its own."""
        settings = self._runtime.settings
        self._runtime.wakeup.subscribe(self._wake.set)
        self._timer.every(settings.poll_interval, self._wake.set, "poll")
        self._timer.every(settings.claim_timeout.total_seconds() / 3, self._keep, "keep")
        self._timer.every(_TIDY, self._tidy, "tidy")
        self._timer.every(min(1.0, settings.call_timeout), self._watch, "watch")
        self._timer.start()
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Claim no more, let what runs finish for a while, and hand back the rest."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        for relief in self._relieve(self._runtime.clock.elapsed()):
            relief.join(self._runtime.settings.shutdown_timeout)
        with self._done:
            self._done.wait_for(lambda: not self._running, self._runtime.settings.shutdown_timeout)
            for claim in self._mine():
                claim.fencing_token.revoke()
        self._timer.stop()
        write = self._runtime.database.write
        handed = write(lambda session: events.hand_back(session, self._owner))
        if handed:
            LOG.warning("stopped in the middle of %s event(s), handed back", handed)

    def run_due(self) -> int:
        """Run all that is due now, in this thread, and return how many events ran.

        For tests and simulations: the same claims and the same code, without timer and threads.
        """
        count = 0
        while batches := self._claim():
            for batch in batches:
                count += len(batch.claims)
                self._do(batch)
        return count

    def keep(self) -> None:
        """Extend our claims, and return those of managers that died."""
        mine = {claim.event_id: claim for claim in self._mine()}
        self._keeper.keep(mine)
        if self._keeper.take_over(mine):
            self._wake.set()

    def tidy(self) -> None:
        """Forget what is over."""
        now = self._runtime.clock.now()
        write = self._runtime.database.write
        write(lambda session: allocations.forget_cleaned(session, now))
        answered = now - self._runtime.settings.idempotency_time
        write(lambda session: idempotency.forget(session, answered))
        notifications.forget_old(self._runtime)
        if (rules := self._runtime.settings.limits).enabled:
            write(lambda session: forget_past_use(session, now - rules.period))

    def _keep(self) -> None:
        try:
            self.keep()
        except Exception as error:  # noqa: BLE001 - upkeep goes on
            _report("claims were not extended, will try again", error)

    def _tidy(self) -> None:
        try:
            self.tidy()
        except Exception as error:  # noqa: BLE001 - upkeep goes on
            _report("what is over was not forgotten, will try again", error)

    def _mine(self) -> list[Claim]:
        """Return the claims of all our workers."""
        with self._done:
            return [claim for batch in self._running for claim in batch.claims]

    def _watch(self) -> None:
        """Let go of calls that take too long, and let nothing wait behind those that take long."""
        now = self._runtime.clock.elapsed()
        self._relieve(now - _LONG)
        self._give_up(now - self._runtime.settings.call_timeout)

    def _relieve(self, oldest: float) -> list[threading.Thread]:
        """Have others do what waits for a call that was under way before a moment; return them."""
        with self._done:
            slow = [batch for batch in self._running if batch.call_since_before(oldest)]
        left = [(tasks, results) for tasks, results in map(Batch.relieve, slow) if tasks or results]
        reliefs = [
            threading.Thread(target=self._take_over, args=one, name="relief", daemon=True)
            for one in left
        ]
        for relief in reliefs:
            relief.start()
        return reliefs

    def _take_over(self, tasks: Sequence[Task], results: Sequence[Result]) -> None:
        """Hand back what nobody called for, and store the rest."""
        try:
            hand_back(self._runtime, tasks)
            settle(self._runtime, results)
        except Exception as error:  # noqa: BLE001 - others go on
            _report("events were not finished, their claims will expire", error)
        self._runtime.wakeup.hint()

    def _give_up(self, oldest: float) -> None:
        """Let go of calls from before a moment: they have failed, and may change nothing more."""
        with self._done:
            calls = [(batch, batch.call_since_before(oldest)) for batch in self._running]
            late = [(batch, *call) for batch, call in calls if call is not None]
            for batch, claim, _ in late:
                claim.fencing_token.revoke()
                batch.give_up(claim)
                self._running.remove(batch)
                self._given_up.append(batch)
        for _, claim, call in late:
            try:
                give_up(self._runtime, claim, call)
            except Exception as error:  # noqa: BLE001 - nobody extends its claim any more
                _report(f"event {claim.event_id} was not given up, its claim will expire", error)
        if late:
            self._runtime.wakeup.hint()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                self._tick()
            except Exception as error:  # noqa: BLE001 - looking goes on
                _report("looking for due events failed, will look again", error)

    def _tick(self) -> None:
        """Claim what is due, as far as workers are free, and set the alarm for what comes next."""
        now = self._runtime.clock.now()  # before the last look: what becomes due meanwhile rings
        while not self._stopping.is_set() and (batches := self._claim()):
            for batch in batches:
                self._begin(batch)
            now = self._runtime.clock.now()
        with self._runtime.database.read() as session:
            upcoming = events.next_run(session, now)
        self.last_tick = self._runtime.clock.elapsed()
        horizon = now + timedelta(seconds=self._runtime.settings.poll_interval)
        if upcoming is not None and upcoming < horizon:
            self._timer.at(upcoming, self._wake.set)

    def _claim(self) -> list[Batch]:
        """Return claims for as many workers as may run now; none if none may."""
        if len(self._running) >= self._runtime.settings.workers:
            return []
        if self._line.is_good:
            self._line.look_for_newcomers()
            return self._pick()
        skip, more = 0, True
        while more:
            more = self._line.look(skip)
            if batches := self._pick():
                return batches
            skip += PAGE
        return []

    def _pick(self) -> list[Batch]:
        with self._done:
            running, given_up = list(self._running), list(self._given_up)
        self._line.go_on()
        while chosen := self._shares.choose(self._line.waiting, running, given_up):
            self._line.leave([one for some in chosen for one in some])
            batches = self._take(chosen)
            asked = sum(len(some) for some in chosen)
            self._line.note(asked, [one.event_id for batch in batches for one in batch.claims])
            if batches:
                return batches
            self._line.go_on()
        return []

    def _take(self, chosen: Sequence[Sequence[Waiting]]) -> list[Batch]:
        """Claim these, as far as they are not blocked, nor others' by now."""
        now, until = self._runtime.clock.now(), self._keeper.until()
        stored = now + self._runtime.settings.claim_timeout
        ids = [one.event_id for some in chosen for one in some]
        rows = self._runtime.database.write(
            lambda session: events.claim(session, self._owner, now, stored, ids)
        )
        ours = {id_: (lease_id, attempt) for id_, lease_id, attempt in rows}
        claims = [
            [
                self._claim_on(one, *ours[one.event_id], until)
                for one in some
                if one.event_id in ours
            ]
            for some in chosen
        ]
        return [Batch(some) for some in claims if some]

    def _claim_on(self, one: Waiting, lease_id: str | None, attempt: int, until: float) -> Claim:
        fencing_token = FencingToken(self._runtime.clock.elapsed, until)
        known = (one.event_id, lease_id, self._owner, attempt, one.project_id, one.types)
        return Claim(*known, fencing_token)

    def _begin(self, batch: Batch) -> None:
        """Give the claims a thread; a daemon, so that a call that hangs cannot hold our exit."""
        with self._done:
            self._running.append(batch)
        threading.Thread(target=self._run, args=(batch,), name="event", daemon=True).start()

    def _do(self, batch: Batch) -> None:
        claim = batch.claims[0]
        if claim.lease_id is None:
            with log_context.about(None, claim.event_id):
                farewells.run(self._runtime, claim)
        else:
            run(self._runtime, batch, self._pace)

    def _run(self, batch: Batch) -> None:
        try:
            self._do(batch)
        except Exception as error:  # noqa: BLE001 - others go on
            _report("events were not finished, their claims will expire", error)
        finally:
            with self._done:
                self._running = [one for one in self._running if one is not batch]
                self._given_up = [one for one in self._given_up if one is not batch]
                self._done.notify_all()
            self._runtime.wakeup.hint()
