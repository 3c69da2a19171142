"""Change a lease in one transaction, so that a rejected change stores nothing.

Before the transaction searches for resources, it releases the lease's own allocations, so that they
do not count as booked. A pending lease then keeps those of its resources that still fit. A running
lease keeps all its resources, or the change is rejected. If a running lease gains resources, an
``update_lease`` event, which is due now, hands them over. Each optional feature is a gate, as in
``create``.
"""

import random
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import Forbidden, LeaseBusy
from climate.core.lease import blazar_wire
from climate.core.lease.blazar_wire import enforcement_body
from climate.core.lease.change import (
    Change,
    changed_notices,
    changed_start,
    changed_window,
    check_changeable,
    moved,
)
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease, StartWhen
from climate.core.lease.schedule import START
from climate.db.engine.database import LostRace
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.manager.admission.admission import InsufficientResources
from climate.manager.admission.gates import Gate
from climate.manager.admission.limits import LimitGate
from climate.manager.admission.reallocation import reallocate
from climate.manager.admission.refusal import explain
from climate.manager.admission.requirements import ReservationRequest, any_acts_as_user
from climate.manager.enforcement import Enforcer
from climate.manager.leases import trusts
from climate.manager.leases.create import Owner
from climate.manager.leases.event_plan import add_update_event, reschedule
from climate.manager.leases.read import check_expected
from climate.manager.leases.ready_start import ReadyStartGate
from climate.manager.leases.reservation_changes import (
    ReservationChange,
    ReservationChanges,
    change_reservations,
    complete,
    requested,
)
from climate.manager.notifications.lease_messages import resources_of
from climate.manager.process.runtime import Runtime
from climate.observability.metrics import counted

# Calls of the enforcement service per change. Another call is necessary if concurrent requests have
# altered the outcome that the service agreed to.
_PROPOSALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChange:
    """A change of a lease. None or an empty value means no change of that field."""

    name: str | None = None
    dates: Change = field(default_factory=Change)
    reservations: tuple[ReservationChange, ...] = ()
    added: tuple[ReservationRequest, ...] = ()
    removed: tuple[str, ...] = ()
    start_when: StartWhen | None = None

    @property
    def keeps_bookings(self) -> bool:
        """Whether neither the dates nor the reservations change."""
        return self.dates == Change() and not self.changes_reservations

    @property
    def changes_reservations(self) -> bool:
        """Whether the reservations change."""
        return bool(self.reservations or self.added or self.removed)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The changed lease, and the enforcement service's view of it before and after the change."""

    lease: Lease
    current: Mapping[str, Any]
    new: Mapping[str, Any]


class _OutcomeChanged(Exception):
    """The change would store another outcome than the enforcement service agreed to."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A change of a lease, the requester's roles, the expected lease, and the new trust, if any."""

    lease_id: str
    change: LeaseChange
    roles: Collection[str]
    expected: Lease | None
    trust_id: str | None


@counted("update")
def update_lease(
    runtime: Runtime,
    lease_id: str,
    change: LeaseChange,
    owner: Owner | None = None,
    expected: Lease | None = None,
) -> Lease:
    """Change a lease and return the changed lease.

    ``owner`` is the requester. If it is None, the change creates no trust and makes no look-ups.
    Raises NotFound, LeaseBusy, InvalidInput, Conflict, NotEnoughResources, LimitExceeded,
    Contention, EnforcementDenied, EnforcementUnavailable, and the errors of ``trusts.make_for`` and
    ``reservation_changes.complete``. Raises LeaseChanged if the stored lease differs from
    ``expected``.
    """
    if owner is not None and change.reservations:
        change = _complete(runtime, lease_id, change, owner)
    trust_id = _trust_for(runtime, lease_id, change, owner) if owner else None
    request = _Request(lease_id, change, owner.roles if owner else (), expected, trust_id)
    try:
        return _write(runtime, request)
    except Exception:
        if trust_id is not None:
            now = runtime.clock.now()
            runtime.database.write(
                lambda session: trusts.schedule_revocation(session, trust_id, now)
            )
        raise
    finally:
        runtime.wakeup.hint()


def _complete(runtime: Runtime, lease_id: str, change: LeaseChange, owner: Owner) -> LeaseChange:
    """Add the plug-ins' look-ups in the cloud to the change. No transaction is open."""
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    return replace(
        change, reservations=complete(runtime, lease, change.reservations, owner.requester)
    )


def _trust_for(runtime: Runtime, lease_id: str, change: LeaseChange, owner: Owner) -> str | None:
    """Create and return a trust if the lease has none and needs one, or lost its trust."""
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    if lease.trust_id is None:
        if change.changes_reservations:
            reservations = (*requested(runtime, lease, change.reservations), *change.added)
            if any_acts_as_user(runtime, reservations):
                return trusts.make_for(runtime, owner.requester, lease)
    elif lease.trust_lost is not None and trusts.is_owner(owner.requester, lease):
        with nullcontext() if change == LeaseChange() else suppress(Forbidden):
            return trusts.make(runtime, owner.requester)
    return None


def _write(runtime: Runtime, request: _Request) -> Lease:
    if runtime.enforcer and runtime.enforcer.checks_update and not request.change.keeps_bookings:
        return _write_agreed(runtime, runtime.enforcer, request)
    now = runtime.clock.now()
    return runtime.database.write(lambda session: _change(runtime, session, request, now))


def _change(runtime: Runtime, session: Session, request: _Request, now: datetime) -> Lease:
    """Change the lease in this transaction and return it."""
    change = request.change
    lease = leases.get(session, request.lease_id, lock=True)
    check_expected(lease, request.expected)
    check_changeable(lease, only_name=change.keeps_bookings, wants_more=change.changes_reservations)
    if request.trust_id is not None:
        lease = trusts.replace_trust(session, lease, request.trust_id, now)
    elif change == LeaseChange():
        return lease
    gates = _gates(runtime, request)
    start = changed_start(lease, change.start_when)
    renamed = replace(lease, name=change.name or lease.name, start=start, updated_at=now)
    if change.keeps_bookings:
        leases.update(session, renamed)
    else:
        _rebook(runtime, session, renamed, change, now, gates)
    changed = leases.get(session, lease.id)
    for gate in gates:
        gate.after(session, changed, now)
    if changed.trust_id is None and any_acts_as_user(runtime, changed.reservations):
        raise LeaseBusy(f"Lease {lease.id} was changed by others meanwhile: try again")
    if lease.start.delayed_at is not None:  # it may wait for hosts that it no longer needs
        event_queue.run_now(session, lease.id, [START], now)
    outbox.write(session, "lease.update", blazar_wire.payload(changed), now)
    return changed


def _gates(runtime: Runtime, request: _Request) -> list[Gate]:
    """Return the gates of the optional features of this change, in the order of execution."""
    gates: list[Gate] = []
    if runtime.settings.limits.enabled and not request.change.keeps_bookings:
        gates.append(LimitGate(runtime.settings.limits, request.roles))
    if request.change.start_when is StartWhen.READY:
        gates.append(ReadyStartGate(runtime))
    return gates


def _rebook(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    change: LeaseChange,
    now: datetime,
    gates: Collection[Gate],
) -> None:
    """Store new dates and reservations of the lease, with their allocations and events."""
    window = changed_window(lease, change.dates, now)
    for gate in gates:
        gate.before(session, replace(lease, window=window), now, lease)
    if window.end <= now:  # the lease ends now; a manager reclaims its resources
        change = replace(change, reservations=(), added=())
    notices = changed_notices(lease, change.dates, window)
    reservations, leaving = lease.reservations, False
    if change.changes_reservations:
        changes = ReservationChanges(change.reservations, change.added, change.removed)
        reservations, leaving = change_reservations(runtime, session, lease, changes, now)
    try:
        has_gains = reallocate(runtime, session, lease, reservations, window, now)
    except InsufficientResources as shortage:
        requested_lease = replace(lease, window=window, reservations=reservations)
        raise explain(runtime, session, shortage, requested_lease, gates, lease) from None
    changed = moved(replace(lease, reservations=reservations), window, notices, now)
    leases.update(session, changed)
    reschedule(session, lease, changed, now)
    unfinished = lease.degraded and bool(change.reservations)
    unfinished |= any(reservation.planned for reservation in change.reservations)
    if (has_gains or unfinished or leaving) and lease.status is LeaseStatus.ACTIVE:
        add_update_event(session, lease, now)


def _write_agreed(runtime: Runtime, enforcer: Enforcer, request: _Request) -> Lease:
    """Change a lease exactly as the enforcement service agreed to.

    A first transaction rehearses the change and rolls back. With no transaction open, the service
    decides about the outcome. A second transaction makes the change with the same random choices.
    If other requests altered the outcome, the process calls the service again, a few times at most.
    The lease keeps its own resources meanwhile; another lease may book those it would gain.
    """
    for _ in range(_PROPOSALS):
        now, seed = runtime.clock.now(), runtime.rng.random()

        def work(session: Session, now: datetime = now, seed: float = seed) -> _Outcome:
            seeded = replace(runtime, rng=random.Random(seed))  # noqa: S311 - not a secret
            current = _as_enforced(session, leases.get(session, request.lease_id, lock=True))
            lease = _change(seeded, session, request, now)
            return _Outcome(lease, current, _as_enforced(session, lease))

        proposal = runtime.database.rehearse(work)
        enforcer.check_update(proposal.current, proposal.new)
        try:
            return runtime.database.write(partial(_store_proposal, work, proposal))
        except _OutcomeChanged:
            continue
    raise LostRace


def _store_proposal(
    work: Callable[[Session], "_Outcome"], proposal: "_Outcome", session: Session
) -> Lease:
    outcome = work(session)
    if (outcome.current, outcome.new) != (proposal.current, proposal.new):
        raise _OutcomeChanged
    return outcome.lease


def _as_enforced(session: Session, lease: Lease) -> dict[str, Any]:
    """Return the stored lease as the body of a request to the enforcement service."""
    ids = [reservation.id for reservation in lease.reservations]
    return enforcement_body(lease, resources_of(session, ids))
