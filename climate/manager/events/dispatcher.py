"""Dispatcher: claims due events, and runs them in a limited number of worker threads.

The dispatcher queries the database for due events on four occasions:

- A timer signals that the next event is due.
- A process has written an event, and has sent a hint (a wake-up message).
- A worker has finished, which may unblock other events.
- A poll interval is over, in case a hint was lost.

Several managers may use one database. Each manager claims an event before it runs the event, so
only one manager runs it.

``Dispatcher`` claims the events that ``FairShare`` chooses from the ``QueueView``. ``WorkerPool``
runs the claimed events in threads, and abandons calls that take too long. ``Upkeep`` renews the
claims of this manager, releases claims that other managers stopped renewing, and removes old rows.
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from climate.db.events import queue as event_queue
from climate.db.events.waiting import PendingEvent
from climate.db.leases import idempotency
from climate.db.limits import forget_past_use
from climate.db.resources import allocations
from climate.db.resources.feed.dialects import for_dialect
from climate.manager.claims import Batch, Claim, ClaimKeeper, Result, Task
from climate.manager.events import runner
from climate.manager.events.outcomes import discard
from climate.manager.events.queue import PAGE, BatchSizeEstimator, FairShare, QueueView
from climate.manager.leases import finalizers
from climate.manager.leases.delete import remove_ended
from climate.manager.notifications import email_links, feeds, log, reminders
from climate.manager.process.periodic_task import PeriodicTask, Progress, logged
from climate.manager.process.runtime import Runtime
from climate.manager.process.timer import Timer
from climate.observability import log_context
from climate.plugins.fencing import FencingToken

LOG = logging.getLogger(__name__)
# Seconds between removals of old rows. Each removes small batches, so it runs often.
_TIDY_INTERVAL = 10.0
# Seconds between the removals of two kinds of rows. Together, they would delay an event by 10 ms.
_TIDY_PAUSE = 0.05
# Seconds between passes that write reminders of subscribers, which are at most so late.
_REMINDING_INTERVAL = 1.0
# Renewals per ``claim_timeout``. If one fails or is late, the claim is still valid.
_RENEWALS = 3
# If a plug-in call takes longer (seconds), another thread requeues the worker's other events.
_SLOW_CALL = 1.0
_UNFINISHED = "cannot store the results of events, managers repeat them when their claims expire"


def owner_name() -> str:
    """Return a unique name for this manager process: host name, process id and a random part."""
    return f"{socket.gethostname()[:32]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


class Dispatcher:
    """Claims due events and starts worker threads for them, from ``start`` to ``stop``.

    ``last_tick`` is when the last run of the main loop ended, in seconds of ``clock.elapsed``; None
    before the first run.
    """

    def __init__(self, runtime: Runtime, owner: str) -> None:
        """Prepare to claim events as the manager ``owner``. No thread runs before ``start``."""
        self.last_tick: float | None = None
        self._runtime, self._owner = runtime, owner
        self._timer = Timer(runtime.clock)
        self._keeper = ClaimKeeper(runtime.store, owner, runtime.settings.claim_timeout)
        self._queue = QueueView(runtime.store, runtime.rng)
        sizes = BatchSizeEstimator()
        self._share = FairShare(runtime.settings.workers, runtime.plugins, sizes)
        self._task = PeriodicTask(
            "dispatcher", self._tick, interval=runtime.settings.poll_interval, pause=0.0
        )
        self.pool = WorkerPool(runtime, sizes)
        self.upkeep = Upkeep(runtime, self._keeper, self.pool, self._task.wake)

    @property
    def progress(self) -> list[Progress]:
        """The progress of the loops that claim events, renew claims and remove old rows."""
        return [*self._task.progress, *self._timer.progress]

    def start(self) -> None:
        """Start the threads that claim events, run them and renew claims; return at once."""
        settings = self._runtime.settings
        self._runtime.wakeup.subscribe(self._task.wake)
        renewal = settings.claim_timeout.total_seconds() / _RENEWALS
        self._timer.every(renewal, self.upkeep.renew, "renew claims")
        tidy = partial(self.upkeep.tidy, _TIDY_PAUSE)
        self._timer.every(_TIDY_INTERVAL, tidy, "remove old rows")
        self._timer.every(min(1.0, settings.call_timeout), self.pool.watch, "watch calls")
        self._timer.every(_REMINDING_INTERVAL, self.upkeep.remind, "remind subscribers")
        if self._runtime.database.dialect == "mysql":
            number = self.upkeep.number_booking_changes
            self._timer.every(1.0, number, "number booking changes")
        self._timer.start()
        self._task.start()

    def stop(self) -> None:
        """Stop claiming events, wait for workers, and release the claims of unfinished events.

        The wait takes at most ``shutdown_timeout``. Other managers can then claim the released
        events.
        """
        self._task.stop()
        self.pool.stop()
        self._timer.stop()
        write = self._runtime.database.write
        if released := write(lambda session: event_queue.release(session, self._owner)):
            LOG.warning("stopped while %s event(s) ran, released them for other managers", released)

    def run_due(self) -> int:
        """Claim and run all due events in this thread; return how many events ran.

        Tests and simulations call this method instead of ``start``, which needs a timer and
        threads.
        """
        count = 0
        while batches := self._claim():
            for batch in batches:
                count += len(batch.claims)
                self.pool.run(batch)
        return count

    def _tick(self) -> None:
        """Start workers for due events as long as workers are free; then set the timer.

        The timer wakes the dispatcher when the next event is due.
        """
        now = self._runtime.clock.now()  # before the query: the alarm covers what is due after it
        while not self._task.is_stopping and (batches := self._claim()):
            for batch in batches:
                self.pool.start(batch)
            now = self._runtime.clock.now()
        with self._runtime.database.read() as session:
            upcoming = event_queue.next_run(session, now)
        self.last_tick = self._runtime.clock.elapsed()
        horizon = now + timedelta(seconds=self._runtime.settings.poll_interval)
        if upcoming is not None and upcoming < horizon:
            self._timer.at(upcoming, self._task.wake)

    def _claim(self) -> list[Batch]:
        """Claim events and return them in batches, at most one batch per free worker.

        The list is empty if no worker is free, or if this manager can claim no event.
        """
        if len(self.pool.running) >= self._runtime.settings.workers:
            return []
        if self._queue.is_fresh:
            self._queue.add_newly_due()
            return self._claim_some()
        skip, has_more = 0, True
        while has_more:
            has_more = self._queue.refresh(skip)
            if batches := self._claim_some():
                return batches
            skip += PAGE
        return []

    def _claim_some(self) -> list[Batch]:
        """Claim events from the current queue view; return them in batches.

        Other managers may claim the chosen events first. Then this method chooses other events,
        until it has claimed some or the queue view has no more events to start.
        """
        running, abandoned = self.pool.running, self.pool.abandoned
        self._queue.avoid_others()
        while chosen := self._share.choose(self._queue.pending, running, abandoned):
            self._queue.remove([event for share in chosen for event in share])
            batches = self._claim_chosen(chosen)
            tried = sum(len(share) for share in chosen)
            self._queue.note_claims(tried, [c.event_id for batch in batches for c in batch.claims])
            if batches:
                return batches
            self._queue.avoid_others()
        return []

    def _claim_chosen(self, chosen: Sequence[Sequence[PendingEvent]]) -> list[Batch]:
        """Claim the chosen events, and return them in batches.

        Each item of ``chosen`` contains the events for one worker. An event is left out if another
        manager has claimed it, or if another event of the same lease must run first.
        """
        now, expires = self._runtime.clock.now(), self._keeper.expires()
        stored = now + self._runtime.settings.claim_timeout
        ids = [event.event_id for share in chosen for event in share]
        rows = self._runtime.database.write(
            lambda session: event_queue.claim(session, self._owner, now, stored, ids)
        )
        claimed = {id_: (id_, lease_id, self._owner, attempt) for id_, lease_id, attempt in rows}

        def claim(event: PendingEvent) -> Claim:
            token = FencingToken(self._runtime.clock.elapsed, expires)
            return Claim(*claimed[event.event_id], event.project_id, event.types, token)

        shares = [[claim(e) for e in share if e.event_id in claimed] for share in chosen]
        return [Batch(share) for share in shares if share]


class WorkerPool:
    """Runs batches of claimed events in threads, and limits the effect of slow plug-in calls.

    If a call takes longer than a second, another thread *relieves* the worker: it requeues the
    events of the batch for which no plug-in was called yet, and stores the results of finished
    events. If a call takes longer than ``call_timeout``, the pool *abandons* the call: it stores
    that the attempt failed, although the call may still run.

    Each claim has a fencing token, which permits calls to change the cloud. The pool revokes the
    token of an abandoned call.
    """

    def __init__(self, runtime: Runtime, sizes: BatchSizeEstimator) -> None:
        """Begin without workers. ``sizes`` records how long plug-in calls take."""
        self._runtime, self._sizes = runtime, sizes
        self._running: list[Batch] = []
        self._abandoned: list[Batch] = []
        self._changed = threading.Condition()

    @property
    def running(self) -> list[Batch]:
        """The batches that workers run now, except the batches in ``abandoned``."""
        with self._changed:
            return list(self._running)

    @property
    def abandoned(self) -> list[Batch]:
        """The batches with an abandoned plug-in call that still runs."""
        with self._changed:
            return list(self._abandoned)

    def start(self, batch: Batch) -> None:
        """Run a batch in a new thread.

        The thread is a daemon thread, so that a hung call does not prevent the exit of this
        process. Raises RuntimeError if the process has too many threads: the claims then expire.
        """
        with self._changed:
            self._running.append(batch)
        try:
            threading.Thread(target=self._work, args=(batch,), name="event", daemon=True).start()
        except RuntimeError:
            self._forget(batch)
            raise

    def run(self, batch: Batch) -> None:
        """Run the events of a batch in this thread. Returns after their outcomes are stored."""
        claim = batch.claims[0]
        if claim.lease_id is None:
            with log_context.about(None, claim.event_id):
                finalizers.run(self._runtime, claim)
        else:
            runner.run(self._runtime, batch, self._sizes)

    def stop(self) -> None:
        """Wait up to ``shutdown_timeout`` for workers, then revoke the fencing tokens still in use.

        After that, plug-in calls that still run can no longer change the cloud.
        """
        deadline = time.monotonic() + self._runtime.settings.shutdown_timeout
        for thread in self._relieve(self._runtime.clock.elapsed()):
            thread.join(deadline - time.monotonic())
        with self._changed:
            self._changed.wait_for(lambda: not self._running, deadline - time.monotonic())
            for batch in self._running:
                for claim in batch.claims:
                    claim.fencing_token.revoke()

    def watch(self) -> None:
        """Find slow plug-in calls, and limit their effect.

        If a call takes more than a second, another thread takes over the work that waits for the
        call. If a call takes more than ``call_timeout``, the pool abandons the call.
        """
        now = self._runtime.clock.elapsed()
        self._relieve(now - _SLOW_CALL)
        self._abandon(now - self._runtime.settings.call_timeout)

    def _work(self, batch: Batch) -> None:
        try:
            with logged(_UNFINISHED):
                self.run(batch)
        finally:
            self._forget(batch)
            self._runtime.wakeup.hint()

    def _forget(self, batch: Batch) -> None:
        with self._changed:
            self._running = [other for other in self._running if other is not batch]
            self._abandoned = [other for other in self._abandoned if other is not batch]
            self._changed.notify_all()

    def _relieve(self, oldest: float) -> list[threading.Thread]:
        """Relieve workers whose plug-in call began before ``oldest``; return the new threads.

        ``oldest`` is in seconds of the monotonic clock ``clock.elapsed``. For each of these
        workers, a new thread requeues the tasks and stores the results that wait for the slow call.
        """
        slow = [batch for batch in self.running if batch.call_since_before(oldest)]
        moved = [(tasks, done) for tasks, done in map(Batch.relieve, slow) if tasks or done]
        threads = [
            threading.Thread(target=self._finish, args=work, name="relief", daemon=True)
            for work in moved
        ]
        for thread in threads:
            thread.start()
        return threads

    def _finish(self, tasks: Sequence[Task], results: Sequence[Result]) -> None:
        with logged(_UNFINISHED):
            runner.release(self._runtime.database, tasks)
            runner.settle(self._runtime, results)
        self._runtime.wakeup.hint()

    def _abandon(self, oldest: float) -> None:
        """Abandon plug-in calls that began before ``oldest``, and store that their attempts failed.

        ``oldest`` is in seconds of the monotonic clock ``clock.elapsed``. The pool revokes the
        fencing tokens of these calls, so the calls can no longer change the cloud.
        """
        with self._changed:
            calls = [(batch, batch.call_since_before(oldest)) for batch in self._running]
            late = [(batch, *call) for batch, call in calls if call is not None]
            for batch, claim, _ in late:
                claim.fencing_token.revoke()
                batch.discard(claim)
                self._running.remove(batch)
                self._abandoned.append(batch)
        for _, claim, call in late:
            with logged(f"cannot store that event {claim.event_id} failed, its claim will expire"):
                discard(self._runtime, claim, call)
        if late:
            self._runtime.wakeup.hint()


class Upkeep:
    """Periodic tasks of a manager: renew its claims, reclaim expired claims, remove old rows.

    To reclaim is to release a claim that another manager no longer renews.
    """

    def __init__(
        self, runtime: Runtime, keeper: ClaimKeeper, pool: WorkerPool, wake: Callable[[], None]
    ) -> None:
        """Prepare to renew and reclaim claims with ``keeper``.

        ``pool`` runs the events that this manager has claimed. ``wake`` is called after events were
        reclaimed, so that this manager can claim the events at once.
        """
        self._runtime = runtime
        self._keeper, self._pool, self._wake = keeper, pool, wake
        self._booking_feed = for_dialect(runtime.database.dialect)

    def renew(self) -> None:
        """Renew the claims of this manager; release claims that other managers no longer renew."""
        claims = {claim.event_id: claim for batch in self._pool.running for claim in batch.claims}
        self._keeper.renew(claims)
        if self._keeper.reclaim(claims):
            self._wake()

    def tidy(self, pause: float = 0.0) -> None:
        """Remove allocations whose cleaning time is over, and other rows that have become old.

        The other rows are idempotency keys, notifications, leases that ended long ago, records of
        deleted leases, records of past use and of confirmations that are too old for the limits,
        calendar feeds whose lease or resource is gone, and changes of bookings that are older than
        any reader. Options set how long to keep most of these rows.

        ``pause`` is how many seconds to wait after each kind of rows, so that events can run.
        """
        store, settings = self._runtime.store, self._runtime.settings
        now, write = store.clock.now(), store.database.write
        oldest_key, oldest_use = now - settings.idempotency_time, now - settings.limits.period
        removals: list[Callable[[], object]] = [
            lambda: write(lambda session: allocations.forget_cleaned(session, now)),
            lambda: write(lambda session: idempotency.forget(session, oldest_key)),
            lambda: log.forget_old(store, settings),
            lambda: remove_ended(store, settings),
            lambda: feeds.remove_stale(store),
            lambda: email_links.remove_old_confirmations(store),
            lambda: write(self._booking_feed.prune),
        ]
        if settings.limits.enabled:
            removals.append(lambda: write(lambda session: forget_past_use(session, oldest_use)))
        for remove in removals:
            remove()
            time.sleep(pause)

    def remind(self) -> None:
        """Write the reminders of subscribers that are due."""
        if reminders.remind(self._runtime.store):
            self._runtime.wakeup.hint()

    def number_booking_changes(self) -> None:
        """Assign places in the order of commits to new changes of bookings; MariaDB needs it."""
        while self._runtime.database.write(self._booking_feed.number):
            pass
