"""Change a lease: one transaction, so that a refused change changes nothing.

The lease's own bookings do not count against it: the transaction releases them first, and a pending
lease then keeps those of its resources that still fit. A running lease keeps all its resources, or
the change is refused; an ``update_lease`` event that is due at once hands over what it gains.
Optional features are gates, as in ``create``.
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

# How often an enforcement service is asked about a change whose outcome other requests change.
_PROPOSALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChange:
    """A change of a lease; None or nothing keeps the present value."""

    name: str | None = None
    dates: Change = field(default_factory=Change)
    reservations: tuple[ReservationChange, ...] = ()
    added: tuple[ReservationRequest, ...] = ()
    removed: tuple[str, ...] = ()
    start_when: StartWhen | None = None

    @property
    def keeps_bookings(self) -> bool:
        """Whether neither the dates nor the reservations change."""
        return self.dates == Change() and not self.composes

    @property
    def composes(self) -> bool:
        """Whether the reservations change."""
        return bool(self.reservations or self.added or self.removed)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The changed lease, and how an enforcement service sees the lease before and after."""

    lease: Lease
    current: Mapping[str, Any]
    new: Mapping[str, Any]


class _Different(Exception):
    """The change would store another outcome than the service has agreed to."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A change of a lease, the requester's roles, the expected lease, and the trust made for it."""

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
    """Change a lease and return it as it is then; ``owner`` is the requester.

    Raises NotFound, LeaseBusy, InvalidInput, Conflict, NotEnoughResources, LimitExceeded,
    Contention, EnforcementDenied, EnforcementUnavailable, what ``trusts.make_for`` raises, and
    LeaseChanged unless the lease is the ``expected`` one.
    """
    if owner is not None and change.reservations:
        change = _completed(runtime, lease_id, change, owner)
    trust_id = _trust_for(runtime, lease_id, change, owner) if owner else None
    request = _Request(lease_id, change, owner.roles if owner else (), expected, trust_id)
    try:
        return _write(runtime, request)
    except Exception:
        if trust_id is not None:
            now = runtime.clock.now()
            runtime.database.write(lambda session: trusts.drop(session, trust_id, now))
        raise
    finally:
        runtime.wakeup.hint()


def _completed(runtime: Runtime, lease_id: str, change: LeaseChange, owner: Owner) -> LeaseChange:
    """Return the change, completed with what the cloud says. No transaction is open."""
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    return replace(
        change, reservations=complete(runtime, lease, change.reservations, owner.requester)
    )


def _trust_for(runtime: Runtime, lease_id: str, change: LeaseChange, owner: Owner) -> str | None:
    """Return a new trust if the lease needs its first one, or lost the one that it has."""
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    if lease.trust_id is None:
        if change.composes:
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
    """Change the lease in this transaction, and return it."""
    change = request.change
    lease = leases.get(session, request.lease_id, lock=True)
    check_expected(lease, request.expected)
    check_changeable(lease, only_name=change.keeps_bookings, wants_more=change.composes)
    if request.trust_id is not None:
        lease = trusts.give(session, lease, request.trust_id, now)
    elif change == LeaseChange():
        return lease
    gates = _gates(runtime, request)
    start = changed_start(lease, change.start_when)
    renamed = replace(lease, name=change.name or lease.name, start=start, updated_at=now)
    if change.keeps_bookings:
        leases.update(session, renamed)
    else:
        _rebook(runtime, session, renamed, change, now, gates)
    after = leases.get(session, lease.id)
    for gate in gates:
        gate.after(session, after, now)
    if after.trust_id is None and any_acts_as_user(runtime, after.reservations):
        raise LeaseBusy(f"Lease {lease.id} was changed by others meanwhile: try again")
    if lease.start.delayed_at is not None:  # it may wait for hosts that it does not need any more
        event_queue.run_now(session, lease.id, [START], now)
    outbox.write(session, "lease.update", blazar_wire.payload(after), now)
    return after


def _gates(runtime: Runtime, request: _Request) -> list[Gate]:
    """Return the gates of the optional features that are on for this change, in their order."""
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
    """Store new dates and reservations of the lease, and the bookings and events for them."""
    window = changed_window(lease, change.dates, now)
    for gate in gates:
        gate.before(session, replace(lease, window=window), now, lease)
    if window.end <= now:  # it ends now: it keeps its resources until a manager takes them back
        change = replace(change, reservations=(), added=())
    notices = changed_notices(lease, change.dates, window)
    reservations, leaving = lease.reservations, False
    if change.composes:
        changes = ReservationChanges(change.reservations, change.added, change.removed)
        reservations, leaving = change_reservations(runtime, session, lease, changes, now)
    try:
        grown = reallocate(runtime, session, lease, reservations, window, now)
    except InsufficientResources as shortage:
        wanted = replace(lease, window=window, reservations=reservations)
        raise explain(runtime, session, shortage, wanted, gates, lease) from None
    after = moved(replace(lease, reservations=reservations), window, notices, now)
    leases.update(session, after)
    reschedule(session, lease, after, now)
    unfinished = lease.degraded and bool(change.reservations)
    unfinished |= any(one.planned for one in change.reservations)
    if (grown or unfinished or leaving) and lease.status is LeaseStatus.ACTIVE:
        add_update_event(session, lease, now)


def _write_agreed(runtime: Runtime, enforcer: Enforcer, request: _Request) -> Lease:
    """Change a lease in the way that an enforcement service has agreed to, and in no other.

    A first transaction rehearses the change and rolls back. With no transaction open, the service
    decides about the outcome. A second transaction makes the change with the same choices. If other
    requests have changed the outcome meanwhile, the service is asked again, a few times at most.
    The lease never gives up its resources for this; those that it would gain may be lost.
    """
    for _ in range(_PROPOSALS):
        now, seed = runtime.clock.now(), runtime.rng.random()

        def work(session: Session, now: datetime = now, seed: float = seed) -> _Outcome:
            same = replace(runtime, rng=random.Random(seed))  # noqa: S311 - not a secret
            current = _as_enforced(session, leases.get(session, request.lease_id, lock=True))
            lease = _change(same, session, request, now)
            return _Outcome(lease, current, _as_enforced(session, lease))

        proposed = runtime.database.rehearse(work)
        enforcer.check_update(proposed.current, proposed.new)
        try:
            return runtime.database.write(partial(_as_proposed, work, proposed))
        except _Different:
            continue
    raise LostRace


def _as_proposed(
    work: Callable[[Session], "_Outcome"], proposed: "_Outcome", session: Session
) -> Lease:
    made = work(session)
    if (made.current, made.new) != (proposed.current, proposed.new):
        raise _Different
    return made.lease


def _as_enforced(session: Session, lease: Lease) -> dict[str, Any]:
    """Return the stored lease in the form that an enforcement service gets."""
    return enforcement_body(lease, resources_of(session, [one.id for one in lease.reservations]))
