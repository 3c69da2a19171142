"""Run claimed events to their outcomes.

1. Claim events (``dispatcher``, transaction 1).
2. Lock and read their leases, and decide on each event (``begin``, transaction 2). An event that
   only notifies is finished here.
3. Call plug-ins, with no transaction open (``plugin_calls``).
4. Store the outcome: the new state of the lease and its notifications, or a failure and the time of
   the retry (``outcomes``, transaction 3). If the claim is lost, nothing is stored.

If plug-in calls are quick, each transaction processes many events.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import END, OWN_KINDS, PATIENCE, RELEASE, START
from climate.db.engine.database import is_unavailable, on_commit
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.limits import keep_past_use
from climate.db.resources import allocations
from climate.manager.claims import Claim, Seen, Task, Work, close_all, relock_leases, requeue
from climate.manager.events import outcomes, plugin_calls
from climate.manager.events.begin import begin, events_with_done
from climate.manager.events.fair_share import Batch, BatchSizeEstimator, Result
from climate.manager.events.outcomes import Success, fail
from climate.manager.leases import holds
from climate.manager.leases import ready_start as starting
from climate.manager.leases.delete import remove
from climate.manager.leases.finalizers import schedule_finalizers
from climate.manager.notifications.lease_messages import News, announce, notify_nodes_of
from climate.manager.process.runtime import Runtime
from climate.observability import log_context

LOG = logging.getLogger(__name__)

# Pause before a plug-in that was not done yet (NotYet) is called again.
_NOT_YET_PAUSE = timedelta(seconds=1)
# A batch that has called plug-ins for this long (seconds) requeues its other events, as new events
# may wait for its worker. A batch is expected to take a tenth of a second.
_LONGEST_BATCH = 1.0

T = TypeVar("T")
R = TypeVar("R")


def run(runtime: Runtime, batch: Batch, sizes: BatchSizeEstimator) -> None:
    """Run a batch of claimed events: begin them, call plug-ins one by one, store the outcomes.

    Tasks are requeued if the calls before them have taken too long. ``sizes`` records how long the
    calls took.
    """
    batch.begin(_together(runtime, batch.claims, begin))
    began, calls, took = runtime.clock.elapsed(), 0, 0.0
    while took < _LONGEST_BATCH and (task := batch.next()) is not None:
        _call(runtime, batch, task)
        calls, took = calls + 1, runtime.clock.elapsed() - began
    if calls:
        sizes.note(batch.types, took, calls)
    try:
        release(runtime, batch.take_tasks())
    finally:
        settle(runtime, batch.take_results())


def _call(runtime: Runtime, batch: Batch, task: Task) -> None:
    claim, work = task
    now = runtime.clock.now()
    if work.event.is_untried:
        runtime.metrics.tried(work.event.kind, now - work.lease.due(work.event, now))
    with log_context.about(claim.lease_id, claim.event_id):
        if work.event.kind == RELEASE:
            holds.expire(runtime, claim, work.lease)
        else:
            batch.add(Result(task, plugin_calls.call_all(runtime, claim, work)))


def settle(runtime: Runtime, results: Sequence[Result]) -> None:
    """Store results: all successes in one transaction, then each other result in its own."""
    classified = [(result, classify(runtime, result)) for result in results]
    succeeded = [
        Succeeded(*result.task, outcome)
        for result, outcome in classified
        if isinstance(outcome, Success)
    ]
    locked = _together(runtime, succeeded, commit_success) if succeeded else []
    for success in locked:  # a single success waits for the lock of its lease
        _together(runtime, [success], commit_success)
    for _, outcome in classified:
        if not isinstance(outcome, Success):
            runtime.database.write(outcome)


def release(runtime: Runtime, tasks: Sequence[Task]) -> None:
    """Requeue tasks for which no plug-in was called; another worker may claim them."""

    def work(session: Session) -> None:
        for task in tasks:
            requeue(session, task.claim)

    if tasks:
        runtime.database.write(work)


def classify(runtime: Runtime, result: Result) -> Success | Callable[[Session], None]:
    """Return a Success, or else a function that stores the retry or failure in a transaction."""
    (claim, work), outcome = result
    if not (outcome.waiting or outcome.failed or claim.fencing_token.blocked_a_change):
        return Success(outcome.details, {})
    now = runtime.clock.now()
    abandoned = _abandoned(runtime, work, {**outcome.waiting, **outcome.failed})
    if now - work.lease.tried_since(work.event, now) > PATIENCE:
        outcome.failed.update(outcome.waiting)
    # The token blocked a change to the cloud, so the work is incomplete whatever plug-ins returned.
    if claim.fencing_token.blocked_a_change:
        runtime.metrics.event(work.event.kind, "retried")
        return lambda session: requeue(session, claim)
    if outcome.failed and not abandoned:
        return lambda session: fail(runtime, session, claim, work, outcome.failed)
    if outcome.waiting and not abandoned:
        tried = {"updated_at": now} if work.event.is_untried else {}
        return lambda session: requeue(session, claim, run_at=now + _NOT_YET_PAUSE, **tried)
    return Success(outcome.details, abandoned)


def _abandoned(runtime: Runtime, work: Work, undone: Mapping[str, str]) -> Mapping[str, str]:
    """Return the stacks whose end is abandoned, each with the reason why it was not done."""
    patience = runtime.settings.stack_patience
    stacks = plugin_calls.abandoned(work, undone, runtime.clock.now(), patience)
    return {id_: undone[id_] for id_ in stacks}


def _together(
    runtime: Runtime,
    items: Sequence[T],
    work: Callable[[Runtime, Session, Sequence[T]], list[R]],
) -> list[R]:
    """Process all items in one transaction; if that fails, each item in its own transaction."""
    try:
        return runtime.database.write(lambda session: work(runtime, session, items))
    except Exception as error:
        if len(items) == 1 or is_unavailable(error):
            raise
        LOG.warning(
            "%s events failed in one transaction, each will have its own: %s", len(items), error
        )
    processed: list[R] = []
    for item in items:
        try:
            processed += _together(runtime, [item], work)
        except Exception:
            LOG.exception("an event was not finished, its claim will expire")
    return processed


class Succeeded(NamedTuple):
    """A claim whose plug-in calls succeeded, its work, and the result to store."""

    claim: Claim
    work: Work
    success: Success


def commit_success(
    runtime: Runtime, session: Session, succeeded: Sequence[Succeeded]
) -> list[Succeeded]:
    """Store successes; return those that it did not store because their lease was not locked.

    Another transaction may have locked the lease. The caller then passes each of these alone: a
    single success waits for the lock. Nothing is stored for a lost claim or a deleted lease.
    """
    now, by_event = runtime.clock.now(), {item.claim.event_id: item for item in succeeded}
    seen, unlocked = relock_leases(session, [Task(item.claim, item.work) for item in succeeded])
    close_all(session, [item.claim for item in seen], now, EventStatus.DONE)
    completed = [Completed(item, *by_event[item.claim.event_id][1:], now) for item in seen]
    leases.advance(session, [(action.before, action.after) for action in completed])
    for action in completed:
        _detach(runtime, session, action.before, action.removed, now)
    event_queue.cancel(session, [id_ for action in completed for id_ in action.needless])
    for action in completed:
        if action.kind == START and runtime.settings.provisioning is not None:
            starting.note_start(runtime, session, action.before)
        if action.kind == END:
            schedule_finalizers(runtime, session, action.before, now)
    announce(session, [action.news for action in completed], now)
    for action in completed:
        _notify_nodes(runtime, session, action, now)
        if action.kind == END and action.after.status is LeaseStatus.DELETING:
            remove(session, leases.get(session, action.after.id), now, runtime.settings)
    on_commit(session, lambda: _count(runtime, completed))
    return [by_event[claim.event_id] for claim in unlocked] if len(succeeded) > 1 else []


class Completed:
    """An action that succeeded, its lease before and after, and what to store with the lease."""

    def __init__(self, seen: Seen, work: Work, success: Success, now: datetime) -> None:
        """Compute the lease after the action, the events to remove, and the notification."""
        self.kind, self.work, self.before = work.event.kind, work, seen.lease
        self.late = now - work.lease.due(work.event, now)
        self.needless = _needless(seen.lease, now) if self.kind == END else []
        self.removed = [id_ for id_ in success.details if work.is_leaving(id_)]
        remaining = [event for event in seen.lease.events if event.id not in self.needless]
        events = events_with_done(remaining, seen.event, now)
        self.after = outcomes.after(work, seen.lease, events, success, now)
        error = {"error": "; ".join(success.abandoned.values())} if success.abandoned else {}
        self.news = News(self.kind, self.after, error)


def _needless(lease: Lease, now: datetime) -> list[str]:
    """Return the open events that a lease does not need after its end.

    These are retries, snapshots and reminders. Users' own events stay if they are due.
    """
    return [
        event.id
        for event in lease.events
        if event.status is EventStatus.UNDONE and (event.kind in OWN_KINDS or event.due_at > now)
    ]


def _notify_nodes(runtime: Runtime, session: Session, action: Completed, now: datetime) -> None:
    settings, granted = runtime.settings.provisioning, action.work.resources
    notify_nodes_of(settings, session, action.kind, action.before, granted, now)


def _count(runtime: Runtime, completed: Sequence[Completed]) -> None:
    for action in completed:
        runtime.metrics.done(action.kind, action.late)


def _detach(
    runtime: Runtime, session: Session, lease: Lease, reservation_ids: Sequence[str], now: datetime
) -> None:
    """Free the resources of removed reservations after cleaning time; past use still counts."""
    if reservation_ids:
        if runtime.settings.limits.enabled:
            keep_past_use(session, lease, reservation_ids, now)
        allocations.detach(session, reservation_ids, now + runtime.settings.cleaning_time)
