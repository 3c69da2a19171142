"""Creations: create servers, volumes, networks and stacks before their lease starts.

The start event of such a lease runs first at the beginning of the lead, the time that a creation
takes according to earlier ones. An attempt in the lead (``Work.is_ahead``) creates what it can, and
the lease stays PENDING. The event runs again at the start date: only then do users get the other
resources, and the lease becomes ACTIVE.

A creation that fails in the lead is tried again until the start. From then on, it is a start that
fails. climate remembers how long each reservation took, in the transaction that stores the outcome
of an attempt.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire, on_start
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import (
    CREATED_AFTER,
    UNAPPLIED,
    Event,
    Lease,
    Reservation,
    StartWhen,
)
from climate.core.lease.schedule import START
from climate.core.notifications import event_type
from climate.db.engine.database import on_commit
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.provisioning import creation_times
from climate.manager.admission.requirements import kinds_of, lead_of
from climate.manager.claims import Result, Seen, lease_of, requeue
from climate.manager.leases import ready_start
from climate.manager.process.runtime import Runtime

# The shortest duration in seconds that climate remembers; it computes with logarithms.
_LEAST = 0.01
# Pauses between attempts in the lead: while the cloud works, while hosts are not ready, and after a
# failure. The last one grows with the time since the first attempt, up to a maximum.
_NOT_YET = timedelta(seconds=1)
_NO_HOST = timedelta(seconds=5)
_FAILED, _LONGEST, _SHARE = timedelta(seconds=5), timedelta(minutes=1), 0.25
# Characters of an error that are stored.
_LONGEST_ERROR = 4000


def has_any(runtime: Runtime, lease: Lease) -> bool:
    """Return whether climate plans when to create resources for a lease."""
    is_planned = runtime.settings.creation is not None or bool(lease.start.lead)
    return is_planned and bool(on_start.created(lease))


def if_due(runtime: Runtime, session: Session, seen: Seen, now: datetime) -> bool:
    """Return whether the creation for a start can begin, or go on; if not, requeue the start.

    The booked lead may be longer than necessary by now, because climate has learned more. Before
    the start date, a creation also waits for the hosts on which it puts servers.
    """
    lease, again = seen.lease, None
    if now >= lease.window.start or lease.status is not LeaseStatus.PENDING:
        return True
    if lease.start.began_at is None:
        wanted = lead_of(runtime, session, on_start.created(lease), now)
        again = lease.window.start - min(lease.start.lead, wanted)
    if again is None or again <= now:
        needed = on_start.needed(lease)
        if not ready_start.unready(runtime.settings, session, lease.id, needed):
            return True
        again = min(now + _NO_HOST, lease.window.start)
    requeue(session, seen.claim, run_at=again)
    return False


def begin(session: Session, seen: Seen, now: datetime) -> Seen:
    """Store when the creation for a lease began, if this is not stored; return ``seen`` with it."""
    lease = seen.lease
    if lease.start.began_at is not None:
        return seen
    leases.set_began(session, lease.id, now)
    return seen._replace(lease=replace(lease, start=replace(lease.start, began_at=now)))


def note_ahead(runtime: Runtime, session: Session, result: Result) -> None:
    """Store the outcome of an attempt in the lead, and let the start run again.

    It runs again soon if it is not done, else at the start date.
    """
    work, now = result.task.work, runtime.clock.now()
    again = work.lease.window.start
    if result.undone:
        again = min(now + _pause(result, now), again)
    errors = [f"reservation {id_}: {reason}" for id_, reason in result.failed.items()]
    # An error stays until all is done, so that the duration is not remembered.
    keeps_error = result.undone and not errors
    error = {} if keeps_error else {"last_error": "; ".join(errors)[:_LONGEST_ERROR] or None}
    lease = note_attempt(runtime, session, result, run_at=again, **error)
    if lease is not None and not result.undone:
        _set_ready(runtime, session, lease, now)


def _pause(result: Result, now: datetime) -> timedelta:
    if not result.failed:
        return _NOT_YET
    since = on_start.creation_seconds(result.task.work.lease, now)
    return min(max(timedelta(seconds=since * _SHARE), _FAILED), _LONGEST)


def note_attempt(runtime: Runtime, session: Session, result: Result, **again: Any) -> Lease | None:
    """Store what an attempt has created, and requeue the start; return the locked lease.

    ``again`` contains the new values of columns of the event (``run_at``, ``updated_at``,
    ``last_error``). Returns None, and stores nothing, if this manager has lost the claim.
    """
    claim, work, now = result.task.claim, result.task.work, runtime.clock.now()
    lease = lease_of(session, claim)
    if lease is None:
        return None
    requeue(session, claim, **again)
    done = _done(lease, result.details)
    _remember(runtime, session, lease, done, work.event, now)
    mark = {CREATED_AFTER: on_start.creation_seconds(lease, now)}
    marks = {reservation.id: mark for reservation in done}
    reservations = tuple(
        replace(r, details={**r.details, **result.details[r.id], **marks.get(r.id, {})})
        if r.id in result.details
        else r
        for r in lease.reservations
    )
    leases.advance(session, [(lease, replace(lease, reservations=reservations))])
    if result.undone and not work.is_ahead and _is_first_delay(work.event, lease):
        _tell_of_delay(session, lease, result.undone, now)
    return lease


def note_start(
    runtime: Runtime, session: Session, lease: Lease, event: Event, now: datetime
) -> None:
    """Remember how long the creations took that were ready only when the lease started.

    ``lease`` is the lease before its start, the event ``event``, has succeeded.
    """
    _remember(runtime, session, lease, _done(lease, on_start.needed(lease)), event, now)
    _set_ready(runtime, session, lease, now)


def _set_ready(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """Store that all that climate creates is ready, unless the start waits for hosts."""
    may_wait = lease.start.when is StartWhen.READY
    if not (may_wait and ready_start.unready(runtime.settings, session, lease.id)):
        leases.set_ready(session, lease.id, now)


def _done(lease: Lease, ids: Collection[str]) -> list[Reservation]:
    """Return the reservations with these ids whose creation is done now, and was not before."""
    created = on_start.created(lease)
    return [each for each in created if each.id in ids and CREATED_AFTER not in each.details]


def _remember(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    done: Sequence[Reservation],
    event: Event,
    now: datetime,
) -> None:
    """Store how long the creations took, and count in the metrics whether they were in time.

    After a failed attempt, the duration says nothing about the next creation, so it is not stored.
    Nor is that of a reservation which a user has added or changed since the creation began.
    """
    settings, began = runtime.settings.creation, lease.start.began_at
    if settings and began and event.attempt <= 1 and event.last_error is None:
        taken = max(on_start.creation_seconds(lease, now), _LEAST)
        timed = [r for r in done if r.created_at <= began and UNAPPLIED not in r.details]
        for kind in sorted(kinds_of(runtime.catalog, timed)):
            creation_times.remember(session, kind, taken, now, settings.kept)
    early = (lease.window.start - now).total_seconds()
    for reservation in done:
        on_commit(session, partial(runtime.metrics.created, reservation.resource_type, early))


def _is_first_delay(event: Event, lease: Lease) -> bool:
    """Return whether no attempt to run a start has ended since its date."""
    is_start = event.kind == START and event.is_untried
    return is_start and not (event.updated_at and event.updated_at >= lease.window.start)


def _tell_of_delay(
    session: Session, lease: Lease, undone: Mapping[str, str], now: datetime
) -> None:
    """Write a notification that a lease does not start at its date, because resources are missing.

    ``undone`` contains the reasons by reservation id.
    """
    reasons = [f"reservation {id_}: {reason}" for id_, reason in undone.items()]
    extra = {"reason": "resources that are not created yet", "waiting_for": reasons}
    payload = blazar_wire.payload(lease, extra)
    outbox.write(session, event_type.LEASE_START_DELAYED, payload, now)
