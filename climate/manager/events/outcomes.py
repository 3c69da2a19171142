"""Outcomes of actions: compute and store the lease after a success, and store failures.

An action is an event that calls plug-ins. climate retries a failed action after growing pauses.
When the first attempt and ``event_max_retries`` retries have failed, climate sends one notification
of the failure. What happens then depends on the action:

- A start or end: the lease has the status ERROR. climate retries the action about once a minute: a
  start until it succeeds or the lease ends, an end until it succeeds.
- An update: the lease is marked ``degraded``, and climate does not retry the event.
- A before-end action: climate does not retry the event.

The event's row stores the progress: ``status``, ``run_at``, ``attempt``, ``last_error``.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from climate.core.backoff import pause_before
from climate.core.lease import on_start
from climate.core.lease.lifecycle import (
    LEASE,
    RESERVATION,
    EventStatus,
    LeaseStatus,
    ReservationStatus,
    step,
)
from climate.core.lease.model import (
    HANDED_OVER,
    LEAVING,
    NOT_RESERVED,
    RUN_STATE,
    SHARES,
    UNAPPLIED,
    Event,
    Lease,
    Reservation,
)
from climate.core.lease.schedule import END, OWN_KINDS, RELENTLESS, START, UPDATE
from climate.core.record import replace
from climate.core.settings import Settings
from climate.db.engine.database import on_commit
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.limits import keep_past_use
from climate.db.resources import allocations
from climate.manager.claims import (
    Call,
    Claim,
    Result,
    Seen,
    Task,
    Work,
    close,
    close_all,
    lease_of,
    relock_leases,
)
from climate.manager.events.begin import events_with_done
from climate.manager.leases import ready_start as starting
from climate.manager.leases.delete import remove
from climate.manager.leases.finalizers import schedule_finalizers
from climate.manager.notifications.lease_messages import (
    News,
    announce,
    announce_run_states,
    notify_nodes_of,
)
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import cleanings, creations
from climate.observability.metrics import Metrics

LOG = logging.getLogger(__name__)

# Characters of the error that are stored. A plug-in's error may contain a whole response.
_LONGEST_ERROR = 4000
_LEASE_AFTER = {START: LeaseStatus.ACTIVE, END: LeaseStatus.TERMINATED}


class Success(NamedTuple):
    """A task whose action succeeded, and the results of its plug-in calls.

    The keys of both mappings are reservation ids. ``details`` contains the details that plug-ins
    returned. ``abandoned`` is for stacks (groups of reservations): if climate gives up ending a
    stack, and so leaves the stack in the cloud, ``abandoned`` contains the reason.
    """

    task: Task
    details: Mapping[str, Mapping[str, Any]]
    abandoned: Mapping[str, str]


def commit_success(
    runtime: Runtime, session: Session, successes: Sequence[Success]
) -> list[Success]:
    """Store the outcomes of several successful actions in one transaction.

    Returns the successes that are not stored because their lease could not be locked. The caller
    must pass each of these again, alone: for a single success, the function waits for the lock, and
    returns nothing. A success whose claim this manager has lost is neither stored nor returned.
    """
    now, settings = runtime.clock.now(), runtime.settings
    by_event = {success.task.claim.event_id: success for success in successes}
    seen, unlocked = relock_leases(session, [success.task for success in successes])
    close_all(session, [item.claim for item in seen], now, EventStatus.DONE)
    completed = [_Completed(item, by_event[item.claim.event_id], now) for item in seen]
    leases.advance(session, [(action.before, action.after) for action in completed])
    for action in completed:
        _detach(settings, session, action.before, action.removed, now)
    event_queue.cancel(session, [id_ for action in completed for id_ in action.needless])
    for action in completed:
        if action.kind == START and settings.provisioning is not None:
            starting.note_start(runtime, session, action.before)
        if action.kind == START and creations.has_any(runtime, action.before):
            creations.note_start(runtime, session, action.before, action.work.event, now)
        if action.kind == END:
            schedule_finalizers(runtime.enforcer, session, action.before, now)
            cleanings.note_end(runtime, session, action.before, action.work.event)
    announce(session, [action.news for action in completed], now)
    announce_run_states(session, [(action.before, action.after) for action in completed], now)
    for action in completed:
        granted = action.work.resources
        notify_nodes_of(settings.provisioning, session, action.kind, action.before, granted, now)
        if action.kind == END and action.after.status is LeaseStatus.DELETING:
            remove(session, leases.get(session, action.after.id), now, settings)
    on_commit(session, lambda: _count(runtime.metrics, completed))
    return [by_event[claim.event_id] for claim in unlocked] if len(successes) > 1 else []


class _Completed:
    """A successful action: the lease before and after it, and the other changes to store."""

    def __init__(self, seen: Seen, success: Success, now: datetime) -> None:
        self.work, self.before = success.task.work, seen.lease
        self.kind = self.work.event.kind
        self.late = now - self.work.lease.due(self.work.event, now)
        self.needless = _needless(seen.lease, now) if self.kind == END else []
        self.removed = [id_ for id_ in success.details if self.work.is_leaving(id_)]
        remaining = [event for event in seen.lease.events if event.id not in self.needless]
        self.after = after(success, seen.lease, events_with_done(remaining, seen.event, now), now)
        error = {"error": "; ".join(success.abandoned.values())} if success.abandoned else {}
        self.news = News(self.kind, self.after, error)


def _needless(lease: Lease, now: datetime) -> list[str]:
    """Return the ids of the UNDONE events that a lease no longer needs after its end.

    Events of climate's own kinds (such as actions and reminders) are never needed then. Events that
    the user defined are still needed if they are due already.
    """
    return [
        event.id
        for event in lease.events
        if event.status is EventStatus.UNDONE and (event.kind in OWN_KINDS or event.due_at > now)
    ]


def _count(metrics: Metrics, completed: Sequence[_Completed]) -> None:
    for action in completed:
        metrics.done(action.kind, action.late)


def _detach(
    settings: Settings,
    session: Session,
    lease: Lease,
    reservation_ids: Sequence[str],
    now: datetime,
) -> None:
    """Let the resources of removed reservations become free after the cleaning time.

    If limits are enabled, also record what these reservations have used until now.
    """
    if reservation_ids:
        if settings.limits.enabled:
            keep_past_use(session, lease, reservation_ids, now)
        busy_until = lease.busy_until(now, settings.cleaning_time)
        allocations.detach(session, reservation_ids, busy_until)


def after(success: Success, lease: Lease, events: tuple[Event, ...], now: datetime) -> Lease:
    """Return ``lease`` with the changes of a successful action, and with the events ``events``.

    Uses no database. If the lease is DELETING, it keeps this status.
    """
    kind, status, degraded = success.task.work.event.kind, lease.status, lease.degraded
    reservations = tuple(
        _reservation_after(success, reservation, now) for reservation in lease.reservations
    )
    if kind in {START, UPDATE}:
        degraded = any(
            each.missing_resources or NOT_RESERVED in each.details for each in reservations
        )
    if status is not LeaseStatus.DELETING:
        status = step(LEASE, status, _LEASE_AFTER.get(kind, status))
    start = replace(lease.start, started_at=now) if kind == START else lease.start
    return replace(
        lease,
        status=status,
        degraded=degraded,
        reservations=reservations,
        events=events,
        start=start,
        updated_at=now,
    )


def _reservation_after(success: Success, reservation: Reservation, now: datetime) -> Reservation:
    work = success.task.work
    if reservation.id in success.details:
        fields = _handed_over(work, reservation, success.details[reservation.id])
        wanted = _status_after(work, reservation)
    elif reservation.id in success.abandoned:
        # Its resources were reclaimed, but the stack still exists in the cloud.
        fields = {"details": {**reservation.details, "error": success.abandoned[reservation.id]}}
        wanted = ReservationStatus.ERROR
    else:
        return reservation
    status = step(RESERVATION, reservation.status, wanted)
    return replace(reservation, **fields, status=status, updated_at=now)


def _handed_over(
    work: Work, reservation: Reservation, details: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the new values of a reservation's fields ``details`` and ``missing_resources``.

    ``details`` is what the plug-in returned. If the action gave the user no resources (for example,
    an end), the result contains only ``details``, unchanged. Otherwise, the result contains:

    - ``details``, with a list of the resources that the user has now. A resource that the user had
      before stays in the list, even if it is not reservable now.
    - ``missing_resources``: whether a resource failed and has no replacement.

    If a user removed the reservation while the action gave it resources, the stored details contain
    the mark LEAVING. The new details keep this mark, so that a later event reclaims the resources.
    """
    if work.event.kind not in {START, UPDATE} or work.is_leaving(reservation.id):
        return {"details": dict(details)}
    begun = next(each for each in work.lease.reservations if each.id == reservation.id)
    marks: dict[str, Any] = {LEAVING: True} if LEAVING in reservation.details else {}
    if NOT_RESERVED in reservation.details:
        marks[NOT_RESERVED] = reservation.details[NOT_RESERVED]
    if UNAPPLIED in reservation.details and begun.params != reservation.params:
        marks[UNAPPLIED] = True  # the parameters changed while the action ran
    if state := on_start.state_after(begun, reservation):
        marks[RUN_STATE] = state.value
    before = set(reservation.details.get(HANDED_OVER, ()))
    granted = work.resources[reservation.id]
    present = [item.id for item in granted if item.reservable or item.id in before]
    was_missing = reservation.missing_resources and not all(item.reservable for item in granted)
    new_shares = {
        str(item.id): dict(item.amounts) for item in granted if item.amounts and item.reservable
    }
    shares = {**reservation.details.get(SHARES, {}), **new_shares}
    if shares:
        marks[SHARES] = {id_: shares[id_] for id_ in map(str, present) if id_ in shares}
    return {
        "details": {**details, **marks, HANDED_OVER: present},
        "missing_resources": was_missing or len(present) < len(granted),
    }


def _status_after(work: Work, reservation: Reservation) -> ReservationStatus:
    kind = work.event.kind
    if kind == END or work.is_leaving(reservation.id):
        return ReservationStatus.DELETED
    is_new = kind == UPDATE and reservation.status is ReservationStatus.PENDING
    return ReservationStatus.ACTIVE if kind == START or is_new else reservation.status


def fail(
    runtime: Runtime, session: Session, claim: Claim, work: Work, failed: Mapping[str, str]
) -> None:
    """Store that an attempt of an action failed, and when to retry the action.

    ``failed`` contains the errors by reservation id. If all configured retries have failed, the
    function also shows the failure in the lease, and writes a notification. It stores nothing if
    this manager has lost the claim.
    """
    now = runtime.clock.now()
    lease = lease_of(session, claim)
    if lease is None:
        return
    kind, retries = work.event.kind, runtime.settings.max_retries
    unwanted = lease.status is LeaseStatus.DELETING and kind != END
    exhausted = unwanted or claim.attempt > retries
    is_last = unwanted or (exhausted and kind not in RELENTLESS)
    status = EventStatus.ERROR if is_last else EventStatus.UNDONE
    run_at = now + timedelta(seconds=pause_before(claim.attempt, retries, runtime.rng))
    reasons = (f"reservation {id_}: {reason}" for id_, reason in failed.items())
    error = "; ".join(reasons)[:_LONGEST_ERROR]
    if not close(session, claim, now, status, last_error=error, run_at=run_at):
        return
    outcome = "failed" if is_last else "retried"
    on_commit(session, lambda: runtime.metrics.event(kind, outcome))
    if exhausted:
        _show(session, lease, kind, failed, now)
        if not _is_reported(lease, claim, failed, retries):
            news = News(kind, leases.get(session, lease.id), {"error": error})
            announce(session, [news], now)


def discard(runtime: Runtime, claim: Claim, call: Call) -> None:
    """Store that an attempt failed because its plug-in call exceeded ``call_timeout``.

    The call may still run, but it cannot change the cloud, because the caller has revoked its
    fencing token.
    """
    seconds = runtime.settings.call_timeout
    failed = {
        call.reservation_id: f"the call did not end within {seconds:.0f} s ([manager] call_timeout)"
    }
    LOG.error("event %s of lease %s failed: %s", call.work.event.kind, claim.lease_id, failed)
    if call.work.is_ahead:
        result = Result(Task(claim, call.work), failed=failed)
        runtime.database.write(lambda session: creations.note_ahead(runtime, session, result))
    else:
        runtime.database.write(lambda session: fail(runtime, session, claim, call.work, failed))


def _is_reported(lease: Lease, claim: Claim, failed: Mapping[str, str], retries: int) -> bool:
    """Return whether a notification has already reported that the action fails.

    A notification was sent if both conditions are met:

    - The first attempt and ``retries`` retries had already failed before this attempt.
    - One of the ``failed`` reservations (errors by reservation id) has the status ERROR already.
    """
    return claim.attempt > retries + 1 and any(
        reservation.id in failed and reservation.status is ReservationStatus.ERROR
        for reservation in lease.reservations
    )


def _show(
    session: Session, lease: Lease, kind: str, failed: Mapping[str, str], now: datetime
) -> None:
    """Store the failure of an action in the lease.

    ``kind`` is the type of the action, and ``failed`` contains the errors by reservation id. If a
    start or end failed, the reservations in ``failed`` and the lease get the status ERROR, but a
    lease that is DELETING keeps that status. If an update failed, the lease is marked ``degraded``.
    """
    if kind == UPDATE:
        leases.update(session, replace(lease, degraded=True, updated_at=now))
    elif kind in RELENTLESS:
        for reservation in lease.reservations:
            if reservation.id in failed and reservation.status is not ReservationStatus.ERROR:
                status = step(RESERVATION, reservation.status, ReservationStatus.ERROR)
                leases.set_reservation(session, reservation.id, now, status=status.value)
        if lease.status not in {LeaseStatus.DELETING, LeaseStatus.ERROR}:
            leases.set_status(session, lease.id, step(LEASE, lease.status, LeaseStatus.ERROR), now)
