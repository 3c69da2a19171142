"""Audit of the cloud: find drift between leases and the cloud, and run safe repairs.

Drift is a difference between the state that the leases require and the state of the cloud.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease import on_start
from climate.core.lease.lifecycle import OPEN_EVENT, EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.model import Lease
from climate.core.lease.on_start import Action
from climate.core.lease.schedule import RELENTLESS, START, UPDATE
from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.resources import resources
from climate.manager.audit.invariants import violations
from climate.manager.leases import trusts
from climate.manager.leases.event_plan import add_update_event
from climate.manager.notifications.lease_messages import resources_of
from climate.manager.process.runtime import Runtime, Store
from climate.plugins.base import Drift, ExpectedState, HeldReservation


def audit(runtime: Runtime) -> list[Drift]:
    """Return all drift: differences between the state that leases require and the cloud's state.

    The result also contains the violations of invariants of the database, and the last errors of
    events that failed. No two items of the result have the same description. Raises the errors of
    the plug-ins.
    """
    drifts = [
        drift
        for resource_type, plugin in runtime.plugins.items()
        for drift in plugin.audit(partial(_expected, runtime.database, resource_type))
    ]
    drifts += trusts.orphans(runtime)
    with runtime.database.read() as session:
        drifts += _failures(session)
    drifts += [Drift(f"invariant {number}: {text}") for number, text in violations(runtime.store)]
    # Two resource types may report the same drift, as they use the same part of the cloud.
    return list({drift.description: drift for drift in drifts}.values())


class Repair(Enum):
    """The result of the repair of a drift."""

    DONE = "repaired"
    LEFT_TO_MANAGER = "scheduled"
    IMPOSSIBLE = "found"


def repair(runtime: Runtime, drift: Drift) -> Repair:
    """Repair a drift (a difference between leases and the cloud), or let a manager repair it.

    Returns IMPOSSIBLE if there is no safe repair. Raises the errors of the plug-in.
    """
    if drift.lease_id is not None:
        _retry(runtime.store, drift.lease_id)
        runtime.wakeup.hint()
        return Repair.LEFT_TO_MANAGER
    if drift.repair is None or _is_alive(runtime.database, drift.reservation_id):
        return Repair.IMPOSSIBLE
    drift.repair()
    return Repair.DONE


def _expected(database: Database, resource_type: str) -> ExpectedState:
    with database.read() as session:
        registered = resources.find_all(session, resource_type)
        leases_ = leases.find_all(session, None)
        present = [lease for lease in leases_ if _is_in_cloud(lease)]
        settled = [lease for lease in present if is_settled(lease)]
        running = _holdings(session, settled, resource_type)
        shared = _shared(session, present, resource_type)
    changing = [
        r.id
        for lease in present
        for r in lease.reservations
        if lease not in settled or on_start.state_of(lease, r) in on_start.UNDER_WAY
    ]
    elsewhere = [
        r.id for lease in settled for r in lease.reservations if r.resource_type != resource_type
    ]
    stopped = [
        r.id
        for lease in settled
        for r in lease.reservations
        if on_start.action_for(lease, r) is Action.NONE
    ]
    pending = [lease for lease in leases_ if lease.status is LeaseStatus.PENDING]
    awaited = [r.id for lease in pending if lease not in present for r in lease.reservations]
    return ExpectedState(registered, running, changing, elsewhere, shared, [*awaited, *stopped])


def _failures(session: Session) -> Iterator[Drift]:
    """Yield a drift for each event that failed and is not done, unless its lease is over.

    The drift quotes the last error of the event. If climate retries the event without a limit, the
    repair of the drift is an immediate retry; otherwise the drift has no repair.
    """
    for lease in leases.find_all(session, None):
        for event in lease.events:
            over = lease.status is LeaseStatus.TERMINATED or event.status is EventStatus.DONE
            if event.last_error and not over:
                is_retried = event.kind in RELENTLESS and event.status in OPEN_EVENT
                yield Drift(
                    f"{event.kind} of lease {lease.id} failed: {event.last_error}",
                    lease_id=lease.id if is_retried else None,
                )


def _is_in_cloud(lease: Lease) -> bool:
    """Return whether the cloud may contain objects of the lease."""
    start = lease.event(START)
    begun = start is not None and (start.attempt > 0 or start.status is not EventStatus.UNDONE)
    begun |= lease.start.began_at is not None
    untouched = lease.status is LeaseStatus.PENDING and not begun
    return not untouched and lease.status is not LeaseStatus.TERMINATED


def _is_alive(database: Database, reservation_id: str | None) -> bool:
    """Return whether the reservation belongs to a lease that is not over."""
    with database.read() as session:
        return any(
            reservation.id == reservation_id
            for lease in leases.find_all(session, None)
            if lease.status is not LeaseStatus.TERMINATED
            for reservation in lease.reservations
        )


def is_settled(lease: Lease) -> bool:
    """Return whether the lease is running and no update of it is waiting or in progress."""
    return lease.status is LeaseStatus.ACTIVE and not any(
        event.kind == UPDATE and event.status in OPEN_EVENT for event in lease.events
    )


def _holdings(
    session: Session, settled: Sequence[Lease], resource_type: str
) -> list[HeldReservation]:
    reservations = [
        (lease, reservation)
        for lease in settled
        for reservation in lease.reservations
        if reservation.resource_type == resource_type
        and reservation.status is ReservationStatus.ACTIVE
        and on_start.exists(lease, reservation)
    ]
    held = resources_of(session, [reservation.id for _, reservation in reservations])
    return [
        HeldReservation(lease, reservation, held[reservation.id])
        for lease, reservation in reservations
    ]


def _shared(session: Session, present: Sequence[Lease], resource_type: str) -> set[str]:
    """Return the resources of this type that reservations of other types hold.

    For example, reservations of instances hold hosts. The result contains the external ids (the ids
    in the cloud) of these resources. ``present`` are the leases that may have objects in the cloud,
    such as aggregates or servers; the function examines only the reservations of these leases.
    """
    others = [
        r.id for lease in present for r in lease.reservations if r.resource_type != resource_type
    ]
    return {
        resource.external_id
        for held in resources_of(session, others).values()
        for resource in held
        if resource.type == resource_type
    }


def _retry(store: Store, lease_id: str) -> None:
    """Let a manager once more give the users of a running lease access to the lease's resources.

    If the lease is not running, or has an unfinished update, request an immediate retry of its
    failed start or end instead. If the lease is deleted, do nothing.
    """
    now = store.clock.now()

    def work(session: Session) -> None:
        try:
            lease = leases.get(session, lease_id, lock=True)
        except NotFound:
            return
        if is_settled(lease):
            add_update_event(session, lease, now)
        else:
            event_queue.run_now(session, lease_id, RELENTLESS, now)

    store.database.write(work)
