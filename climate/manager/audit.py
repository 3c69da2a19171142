"""The audit: leases against the cloud, and the repair of what is safe to repair."""

from collections.abc import Iterator, Sequence
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.lifecycle import OPEN_EVENT, EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import RELENTLESS, START, UPDATE, Planned
from climate.db import events, leases
from climate.db.resources import resources
from climate.manager import trusts
from climate.manager.announcements import resources_of
from climate.manager.drafts import new_event
from climate.manager.runtime import Runtime
from climate.manager.self_audit import violations
from climate.plugins.base import Drift, ExpectedState, HeldReservation


def audit(runtime: Runtime) -> list[Drift]:
    """Return all differences between leases and the cloud, and what breaks an invariant.

    Raises what a plugin raises.
    """
    found = [
        difference
        for resource_type, plugin in runtime.plugins.items()
        for difference in plugin.audit(partial(_expected, runtime, resource_type))
    ]
    found += trusts.orphans(runtime)
    with runtime.database.read() as session:
        found += _failures(session)
    found += [Drift(f"invariant {number}: {what}") for number, what in violations(runtime)]
    # Two types may be looked after by the same part of the cloud.
    return list({difference.description: difference for difference in found}.values())


def repair(runtime: Runtime, difference: Drift) -> bool:
    """Repair one difference; False if that is not safe. Raises what a plugin raises."""
    if difference.lease_id is not None:
        _do_again(runtime, difference.lease_id)
        return True
    if difference.repair is None or _is_alive(runtime, difference.reservation_id):
        return False
    difference.repair()
    return True


def _expected(runtime: Runtime, resource_type: str) -> ExpectedState:
    with runtime.database.read() as session:
        registered = resources.find_all(session, resource_type)
        leases_ = leases.find_all(session, None)
        present = [one for one in leases_ if _is_in_cloud(one)]
        settled = [one for one in present if _is_settled(one)]
        running = _holdings(session, settled, resource_type)
        shared = _shared(session, present, resource_type)
    changing = [r.id for one in present if one not in settled for r in one.reservations]
    elsewhere = [
        r.id for one in settled for r in one.reservations if r.resource_type != resource_type
    ]
    pending = [one for one in leases_ if one not in present and one.status is LeaseStatus.PENDING]
    awaited = [r.id for one in pending for r in one.reservations]
    return ExpectedState(registered, running, changing, elsewhere, shared, awaited)


def _failures(session: Session) -> Iterator[Drift]:
    """Say which events of leases that are not over failed for good or keep failing, and why.

    Those that are tried for ever can be tried at once.
    """
    for lease in leases.find_all(session, None):
        for event in lease.events:
            over = lease.status is LeaseStatus.TERMINATED or event.status is EventStatus.DONE
            if event.last_error and not over:
                goes_on = event.kind in RELENTLESS and event.status in OPEN_EVENT
                yield Drift(
                    f"{event.kind} of lease {lease.id} failed: {event.last_error}",
                    lease_id=lease.id if goes_on else None,
                )


def _is_in_cloud(lease: Lease) -> bool:
    """Tell whether a pool may be there for the lease."""
    start = lease.event(START)
    begun = start is not None and (start.attempt > 0 or start.status is not EventStatus.UNDONE)
    untouched = lease.status is LeaseStatus.PENDING and not begun
    return not untouched and lease.status is not LeaseStatus.TERMINATED


def _is_alive(runtime: Runtime, reservation_id: str | None) -> bool:
    """Tell whether a lease that is not over has the reservation."""
    with runtime.database.read() as session:
        return any(
            reservation.id == reservation_id
            for lease in leases.find_all(session, None)
            if lease.status is not LeaseStatus.TERMINATED
            for reservation in lease.reservations
        )


def _is_settled(lease: Lease) -> bool:
    """Tell whether the lease runs, and no manager is at it or about to be."""
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
    ]
    held = resources_of(session, [reservation.id for _, reservation in reservations])
    return [HeldReservation(lease, mine, held[mine.id]) for lease, mine in reservations]


def _shared(session: Session, present: Sequence[Lease], resource_type: str) -> set[str]:
    """Return the resources of the type of which reservations of other types have some."""
    others = [r.id for one in present for r in one.reservations if r.resource_type != resource_type]
    return {
        one.external_id
        for held in resources_of(session, others).values()
        for one in held
        if one.type == resource_type
    }


def _do_again(runtime: Runtime, lease_id: str) -> None:
    """Have a manager hand the lease's resources over again, if it still runs by then.

    If its start or end has failed, that is tried again.
    """
    now = runtime.clock.now()

    def work(session: Session) -> None:
        try:
            lease = leases.get(session, lease_id, lock=True)
        except NotFound:
            return
        if _is_settled(lease):
            leases.insert_events(session, [new_event(lease_id, Planned(UPDATE, now), now)])
        else:
            events.hurry(session, lease_id, RELENTLESS, now)

    runtime.database.write(work)
    runtime.wakeup.hint()
