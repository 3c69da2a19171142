"""The manager's heart: claims due events and has a bounded number of workers run them.

It looks when the timer rings at the next due time, when a hint says that work was written, when
one of its workers is done (which may unblock others), and every poll interval as a net. Any
number of managers may do so on one database; claims keep them apart.
"""

import logging
import os
import socket
import threading
import uuid
from datetime import datetime, timedelta

from climate import log_context
from climate.db import allocations, events, idempotency
from climate.db.engine import is_unavailable
from climate.db.limits import forget_past_use
from climate.manager import farewells, notifications
from climate.manager.claims import Claim
from climate.manager.events import run
from climate.manager.runtime import Runtime
from climate.manager.timer import Timer

LOG = logging.getLogger(__name__)


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
        self.last_tick: datetime | None = None
        self._runtime = runtime
        self._owner = owner
        self._timer = Timer()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._running: dict[str, Claim] = {}
        self._done = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="dispatcher", daemon=True)

    def start(self) -> None:
        """Begin to work, in threads of its own."""
        settings = self._runtime.settings
        self._runtime.wakeup.subscribe(self._wake.set)
        self._timer.every(settings.poll_interval, self._wake.set, "poll")
        self._timer.every(settings.claim_timeout.total_seconds() / 3, self._keep, "keep")
        self._timer.start()
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Claim no more, let what runs finish for a while, and hand back the rest."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()
        with self._done:
            self._done.wait_for(lambda: not self._running, self._runtime.settings.shutdown_timeout)
        self._timer.stop()
        handed = self._runtime.database.write(
            lambda session: events.hand_back(session, self._owner)
        )
        if handed:
            LOG.warning("stopped in the middle of %s event(s), handed back", handed)

    def run_due(self) -> int:
        """Run all that is due now, in this thread, and return how many events ran.

        For tests and simulations: the same claims and the same code, without timer and threads.
        """
        count = 0
        while claims := self._claim(1):
            self._do(claims[0])
            count += 1
        return count

    def keep(self) -> None:
        """Extend our claims, return those of managers that died, and forget what is over."""
        now = self._runtime.clock.now()
        mine = list(self._running)
        until = now + self._runtime.settings.claim_timeout
        write = self._runtime.database.write
        if mine:
            write(lambda session: events.extend(session, self._owner, mine, until))
        if reaped := write(lambda session: events.reap(session, now)):
            LOG.warning("took over %s event(s) of managers that stopped answering", reaped)
            self._wake.set()
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
        while not self._stopping.is_set():
            free = self._runtime.settings.workers - len(self._running)
            claims = self._claim(free) if free else []
            for claim in claims:
                self._begin(claim)
            if not claims:
                break
        now = self._runtime.clock.now()
        with self._runtime.database.read() as session:
            upcoming = events.next_run(session, now)
        self.last_tick = now
        horizon = now + timedelta(seconds=self._runtime.settings.poll_interval)
        if upcoming is not None and upcoming < horizon:
            self._timer.at(upcoming, self._wake.set)

    def _claim(self, limit: int) -> list[Claim]:
        now = self._runtime.clock.now()
        with self._runtime.database.read() as session:
            if not events.is_due(session, now):
                return []
        until = now + self._runtime.settings.claim_timeout
        found = self._runtime.database.write(
            lambda session: events.claim(session, self._owner, now, until, limit)
        )
        return [Claim(id_, lease_id, self._owner, attempt) for id_, lease_id, attempt in found]

    def _begin(self, claim: Claim) -> None:
        """Give the claim a thread; a daemon, so that a call that hangs cannot hold our exit."""
        with self._done:
            self._running[claim.event_id] = claim
        threading.Thread(target=self._run, args=(claim,), name="event", daemon=True).start()

    def _do(self, claim: Claim) -> None:
        if claim.lease_id is None:
            farewells.run(self._runtime, claim)
        else:
            run(self._runtime, claim)

    def _run(self, claim: Claim) -> None:
        try:
            with log_context.about(claim.lease_id, claim.event_id):
                self._do(claim)
        except Exception as error:  # noqa: BLE001 - others go on
            with log_context.about(claim.lease_id, claim.event_id):
                _report("the event was not finished, its claim will expire", error)
        finally:
            with self._done:
                self._running.pop(claim.event_id, None)
                self._done.notify_all()
            self._runtime.wakeup.hint()
