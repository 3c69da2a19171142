"""Begin events: lock the leases of claimed events, decide on each event, and store the decision.

A lease may have changed since its event was planned, and even since a manager claimed the event. So
this module locks each lease and reads it again. The same transaction also finishes events that only
notify, such as reminders. An action is an event that changes the cloud through plug-ins: start,
update, before-end or end.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import chain

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire
from climate.core.lease.lateness import Late, is_overtaken, late_events
from climate.core.lease.lifecycle import LEASE, EventStatus, LeaseStatus, ReservationStatus, step
from climate.core.lease.model import Event, Lease
from climate.core.lease.on_start import is_ahead
from climate.core.lease.schedule import (
    ACTIONS,
    BEFORE_END,
    BEFORE_END_REMINDER,
    BEFORE_START,
    END,
    EXPIRE,
    RELEASE,
    START,
    UPDATE,
)
from climate.core.notifications import event_type
from climate.core.record import replace
from climate.db.engine.database import on_commit
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.manager.claims import Claim, Seen, Task, Work, close_all, lock_leases, requeue_all
from climate.manager.leases import holds
from climate.manager.leases import ready_start as starting
from climate.manager.notifications.lease_messages import News, announce, resources_of
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import cleanings, creations
from climate.manager.wait_list.expiry import expire_waits
from climate.observability.metrics import Metrics

_STARTABLE = {LeaseStatus.PENDING, LeaseStatus.STARTING, LeaseStatus.ERROR}
# Leases whose users are notified that events are late: those that still start, run or end.
_NOT_OVER = _STARTABLE | {LeaseStatus.ACTIVE}
# Pause before the next attempt for a lease that another transaction has locked. Such transactions
# usually last some milliseconds.
_LOCKED_PAUSE = timedelta(milliseconds=50)


class Decision(Enum):
    """What a manager does with an event that it has claimed.

    - EXECUTE: run the action; this calls plug-ins.
    - NOTIFY: send a notification.
    - RELEASE: free the resources of a new lease that was not confirmed in time.
    - EXPIRE: remove a lease from the wait list, because its owner does not want to wait longer.
    - DEFER: requeue the action, because a manager has claimed another action of the same lease.
    - TOO_LATE: store the start as failed, because the lease is over or no longer waits to start.
    - SKIP: store the action as done, because the lease no longer needs it.
    """

    EXECUTE = auto()
    NOTIFY = auto()
    RELEASE = auto()
    EXPIRE = auto()
    DEFER = auto()
    TOO_LATE = auto()
    SKIP = auto()


def begin(runtime: Runtime, session: Session, claims: Sequence[Claim]) -> list[Task]:
    """Decide on each claimed event; return the tasks for the events that need plug-in calls.

    The transaction finishes or requeues all other events. If this manager has lost the claim of an
    event, the transaction stores nothing for this event.
    """
    now = runtime.clock.now()
    seen, unlocked = lock_leases(session, claims, wait=len(claims) == 1)
    present = (_if_due(runtime, session, item, now) for item in seen)
    seen = [item for item in present if item is not None]
    decided: dict[Decision, list[Seen]] = defaultdict(list)
    for item in seen:
        decided[decide(item.lease, item.event, now)].append(item)
    _notify_if_late(runtime.settings.late_after, session, seen, now)
    _notify(session, decided[Decision.NOTIFY], now)
    expire_waits(runtime, session, [item.lease for item in decided[Decision.EXPIRE]], now)
    requeue_all(session, unlocked, run_at=now + _LOCKED_PAUSE)
    requeue_all(session, [item.claim for item in decided[Decision.DEFER]])
    close_all(session, [item.claim for item in decided[Decision.TOO_LATE]], now, EventStatus.ERROR)
    close_all(session, [item.claim for item in decided[Decision.SKIP]], now, EventStatus.DONE)
    on_commit(session, lambda: _count(runtime.metrics, seen, decided[Decision.NOTIFY], now))
    released = [
        Task(item.claim, holds.begin_release(session, item.lease, item.event))
        for item in decided[Decision.RELEASE]
    ]
    return released + _execute(runtime, session, decided[Decision.EXECUTE], now)


def _count(metrics: Metrics, seen: Sequence[Seen], notified: Sequence[Seen], now: datetime) -> None:
    for item in seen:
        metrics.event(item.event.kind, "claimed")
    for _, lease, event in notified:
        if event.is_untried:
            metrics.tried(event.kind, now - lease.due(event, now))
        metrics.event(event.kind, "done")


def _execute(runtime: Runtime, session: Session, seen: Sequence[Seen], now: datetime) -> list[Task]:
    """Store the status that each lease has while its action runs; return one task per event."""
    if not seen:
        return []
    begun = {item.lease.id: item.lease for item in seen}
    for _, lease, event in seen:
        if (status := _status_while(lease, event, now)) is not lease.status:
            begun[lease.id] = replace(lease, status=status, updated_at=now)
    leases.advance(session, [(item.lease, begun[item.lease.id]) for item in seen])
    ending = [item.lease for item in seen if item.event.kind == END]
    if unstarted := [lease.id for lease in ending if _is_to_start(lease)]:
        event_queue.discard(session, unstarted, START, now)
        for id_ in unstarted:  # their events changed since they were read
            del begun[id_]
    for lease in ending:
        starting.note_end(runtime, session, lease, now)
    deleted = ReservationStatus.DELETED
    live = {
        lease.id: [r.id for r in lease.reservations if r.status is not deleted]
        for _, lease, _ in seen
    }
    held = resources_of(session, {id_ for ids in live.values() for id_ in ids})
    ended = [(lease, chain.from_iterable(held[id_] for id_ in live[lease.id])) for lease in ending]
    cleanings.begin(runtime, session, ended, now)
    tasks = []
    for claim, lease, event in seen:
        granted = {id_: held[id_] for id_ in live[lease.id]}
        ahead = is_ahead(lease, event.kind, now)
        work = Work(event, lease, granted, begun.get(lease.id), ahead)
        tasks.append(Task(claim, work))
    return tasks


def _is_to_start(lease: Lease) -> bool:
    return any(e.kind == START and e.status is EventStatus.UNDONE for e in lease.events)


def _if_due(runtime: Runtime, session: Session, seen: Seen, now: datetime) -> Seen | None:
    """Return ``seen``, or None if its event is a start that must still wait.

    A start may wait until the lead before the start of its lease, or for the lease's hosts.
    """
    if seen.event.kind != START:
        return seen
    creates = creations.has_any(runtime, seen.lease)
    if creates and not creations.if_due(runtime, session, seen, now):
        return None
    if _may_wait(seen, now) and not is_ahead(seen.lease, START, now):
        ready = starting.if_ready(runtime.settings, session, seen, now)
        if ready is None:
            return None
        seen = ready
    return creations.begin(session, seen, now) if creates else seen


def _may_wait(seen: Seen, now: datetime) -> bool:
    """Return whether the event is a start that may still have to wait for the lease's hosts."""
    # A claimed event is due, even if the clock was set back since.
    now = max(now, seen.lease.window.start)
    return seen.event.kind == START and seen.lease.waits_for_hosts(now)


def decide(lease: Lease, event: Event, now: datetime) -> Decision:
    """Return what to do with a claimed event of this lease. Uses no database."""
    if event.kind == RELEASE:
        return Decision.RELEASE
    if event.kind == EXPIRE:
        return Decision.EXPIRE
    if event.kind not in ACTIONS:
        return Decision.NOTIFY
    if _is_other_claimed(lease, event):
        return Decision.DEFER
    if _is_wanted(lease, event, now):
        return Decision.EXECUTE
    # A start that comes too late has failed; nothing is lost if another action is skipped.
    return Decision.TOO_LATE if event.kind == START else Decision.SKIP


def _is_other_claimed(lease: Lease, event: Event) -> bool:
    """Return whether a manager has claimed another action of the same lease as well.

    This happens only if two managers claim events of the lease at the very moment when the lease's
    end becomes due. The lease is locked while this function runs. If the result is True, the
    manager requeues ``event``. So at most one of the two actions runs.
    """
    return any(
        other.status is EventStatus.IN_PROGRESS and other.kind in ACTIONS and other.id != event.id
        for other in lease.events
    )


def _is_wanted(lease: Lease, event: Event, now: datetime) -> bool:
    """Return whether the lease, in its present status, still needs this action."""
    if event.kind == START:
        return lease.status in _STARTABLE and now < lease.window.end
    if event.kind in {UPDATE, BEFORE_END}:
        # After the end date, the end event would reclaim at once what an update hands over.
        in_time = event.kind == BEFORE_END or now < lease.window.end
        return lease.status is LeaseStatus.ACTIVE and in_time
    return lease.status is not LeaseStatus.TERMINATED


def _status_while(lease: Lease, event: Event, now: datetime) -> LeaseStatus:
    """Return the status that the lease has while the action ``event`` runs."""
    status: LeaseStatus = lease.status
    if is_ahead(lease, event.kind, now):
        return status
    # The retry of a start: the lease shows ERROR until it succeeds.
    is_retry = event.kind == START and status is LeaseStatus.ERROR
    if event.kind not in {START, END} or status is LeaseStatus.DELETING or is_retry:
        return status
    if event.kind == START or status is LeaseStatus.PENDING:
        status = step(LEASE, status, LeaseStatus.STARTING)
    if event.kind == START:
        return status
    if status is LeaseStatus.STARTING:  # its start never succeeded
        status = step(LEASE, status, LeaseStatus.ERROR)
    return step(LEASE, status, LeaseStatus.TERMINATING)


def _notify(session: Session, seen: Sequence[Seen], now: datetime) -> None:
    """Finish events that only notify (reminders, users' own events), and write notifications."""
    if not seen:
        return
    close_all(session, [item.claim for item in seen], now, EventStatus.DONE)
    leases.count_up(session, {item.lease.id for item in seen})
    announce(session, [news for item in seen for news in _news(item.lease, item.event, now)], now)


def _news(lease: Lease, event: Event, now: datetime) -> Iterable[News]:
    """Yield the notification that an event sends, or nothing.

    A reminder of the start sends nothing in three cases: the lease is no longer PENDING, its start
    date has passed, or a later reminder is also due. A reminder of the end sends nothing unless the
    lease is ACTIVE and its end is still ahead.
    """
    after = replace(lease, events=events_with_done(lease.events, event, now))
    if event.kind == BEFORE_END_REMINDER:
        if lease.status is LeaseStatus.ACTIVE and now < lease.window.end:
            yield News(event.kind, after, {"ends_in": (lease.window.end - now).total_seconds()})
    elif event.kind != BEFORE_START:
        yield News(event.kind, after)
    elif (
        lease.status is LeaseStatus.PENDING
        and now < lease.window.start
        and not is_overtaken(lease, event, now)
    ):
        starts_in = (lease.window.start - now).total_seconds()
        yield News(event.kind, after, {"starts_in": starts_in})


def events_with_done(events: Iterable[Event], event: Event, now: datetime) -> tuple[Event, ...]:
    """Return ``events`` in the same order, but with the status of ``event`` set to DONE."""
    done = replace(event, status=EventStatus.DONE, owner=None, updated_at=now)
    return tuple([done if other.id == event.id else other for other in events])


def _notify_if_late(
    late_after: timedelta, session: Session, seen: Sequence[Seen], now: datetime
) -> None:
    """Write one catch-up notification for each lease that has late events.

    An event is late if it is delayed by more than ``late_after``. The notification lists all late
    events of the lease. It is written only once, when a manager begins the first of these events.
    """
    late: dict[str, tuple[Lease, tuple[Late, ...]]] = {}
    for _, lease, event in seen:
        if event.kind in {RELEASE, EXPIRE} or now - event.promised_at <= late_after:
            continue
        overdue = late_events(lease, now, late_after)
        sent_at = lease.caught_up_at
        is_sent = sent_at is not None and sent_at >= event.promised_at + late_after
        if event.id in {item.event.id for item in overdue} and not is_sent:
            late.setdefault(lease.id, (lease, overdue))
    if late:
        leases.catch_up(session, late, now)
        payloads = (
            (
                event_type.LEASE_CATCH_UP,
                blazar_wire.payload(lease, {"late": [item.body() for item in overdue]}),
            )
            for lease, overdue in late.values()
            if lease.status in _NOT_OVER
        )
        outbox.write_all(session, payloads, now)
