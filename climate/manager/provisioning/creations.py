"""Creations: create servers, volumes, networks and stacks before their lease starts.

The start event of such a lease runs first at the beginning of the lead, the time that a creation
takes according to earlier ones. It creates what it can, and runs again at the start date: only then
do users get the other resources, and the lease becomes ACTIVE. Until then, the lease is STARTING.

A creation that has failed is retried like any start. climate remembers how long each reservation
took, in the transaction that stores the outcome of an attempt.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire, on_start
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import CREATED_AFTER, Event, Lease, Reservation, StartWhen
from climate.core.notifications import event_type
from climate.db.engine.database import on_commit
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.provisioning import creation_times
from climate.manager.admission.requirements import kinds_of, lead_of
from climate.manager.claims import Result, Seen, lease_of, requeue
from climate.manager.process.runtime import Runtime

# The shortest duration in seconds that climate remembers; it computes with logarithms.
_LEAST = 0.01


def if_due(runtime: Runtime, session: Session, seen: Seen, now: datetime) -> Seen | None:
    """Return ``seen``, a start with a lead, if its creation can begin; else delay it, return None.

    The booked lead may be longer than necessary by now, because climate has learned more.
    """
    lease = seen.lease
    if lease.start.began_at is not None:
        return seen
    if lease.status is LeaseStatus.PENDING and now < lease.window.start:
        wanted = lead_of(runtime, session, on_start.created(lease), now)
        begin_at = lease.window.start - min(lease.start.lead, wanted)
        if now < begin_at:
            requeue(session, seen.claim, run_at=begin_at)
            return None
    leases.set_began(session, lease.id, now)
    return seen._replace(lease=replace(lease, start=replace(lease.start, began_at=now)))


def note_attempt(runtime: Runtime, session: Session, result: Result, **again: datetime) -> None:
    """Store what an attempt has created, and let the start run again.

    ``result`` is an attempt without failed calls. ``again`` contains the new values of columns of
    the event (``run_at``, ``updated_at``). Nothing is stored if this manager has lost the claim.
    """
    claim, now = result.task.claim, runtime.clock.now()
    lease = lease_of(session, claim)
    if lease is None:
        return
    requeue(session, claim, **again)
    done = _done(lease, result.details)
    _remember(runtime, session, lease, done, claim.attempt, now)
    mark = {CREATED_AFTER: on_start.creation_seconds(lease, now)}
    marks = {reservation.id: mark for reservation in done}
    reservations = tuple(
        replace(r, details={**r.details, **result.details[r.id], **marks.get(r.id, {})})
        if r.id in result.details
        else r
        for r in lease.reservations
    )
    leases.advance(session, [(lease, replace(lease, reservations=reservations))])
    if not result.undone:
        _set_ready(runtime, session, lease, now)
    elif not result.is_ahead and _is_first_delay(result.task.work.event, lease):
        _tell_of_delay(session, lease, result.undone, now)


def note_start(
    runtime: Runtime, session: Session, lease: Lease, attempt: int, now: datetime
) -> None:
    """Remember how long the creations took that were ready only when the lease started.

    ``lease`` is the lease before its start has succeeded, in this ``attempt``.
    """
    _remember(runtime, session, lease, _done(lease, on_start.needed(lease)), attempt, now)
    _set_ready(runtime, session, lease, now)


def _done(lease: Lease, ids: Collection[str]) -> list[Reservation]:
    """Return the reservations with these ids whose creation is done now, and was not before."""
    created = on_start.created(lease)
    return [each for each in created if each.id in ids and CREATED_AFTER not in each.details]


def _remember(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    done: Sequence[Reservation],
    attempt: int,
    now: datetime,
) -> None:
    """Store how long the creations took, and count in the metrics whether they were in time.

    After a failed attempt, the duration says nothing about the next creation, so it is not stored.
    """
    settings = runtime.settings.creation
    if settings is not None and attempt <= 1:
        taken = max(on_start.creation_seconds(lease, now), _LEAST)
        for kind in sorted(kinds_of(runtime.catalog, done)):
            creation_times.remember(session, kind, taken, now, settings.kept)
    early = (lease.window.start - now).total_seconds()
    for reservation in done:
        on_commit(session, partial(runtime.metrics.created, reservation.resource_type, early))


def _set_ready(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    # For a start that waits for hosts, this is the time when the hosts are ready.
    if lease.start.when is StartWhen.SCHEDULED or runtime.settings.provisioning is None:
        leases.set_ready(session, lease.id, now)


def _is_first_delay(event: Event, lease: Lease) -> bool:
    """Return whether no attempt to run a start has ended since its date."""
    return event.is_untried and not (event.updated_at and event.updated_at >= lease.window.start)


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
