"""Leases that are held while somebody is asked about them, or something is made for them.

A lease is admitted and stored as CREATING, so that its capacity cannot be lost; it is shown to
nobody, started by nobody, and its only event is that it is due to be released. That commits. Then,
with no transaction open, an enforcement service is asked, a trust is made, and plugins arrange what
takes the asker's own token; and another transaction confirms the lease with the events it is to
have, or releases it. Should whoever asks die in between, a manager releases the lease when its
event is due. What was arranged is abandoned by managers alone, so that it is done at last.
"""

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import (
    BackendUnavailable,
    ClimateError,
    EnforcementDenied,
    EnforcementUnavailable,
    InvalidDate,
    NotFound,
)
from climate.core.lease import blazar_wire
from climate.core.lease.blazar_wire import enforcement_body
from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Event, Lease
from climate.core.once import Once
from climate.db import events, idempotency, leases
from climate.db import trusts as stored_trusts
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.enforcement import Enforcer
from climate.manager import trusts
from climate.manager.announcements import resources_of
from climate.manager.claims import Claim, Work, close, lease_of
from climate.manager.failures import pause_before
from climate.manager.farewells import note_end
from climate.manager.requests import arranging
from climate.manager.runtime import Runtime
from climate.plugins.base import Requester

LOG = logging.getLogger(__name__)


def held(lease: Lease, release: Event) -> Lease:
    """Return the lease as it is stored while somebody is asked about it."""
    return replace(lease, status=LeaseStatus.CREATING, events=(release,))


def shown(lease: Lease) -> Lease:
    """Return a lease for everyone to see; raises NotFound for one that is only held so far."""
    if lease.status is LeaseStatus.CREATING:
        raise NotFound(f"Object with {{'lease_id': '{lease.id}'}} not found")
    return lease


def is_needed(runtime: Runtime, lease: Lease) -> bool:
    """Tell whether a new lease must be held until somebody was asked, or something was made."""
    asks = runtime.enforcer is not None and runtime.enforcer.checks_create
    return asks or _makes(runtime, lease)


def _makes(runtime: Runtime, lease: Lease) -> bool:
    return trusts.needed(runtime, lease.reservations) or arranging(runtime, lease.reservations)


def settle(runtime: Runtime, lease: Lease, requester: Requester, once: Once | None = None) -> Lease:
    """Make a lease that is held what it is to be, and return it so; or have it released.

    ``once`` is the request, whose key was claimed with the lease. Raises InvalidDate,
    EnforcementDenied, EnforcementUnavailable, and what trusts and plugins raise.
    """
    if runtime.enforcer is not None and runtime.enforcer.checks_create:
        _ask(runtime, runtime.enforcer, lease)
    try:
        made = _in_time(
            runtime, _made(runtime, lease, requester) if _makes(runtime, lease) else lease
        )
    except Exception:
        runtime.database.write(lambda session: _give_up(runtime, session, lease.id))
        runtime.wakeup.hint()
        raise
    now = runtime.clock.now()
    # Its events are there from now on: nobody could be at them before.
    made = replace(made, events=tuple(replace(one, created_at=now) for one in made.events))
    if not runtime.database.write(lambda session: _confirm(session, made, now, once)):
        _abandon(runtime, made)  # whoever released it may not have seen it all
        raise _late(runtime)
    return made


def _ask(runtime: Runtime, enforcer: Enforcer, lease: Lease) -> None:
    """Ask about a lease; one that is not granted is released."""
    with runtime.database.read() as session:
        taken = resources_of(session, [reservation.id for reservation in lease.reservations])
    try:
        enforcer.check_create(enforcement_body(lease, taken))
    except EnforcementDenied:
        runtime.database.write(lambda session: _release(session, lease.id))
        raise
    except EnforcementUnavailable:
        runtime.database.write(lambda session: _take_back(runtime, session, lease.id))
        raise


def _in_time(runtime: Runtime, lease: Lease) -> Lease:
    """Return the lease; raises InvalidDate if it is over by now."""
    if lease.window.end <= runtime.clock.now():
        raise InvalidDate("The lease's end has passed before all was asked that has to be")
    return lease


def _made(runtime: Runtime, lease: Lease, requester: Requester) -> Lease:
    """Make what the lease needs in the cloud, and return it with that."""
    if trusts.needed(runtime, lease.reservations):
        lease = replace(lease, trust_id=trusts.make(runtime, requester))
        if not runtime.database.write(lambda session: _keep_trust(runtime, session, lease)):
            raise _late(runtime)
    reservations = tuple(
        replace(one, details={**one.details, **told})
        for one in lease.reservations
        for told in [runtime.plugin(one.resource_type).prepare(lease, one, requester)]
    )
    return replace(lease, reservations=reservations)


def _keep_trust(runtime: Runtime, session: Session, lease: Lease) -> bool:
    """Write the trust of a lease down at once, so that whoever releases it knows of it."""
    assert lease.trust_id is not None  # noqa: S101 - it was just made
    if _held(session, lease.id) is None:
        trusts.drop(session, lease.trust_id, runtime.clock.now())
        return False
    stored_trusts.store(session, lease.id, lease.trust_id)
    return True


def _late(runtime: Runtime) -> ClimateError:
    if runtime.enforcer is not None and runtime.enforcer.checks_create:
        return EnforcementUnavailable(
            "To ask the enforcement service took so long that the lease was released: try again"
        )
    return BackendUnavailable(
        "To make what the lease needs took so long that it was released: try again"
    )


def _confirm(session: Session, lease: Lease, now: datetime, once: Once | None) -> bool:
    """Store the lease as it was asked for, unless somebody is about to release it, or did."""
    present = _held(session, lease.id)
    if present is None or any(event.attempt for event in present.events):
        return False
    events.remove(session, [event.id for event in present.events])
    leases.update(session, lease)
    for before, after in zip(present.reservations, lease.reservations, strict=True):
        if after.details != before.details:
            leases.set_reservation(session, after.id, now, details=dict(after.details))
    leases.insert_events(session, lease.events)
    outbox.write(session, "lease.create", blazar_wire.payload(lease), now)
    if once is not None:
        idempotency.remember(session, once, lease)
    return True


def _give_up(runtime: Runtime, session: Session, lease_id: str) -> None:
    """Release a lease of which something could not be made; a manager undoes what was."""
    lease = _held(session, lease_id)
    if lease is None:
        return
    if not arranging(runtime, lease.reservations):
        _take_back(runtime, session, lease_id)
        return
    now = runtime.clock.now()
    _let_go(session, lease)
    for event in lease.events:
        if event.status is EventStatus.UNDONE:
            events.rearm(session, event.id, now, now)


def _let_go(session: Session, lease: Lease) -> None:
    """Let others have at once what is held for nobody any more."""
    allocations.release(session, [reservation.id for reservation in lease.reservations])


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


def begin_release(session: Session, lease: Lease, event: Event) -> Work:
    """Return the work of releasing a lease, locked; others may have what it had at once."""
    _let_go(session, lease)
    return Work(event, lease, {})


def expire(runtime: Runtime, claim: Claim, lease: Lease) -> None:
    """Release a lease that is not to be; no transaction is open, the claim is ours."""
    now = runtime.clock.now()
    try:
        _abandon(runtime, lease)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
        LOG.warning("what was made for lease %s is not undone yet: %s", lease.id, error)
        pause = pause_before(claim.attempt, runtime.settings.max_retries, runtime.rng)
        again = {"last_error": str(error), "run_at": now + timedelta(seconds=pause)}
        runtime.database.write(lambda one: close(one, claim, now, EventStatus.UNDONE, **again))
    else:
        runtime.database.write(lambda session: _expire(runtime, session, claim))


def _abandon(runtime: Runtime, lease: Lease) -> None:
    for reservation in lease.reservations:
        runtime.plugin(reservation.resource_type).discard(lease, reservation)


def _expire(runtime: Runtime, session: Session, claim: Claim) -> None:
    lease = lease_of(session, claim)
    if lease is not None and close(session, claim, runtime.clock.now(), EventStatus.DONE):
        _take_back(runtime, session, lease.id)
