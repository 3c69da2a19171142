"""Run claimed events to their outcomes.

1. The dispatcher claims events (transaction 1).
2. ``begin`` locks and reads their leases, and decides on each event (transaction 2). If an event
   only notifies, ``begin`` also finishes it.
3. ``runner`` calls plug-ins, with no transaction open.
4. ``outcomes`` stores the new state of the lease and its notifications, or a failure and the time
   of the retry (transaction 3). If the claim is lost, nothing is stored.

If plug-in calls are quick, each transaction processes many events.

A stack is a reservation whose parts are other reservations, its members. The members must exist
before the stack, and are removed after it. So the start of a stack waits for the starts of its
members. The ends of the members wait for the end of the stack, but not longer than
``stack_patience``. After that, the members end first, and the manager tries once more to end the
stack. If that fails, climate abandons the stack: an operator must remove it.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from climate.core.lease import on_start
from climate.core.lease.model import NOT_SHOWN, Lease, Reservation
from climate.core.lease.on_start import Action
from climate.core.lease.schedule import BEFORE_END, END, PATIENCE, RELEASE, START
from climate.core.record import replace
from climate.db.engine.database import Database, is_unavailable
from climate.manager.claims import Batch, Result, Task, Work, requeue, requeue_all
from climate.manager.events.begin import begin
from climate.manager.events.outcomes import Success, commit_success, fail
from climate.manager.events.queue import BatchSizeEstimator
from climate.manager.leases import holds
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import creations
from climate.observability import log_context
from climate.plugins.base import NotYet, ResourcePlugin
from climate.plugins.fencing import Fenced

LOG = logging.getLogger(__name__)

# Pause before a plug-in that was not done yet (NotYet) is called again.
_NOT_YET_PAUSE = timedelta(seconds=1)
# A batch that has called plug-ins for this long (seconds) requeues its other events, as new events
# may wait for its worker. A batch is expected to take a tenth of a second.
_LONGEST_BATCH = 1.0

T = TypeVar("T")
R = TypeVar("R")


def run(runtime: Runtime, batch: Batch, sizes: BatchSizeEstimator) -> None:
    """Run a batch of claimed events: begin all, call plug-ins one by one, store the outcomes.

    If the first calls take too long, the function requeues the events for which no plug-in was
    called. ``sizes`` records how long the calls took.
    """
    batch.begin(_together(runtime, batch.claims, begin))
    began, calls, took = runtime.clock.elapsed(), 0, 0.0
    while took < _LONGEST_BATCH and (task := batch.next()) is not None:
        _run_task(runtime, batch, task)
        calls, took = calls + 1, runtime.clock.elapsed() - began
    if calls:
        sizes.note(batch.types, took, calls)
    try:
        release(runtime.database, batch.take_tasks())
    finally:
        settle(runtime, batch.take_results())


def _run_task(runtime: Runtime, batch: Batch, task: Task) -> None:
    claim, work = task
    now = runtime.clock.now()
    if work.event.is_untried and not work.is_ahead:
        runtime.metrics.tried(work.event.kind, now - work.lease.due(work.event, now))
    with log_context.about(claim.lease_id, claim.event_id):
        if work.event.kind == RELEASE:
            holds.expire(runtime, claim, work.lease)
        else:
            batch.add(_call_plugins(runtime, task, now))


def _call_plugins(runtime: Runtime, task: Task, now: datetime) -> Result:
    """Call the plug-in for each reservation of a task in turn, and return all results.

    The loop stops if the claim's fencing token has expired. No transaction is open.
    """
    (claim, work), kind = task, task.work.event.kind
    result, patience = Result(task), runtime.settings.stack_patience
    skipped = _not_created(work.lease) if work.is_ahead else set()
    for reservation in _ordered(work, now, patience):
        if reservation.id in skipped:
            continue
        id_, type_ = reservation.id, reservation.resource_type
        if reason := _blocked_by(work, reservation, result.undone, now, patience):
            result.waiting[id_] = reason
            continue
        try:
            with claim.calling(work, reservation, runtime.clock.elapsed()):
                lease, plugin = _with_details(work, result.details), runtime.catalog.plugins[type_]
                with runtime.metrics.call(type_, kind, NotYet):
                    result.details[id_] = _call(plugin, work, lease, reservation)
        except NotYet as reason:
            result.waiting[id_] = str(reason)
        except Fenced as fenced:
            LOG.warning("stopped event %s of lease %s: %s", kind, work.lease.id, fenced)
            break
        except Exception as error:  # noqa: BLE001 - whatever a plug-in raises is a failed attempt
            result.failed[id_] = f"{type(error).__name__}: {error}"
            _log(work, error, is_repeated=claim.attempt > runtime.settings.max_retries + 1)
    return result


def _not_created(lease: Lease) -> set[str]:
    """Return the ids of the reservations that start only at the start date of the lease."""
    return {each.id for each in lease.reservations} - on_start.needed(lease)


def _log(work: Work, error: Exception, *, is_repeated: bool) -> None:
    """Log the error of a plug-in call.

    ``is_repeated`` states that many attempts have failed before. In this case, the log message has
    no traceback.
    """
    text = "event %s of lease %s failed: %s"
    LOG.error(text, work.event.kind, work.lease.id, error, exc_info=None if is_repeated else error)


def _call(
    plugin: ResourcePlugin, work: Work, lease: Lease, reservation: Reservation
) -> Mapping[str, Any]:
    granted, action = work.resources[reservation.id], on_start.action_for(work.lease, reservation)
    if _ends(work, reservation):
        plugin.end(lease, reservation, granted)
        return reservation.details
    if work.event.kind == BEFORE_END:
        if action is not Action.NONE:
            plugin.before_end(lease, reservation, granted)
        return reservation.details
    if action is Action.NONE:
        return {key: value for key, value in reservation.details.items() if key not in NOT_SHOWN}
    if action is Action.STOP:
        return plugin.stop(lease, reservation, granted)
    return plugin.start(lease, reservation, granted)


def _ordered(work: Work, now: datetime, patience: timedelta) -> list[Reservation]:
    """Return the reservations in the order in which to call plug-ins for them.

    A stack starts after its members, and ends or stops before them. But if the end of the lease has
    failed for more than ``patience``, the stack ends after its members.
    """
    if len(work.reservations) == 1:
        return work.reservations
    late = _is_end_late(work, now, patience)

    def position(reservation: Reservation) -> int:
        ends, is_stack = _reclaims(work, reservation), reservation.id in _stacks(work)
        if ends and late:
            return 3 if is_stack else 2
        if ends:
            return 0 if is_stack else 3
        return 2 if is_stack else 1

    return sorted(work.reservations, key=position)


def _blocked_by(
    work: Work,
    reservation: Reservation,
    undone: Collection[str],
    now: datetime,
    patience: timedelta,
) -> str | None:
    """Return why a reservation must wait for its stack or its members; None if it need not wait.

    ``undone`` contains the ids of the reservations whose plug-in call failed or must wait. If the
    end of the lease has failed for more than ``patience``, members no longer wait for their stack.
    """
    if not _reclaims(work, reservation):
        members = [member for member in work.reservations if member.stack_id == reservation.id]
        missing = [m.id for m in members if m.id in undone and not _reclaims(work, m)]
        return f"{', '.join(missing)} must be there first" if missing else None
    waits = reservation.stack_id in undone and not _is_end_late(work, now, patience)
    return f"{reservation.stack_id} must be over first" if waits else None


def _with_details(work: Work, details: Mapping[str, Mapping[str, Any]]) -> Lease:
    """Return the lease of ``work`` with new details in its reservations.

    ``details`` contains the new details by reservation id. Other reservations keep their details.
    """
    if not details:
        return work.lease
    old = work.lease.reservations
    new = tuple(replace(r, details=details.get(r.id, r.details)) for r in old)
    return replace(work.lease, reservations=new)


def _is_end_late(work: Work, now: datetime, patience: timedelta) -> bool:
    """Return whether the event is an ``end`` that has been failing for more than ``patience``.

    If there was one attempt, the time is measured from the end of this attempt. If there were
    several attempts, it is measured from the time at which the event could first run.
    """
    return work.event.kind == END and now - work.lease.tried_since(work.event, now) > patience


def _ends(work: Work, reservation: Reservation) -> bool:
    return work.event.kind == END or work.is_leaving(reservation.id)


def _reclaims(work: Work, reservation: Reservation) -> bool:
    """Return whether the event deletes what climate created for the reservation."""
    is_stop = on_start.action_for(work.lease, reservation) is Action.STOP
    return _ends(work, reservation) or is_stop


def _stacks(work: Work) -> set[str]:
    """Return the ids of reservations that are stacks.

    A reservation is a stack if it has the type ``virtual:stack``, or if another reservation names
    it as its stack.
    """
    stacks = {r.id for r in work.reservations if r.resource_type == "virtual:stack"}
    return stacks | {r.stack_id for r in work.reservations if r.stack_id is not None}


def settle(runtime: Runtime, results: Sequence[Result]) -> None:
    """Store the results of tasks: all successes in one transaction, every other result alone."""
    outcomes = [_classify(runtime, result) for result in results]
    successes = [outcome for outcome in outcomes if isinstance(outcome, Success)]
    locked = _together(runtime, successes, commit_success) if successes else []
    for success in locked:  # a single success waits for the lock of its lease
        _together(runtime, [success], commit_success)
    for outcome in outcomes:
        if not isinstance(outcome, Success):
            runtime.database.write(outcome)


def release(database: Database, tasks: Sequence[Task]) -> None:
    """Requeue tasks that have called no plug-in, so that any worker can claim their events."""
    if tasks:
        claims = [task.claim for task in tasks]
        database.write(lambda session: requeue_all(session, claims))


def _classify(runtime: Runtime, result: Result) -> Success | Callable[[Session], object]:
    """Return the outcome of a task's calls: a Success, or a function that stores another outcome.

    The caller calls the returned function with a session, in a transaction. The function stores
    that the attempt failed, or requeues the event.
    """
    (claim, work), undone = result.task, result.undone
    # The token blocked a change to the cloud, so the work is incomplete whatever plug-ins returned.
    if claim.fencing_token.blocked_a_change:
        runtime.metrics.event(work.event.kind, "retried")
        return lambda session: requeue(session, claim)
    if work.is_ahead:
        return lambda session: creations.note_ahead(runtime, session, result)
    if not undone or _is_abandoned(runtime, work, undone):
        return Success(result.task, result.details, undone)
    now = runtime.clock.now()
    has_patience = now - work.lease.tried_since(work.event, now) <= PATIENCE
    if failed := result.failed if has_patience else undone:
        return lambda session: fail(runtime, session, claim, work, failed)
    again = {"run_at": now + _NOT_YET_PAUSE}
    if work.event.is_untried:
        again["updated_at"] = now
    if work.event.kind == START and creations.has_any(runtime, work.lease):
        return lambda session: creations.note_attempt(runtime, session, result, **again)
    return lambda session: requeue(session, claim, **again)


def _is_abandoned(runtime: Runtime, work: Work, undone: Collection[str]) -> bool:
    """Return whether climate gives up ending the reservations ``undone``, which are stacks."""
    is_late = _is_end_late(work, runtime.clock.now(), runtime.settings.stack_patience)
    return is_late and _stacks(work).issuperset(undone)


def _together(
    runtime: Runtime, items: Sequence[T], work: Callable[[Runtime, Session, Sequence[T]], list[R]]
) -> list[R]:
    """Call ``work`` for all items in one transaction, and return its results.

    If this transaction fails, the function calls ``work`` for each item alone, each time in a new
    transaction. If that fails for an item, the function logs the error and leaves the item out of
    the results. Raises the error if there is only one item, or if the database is unavailable.
    """
    try:
        return runtime.database.write(lambda session: work(runtime, session, items))
    except Exception as error:
        if len(items) == 1 or is_unavailable(error):
            raise
        LOG.warning(
            "cannot store %s events in one transaction, storing each alone: %s", len(items), error
        )
    processed: list[R] = []
    for item in items:
        try:
            processed += _together(runtime, [item], work)
        except Exception:
            LOG.exception(
                "cannot store the result of an event, a manager repeats it when its claim expires"
            )
    return processed
