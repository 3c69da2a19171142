"""Soft promises: a request with a fixed start takes the place of promised bookings."""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import LEASE, LeaseStatus, step
from climate.core.lease.model import Event, Lease
from climate.core.lease.schedule import EXPIRE, Planned
from climate.core.lease.wait_list import Wait
from climate.core.notifications import event_type
from climate.core.window import Window
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import leases, waits
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.manager.admission.admission import InsufficientResources, dry_run
from climate.manager.admission.availability import matching
from climate.manager.admission.candidates import Demand
from climate.manager.admission.requirements import occupied_by
from climate.manager.leases.create import LeaseRequest, OnShortage, Owner, create_lease
from climate.manager.leases.idempotency import IdempotentRequest
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list.placing import locked


def create_before_promises(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    idempotent: IdempotentRequest | None = None,
) -> Lease:
    """Create a lease with a fixed start; withdraw promised bookings for it if promises are soft.

    If promises are firm, this is ``create_lease``, which has the same parameters and errors.
    """
    is_firm = runtime.settings.wait_list.is_firm
    make_room: OnShortage | None = None if is_firm else partial(_in_place_of_promises, runtime)
    return create_lease(runtime, owner, request, idempotent, make_room)


def _in_place_of_promises(
    runtime: Runtime,
    lease: Lease,
    demands: Sequence[Demand],
    shortage: InsufficientResources,
    store: Callable[[Session], None],
) -> None:
    """Withdraw promised bookings until a new lease fits, and store it, in one transaction.

    ``store`` books and stores the lease. Raises ``shortage`` if that is in vain.
    """

    def work(session: Session) -> None:
        if not _make_room(runtime, session, lease, demands, lease.created_at):
            raise shortage
        store(session)

    runtime.database.write(work)


def _make_room(
    runtime: Runtime, session: Session, lease: Lease, demands: Sequence[Demand], now: datetime
) -> bool:
    """Withdraw promised bookings, in this transaction, until a new lease fits; return whether.

    The last leases in the wait list lose their bookings first. No lease loses its booking if enough
    is free by now, or if the calendar in memory was wrong. If the result is False, the caller must
    roll back.
    """
    busy, preference = occupied_by(lease, now, runtime.settings), runtime.preference()
    wanted = {id_ for item in demands for id_ in matching(session, item.requirement, preference)}
    types = {demand.requirement.resource_type for demand in demands}
    pools = [pool for pool in waits.pools(session) if types & _booked_types(runtime, pool)]
    promised = [wait for pool in pools for wait in waits.promised(session, pool, now)]
    is_withdrawn = False
    for wait in sorted(promised, key=lambda wait: (wait.rank_at, wait.lease_id), reverse=True):
        victim = locked(session, wait.lease_id)
        if victim is None or victim.has_begun:
            continue
        if not _booked(runtime, victim).overlaps(busy):
            continue
        if not _holds_any(session, victim, wanted):
            continue
        if dry_run(session, demands, busy, preference) is not None:
            return True
        _withdraw(session, victim, wait, now)
        is_withdrawn = True
    return is_withdrawn and dry_run(session, demands, busy, preference) is not None


def _booked_types(runtime: Runtime, pool: str) -> set[str]:
    """Return the types of the resources that the leases of a pool book, such as hosts."""
    names = [name for name in pool.split(",") if name in runtime.plugins]
    return {runtime.plugins[name].booked_type or name for name in names}


def _booked(runtime: Runtime, lease: Lease) -> Window:
    """Return the time for which a pending lease has booked resources."""
    cleaning_time = runtime.settings.cleaning_time
    return Window(lease.booked_from, lease.busy_until(lease.window.end, cleaning_time))


def _holds_any(session: Session, lease: Lease, resource_ids: AbstractSet[int]) -> bool:
    """Return whether the lease has booked one of these resources: else its booking is no help."""
    held = allocations.held(session, [reservation.id for reservation in lease.reservations])
    return any(resource_ids & booked.keys() for booked in held.values())


def _withdraw(session: Session, lease: Lease, wait: Wait, now: datetime) -> None:
    """Take the booking from a lease that the caller has locked; the lease waits again.

    Its place in the list stays.
    """
    allocations.release(session, [reservation.id for reservation in lease.reservations])
    event_queue.remove(session, [event.id for event in lease.events])
    expire = Event.planned(Planned(EXPIRE, max(wait.until, now)), lease.id, ids.new_id(), now)
    leases.insert_events(session, [expire])
    status = step(LEASE, lease.status, LeaseStatus.WAITING)
    start = replace(lease.start, ready_at=None)
    waiting = replace(lease, status=status, start=start, degraded=False, updated_at=now)
    leases.update(session, waiting)
    waits.promise(session, lease.id, None)
    payload = blazar_wire.payload(waiting)
    outbox.write(session, event_type.LEASE_PROMISE_WITHDRAWN, payload, now, lease.window)
