"""Leases that are held while an enforcement service is asked about them.

A lease is admitted and stored as CREATING, so that its capacity cannot be lost; it is shown to
nobody, started by nobody, and its only event is that it is due to be released. That commits. Then
the service is asked, with no transaction open, and a second transaction confirms the lease with
the events it is to have, or releases it. Should whoever asks die in between, a manager releases
the lease when its event is due.
"""

from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.enforcement import lease_body
from climate.core.errors import (
    EnforcementDenied,
    EnforcementUnavailable,
    NotFound,
)
from climate.core.lease import Event, Lease
from climate.core.lifecycle import EventStatus, LeaseStatus
from climate.core.once import Once
from climate.db import events, idempotency, leases, outbox
from climate.enforcement import Enforcer
from climate.manager.announcements import resources_of
from climate.manager.claims import Claim, close
from climate.manager.farewells import note_end
from climate.manager.runtime import Runtime


def held(lease: Lease, release: Event) -> Lease:
    """Return the lease as it is stored while somebody is asked about it."""
    return replace(lease, status=LeaseStatus.CREATING, events=(release,))


def shown(lease: Lease) -> Lease:
    """Return a lease for everyone to see; raises NotFound for one that is only held so far."""
    if lease.status is LeaseStatus.CREATING:
        raise NotFound(f"Object with {{'lease_id': '{lease.id}'}} not found")
    return lease


def settle(runtime: Runtime, enforcer: Enforcer, lease: Lease, once: Once | None = None) -> None:
    """Ask about a lease that is held, and make it what it is to be, or release it.

    ``once`` is the request, whose key was claimed with the lease. Raises EnforcementDenied,
    EnforcementUnavailable.
    """
    now = runtime.clock.now()
    with runtime.database.read() as session:
        taken = resources_of(session, [reservation.id for reservation in lease.reservations])
    try:
        enforcer.check_create(lease_body(lease, taken))
    except EnforcementDenied:
        runtime.database.write(lambda session: _release(session, lease.id))
        raise
    except EnforcementUnavailable:
        runtime.database.write(lambda session: _take_back(runtime, session, lease.id))
        raise
    runtime.database.write(lambda session: _confirm(session, lease, now, once))


def _confirm(session: Session, lease: Lease, now: datetime, once: Once | None) -> None:
    """Store the lease as it was asked for."""
    present = _held(session, lease.id)
    if present is None:
        raise EnforcementUnavailable(
            "To ask the enforcement service took so long that the lease was released: try again"
        )
    events.remove(session, [event.id for event in present.events])
    leases.update(session, lease)
    leases.insert_events(session, lease.events)
    outbox.write(session, "lease.create", wire.payload(lease), now)
    if once is not None:
        idempotency.remember(session, once, lease)


def _release(session: Session, lease_id: str) -> None:
    if _held(session, lease_id) is not None:
        leases.delete(session, lease_id)


def _take_back(runtime: Runtime, session: Session, lease_id: str) -> None:
    """Release a lease, and tell so: the service may have agreed, and only its answer was lost."""
    lease = _held(session, lease_id)
    if lease is not None:
        note_end(runtime, session, lease, runtime.clock.now())
        leases.delete(session, lease_id)


def _held(session: Session, lease_id: str) -> Lease | None:
    """Lock and return a lease that is still held."""
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return None
    return lease if lease.status is LeaseStatus.CREATING else None


def expire(runtime: Runtime, session: Session, claim: Claim, lease: Lease, now: datetime) -> None:
    """Release a lease whose asker did not come back in time; the claim is ours."""
    if close(session, claim, now, EventStatus.DONE) and lease.status is LeaseStatus.CREATING:
        _take_back(runtime, session, lease.id)
