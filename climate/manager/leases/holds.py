"""Holds: leases that keep their capacity while an external service decides or the cloud is changed.

The first transaction admits the lease and stores it as CREATING: no API shows it, no manager starts
it, and its only event is its own release. With no transaction open, the process then asks the
enforcement service, makes a trust, and lets plug-ins prepare what takes the requester's token.
Another transaction confirms the lease with its events, or releases it. If the process dies in
between, a manager releases the lease when its event is due. Only managers discard what plug-ins
prepared, so that a failure to do so is retried.
"""

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.backoff import pause_before
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
from climate.core.lease.schedule import RELEASE, Planned
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import idempotency, leases
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import any_acts_as_user, any_prepares
from climate.manager.claims import Claim, Work, close, lease_of
from climate.manager.enforcement import Enforcer
from climate.manager.leases import trusts
from climate.manager.leases.finalizers import schedule_finalizers
from climate.manager.leases.idempotency import IdempotentRequest
from climate.manager.notifications.lease_messages import resources_of
from climate.manager.process.runtime import Runtime
from climate.plugins.base import Requester

LOG = logging.getLogger(__name__)


class HoldGate(Gate):
    """Stores a new lease as held; settles it after the commit."""

    def __init__(
        self, runtime: Runtime, requester: Requester, idempotent: IdempotentRequest | None
    ) -> None:
        """Settle for this requester; the confirmation stores the answer of ``idempotent``."""
        self._runtime = runtime
        self._requester = requester
        self._idempotent = idempotent

    def stored(self, lease: Lease) -> Lease:
        """Return the lease as CREATING, with its release as the only event."""
        due_at = lease.created_at + self._runtime.settings.hold_timeout
        release = Event.planned(Planned(RELEASE, due_at), lease.id, ids.new_id(), lease.created_at)
        return replace(lease, status=LeaseStatus.CREATING, events=(release,))

    def settle(self, lease: Lease) -> Lease:
        """Confirm the lease and return it, or have it released."""
        return settle(self._runtime, lease, self._requester, self._idempotent)


def settle(
    runtime: Runtime,
    lease: Lease,
    requester: Requester,
    idempotent: IdempotentRequest | None = None,
) -> Lease:
    """Confirm a held lease and return it, or have it released.

    Raises InvalidDate, EnforcementDenied, EnforcementUnavailable, and what trusts and plug-ins
    raise.
    """
    if runtime.enforcer is not None and runtime.enforcer.checks_create:
        _ask(runtime, runtime.enforcer, lease)
    try:
        made = _in_time(runtime, _prepared(runtime, lease, requester))
    except Exception:
        runtime.database.write(lambda session: _give_up(runtime, session, lease.id))
        runtime.wakeup.hint()
        raise
    now = runtime.clock.now()
    # Its events exist from now on: no manager could claim them before.
    made = replace(made, events=tuple(replace(one, created_at=now) for one in made.events))
    answer = None if idempotent is None else idempotent.render(made)

    def work(session: Session) -> bool:
        if not _confirm(session, made, now):
            return False
        if idempotent is not None and answer is not None:
            idempotency.decide(session, idempotent.key, answer)
        return True

    if not runtime.database.write(work):
        _discard(runtime, made)  # the manager that released the lease may not have seen all of it
        raise _late(runtime)
    return made


def _ask(runtime: Runtime, enforcer: Enforcer, lease: Lease) -> None:
    """Ask the service about a lease; release one that it does not grant."""
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


def _prepared(runtime: Runtime, lease: Lease, requester: Requester) -> Lease:
    """Make the lease's trust, let plug-ins prepare what they need, and return it with both."""
    if any_acts_as_user(runtime, lease.reservations):
        lease = replace(lease, trust_id=trusts.make(runtime, requester))
        if not runtime.database.write(lambda session: _keep_trust(runtime, session, lease)):
            raise _late(runtime)
    if not any_prepares(runtime, lease.reservations):
        return lease
    reservations = tuple(
        replace(one, details={**one.details, **details})
        for one in lease.reservations
        for details in [runtime.plugin(one.resource_type).prepare(lease, one, requester)]
    )
    return replace(lease, reservations=reservations)


def _keep_trust(runtime: Runtime, session: Session, lease: Lease) -> bool:
    """Store the trust of a lease at once, so that a manager that releases the lease revokes it."""
    assert lease.trust_id is not None  # noqa: S101 - it was just made
    if _held(session, lease.id) is None:
        trusts.drop(session, lease.trust_id, runtime.clock.now())
        return False
    leases.set_trust(session, lease.id, lease.trust_id)
    return True


def _late(runtime: Runtime) -> ClimateError:
    if runtime.enforcer is not None and runtime.enforcer.checks_create:
        return EnforcementUnavailable(
            "To ask the enforcement service took so long that the lease was released: try again"
        )
    return BackendUnavailable(
        "To make what the lease needs took so long that it was released: try again"
    )


def _confirm(session: Session, lease: Lease, now: datetime) -> bool:
    """Store the lease as it was requested; False if a manager releases it, or did."""
    present = _held(session, lease.id)
    if present is None or any(event.attempt for event in present.events):
        return False
    event_queue.remove(session, [event.id for event in present.events])
    leases.update(session, lease)
    for before, after in zip(present.reservations, lease.reservations, strict=True):
        if after.details != before.details:
            leases.set_reservation(session, after.id, now, details=dict(after.details))
    leases.insert_events(session, lease.events)
    outbox.write(session, "lease.create", blazar_wire.payload(lease), now)
    return True


def _give_up(runtime: Runtime, session: Session, lease_id: str) -> None:
    """Release a lease whose preparation failed; a manager discards what was prepared."""
    lease = _held(session, lease_id)
    if lease is None:
        return
    if not any_prepares(runtime, lease.reservations):
        _take_back(runtime, session, lease_id)
        return
    now = runtime.clock.now()
    _free(session, lease)
    for event in lease.events:
        if event.status is EventStatus.UNDONE:
            event_queue.reschedule(session, event.id, now, now)


def _free(session: Session, lease: Lease) -> None:
    """Let other leases have at once what a lease holds that will not be confirmed."""
    allocations.release(session, [reservation.id for reservation in lease.reservations])


def _release(session: Session, lease_id: str) -> None:
    if _held(session, lease_id) is not None:
        leases.delete(session, lease_id)


def _take_back(runtime: Runtime, session: Session, lease_id: str) -> None:
    """Release a lease and report its end: the service may have agreed, and its answer was lost."""
    lease = _held(session, lease_id)
    if lease is not None:
        schedule_finalizers(runtime, session, lease, runtime.clock.now())
        leases.delete(session, lease_id)


def _held(session: Session, lease_id: str) -> Lease | None:
    """Lock and return a lease, None if it is not held any more."""
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return None
    return lease if lease.status is LeaseStatus.CREATING else None


def begin_release(session: Session, lease: Lease, event: Event) -> Work:
    """Free the resources of a lease, locked, at once; return the work of its release."""
    _free(session, lease)
    return Work(event, lease, {})


def expire(runtime: Runtime, claim: Claim, lease: Lease) -> None:
    """Discard what was prepared for a lease, and delete it. No transaction is open."""
    now = runtime.clock.now()
    try:
        _discard(runtime, lease)
    except Exception as error:  # noqa: BLE001 - the event is retried after any failure
        LOG.warning("what was prepared for lease %s is not discarded yet: %s", lease.id, error)
        pause = pause_before(claim.attempt, runtime.settings.max_retries, runtime.rng)
        again = {"last_error": str(error), "run_at": now + timedelta(seconds=pause)}
        runtime.database.write(lambda one: close(one, claim, now, EventStatus.UNDONE, **again))
    else:
        runtime.database.write(lambda session: _expire(runtime, session, claim))


def _discard(runtime: Runtime, lease: Lease) -> None:
    for reservation in lease.reservations:
        runtime.plugin(reservation.resource_type).discard(lease, reservation)


def _expire(runtime: Runtime, session: Session, claim: Claim) -> None:
    lease = lease_of(session, claim)
    if lease is not None and close(session, claim, runtime.clock.now(), EventStatus.DONE):
        _take_back(runtime, session, lease.id)
