"""Healing: replace the resources of leases that fail, as far as others are free.

Each lease is one transaction. Its other bookings stay. A working resource that fits replaces each
failed one; without a replacement the lease keeps it and marks it as missing. A lease that has not
started gives up all resources that cannot be booked now; a running lease, which has users' data on
them, only those that are lost. An ``update_lease`` event that is due at once hands over the
replacements. The flags are those of Blazar's API, but healing clears them: ``missing_resources``
while a resource fails without a replacement; ``degraded`` during that, and until everything is
handed over and taken back. ``resources_changed`` stays set.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, NotFound
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import OPEN_EVENT, LeaseStatus, ReservationStatus
from climate.core.lease.model import HANDED_OVER, LEAVING, SHARES, Lease, Reservation
from climate.core.lease.schedule import UPDATE
from climate.core.matching.packing import first
from climate.core.matching.query import matches
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.resources import allocations, resources
from climate.db.resources.allocations import Held
from climate.manager.admission.admission import admit, rows
from climate.manager.admission.candidates import Demand
from climate.manager.admission.requirements import occupied_window, requirements_of
from climate.manager.leases.event_plan import add_update_event
from climate.manager.process.runtime import Runtime
from climate.observability import log_context

LOG = logging.getLogger(__name__)

_TAKEN = frozenset(ReservationStatus) - {ReservationStatus.DELETED}
_HEALED = frozenset({LeaseStatus.PENDING, LeaseStatus.ACTIVE})


def heal_all(runtime: Runtime, lost: Collection[int]) -> None:
    """Heal the leases that have, now or within the healing interval, resources that fail.

    ``lost`` are the ids of resources that do not run any more. A lease that cannot be healed does
    not stop the others from being healed.
    """
    now, ahead = runtime.clock.now(), runtime.settings.healing_interval
    with runtime.database.read() as session:
        concerned = leases.ailing(session, now, now + ahead if ahead else None)
    for lease_id in concerned:
        with log_context.about(lease_id):
            try:
                runtime.database.write(partial(heal, runtime, lost, lease_id))
            except ClimateError as error:
                LOG.warning("lease %s is not healed: %s", lease_id, error.message)
    if concerned:
        runtime.wakeup.hint()


def heal(runtime: Runtime, lost: Collection[int], lease_id: str, session: Session) -> None:
    """Replace the failing resources of one lease as far as possible, and flag the rest."""
    now = runtime.clock.now()
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return
    if lease.status not in _HEALED or lease.window.end <= now:
        return
    live = [reservation for reservation in lease.reservations if reservation.stays]
    held = allocations.held(session, [reservation.id for reservation in live])
    everything = {id_ for ids in held.values() for id_ in ids}
    working = resources.reservable(session, everything)
    pending = lease.status is LeaseStatus.PENDING
    # A resource that is marked as missing stays so until it works.
    failing = {
        r.id: sorted(
            held[r.id].keys()
            & (everything - working if pending or r.missing_resources else set(lost))
        )
        for r in live
    }
    occupied = occupied_window(lease.window, now, runtime.settings)
    gained = {
        reservation.id: _replace(
            runtime, session, reservation, held[reservation.id], failing[reservation.id], occupied
        )
        for reservation in live
        if failing[reservation.id]
    }
    _flag(session, lease, live, failing, gained, now)


def _replace(
    runtime: Runtime,
    session: Session,
    reservation: Reservation,
    held: Mapping[int, Held],
    failing: Sequence[int],
    occupied: Window,
) -> int:
    """Replace failing resources by others; return how many were replaced.

    A resource is given up when other resources have room for all that was taken of it.
    """
    replaced: list[int] = []
    for requirement, ids in _shared_out(session, requirements_of(runtime, reservation), failing):
        short = {id_: requirement.units(held[id_].amounts) for id_ in ids}
        demand = Demand(
            reservation_id=reservation.id,
            requirement=replace(requirement, minimum=0, maximum=sum(short.values())),
            beside=held.keys() - short.keys(),
        )
        [found] = admit(session, [demand], occupied, runtime.preference())
        given_up: list[int] = []
        for id_ in ids:
            if sum(short[one] for one in (*given_up, id_)) <= sum(found.values()):
                given_up.append(id_)
        if given_up:
            taken = first(found, sum(short[id_] for id_ in given_up))
            allocations.give_up(session, reservation.id, given_up)
            allocations.take(session, rows([demand], [taken], occupied))
        replaced += given_up
    return len(replaced)


def _shared_out(
    session: Session, parts: Sequence[Requirement], ids: Sequence[int]
) -> list[tuple[Requirement, list[int]]]:
    """Return each part of a requirement with those of ``ids`` that match it.

    Resources that match no part (any more) belong to the last one.
    """
    known = resources.find_some(session, ids)
    shares: dict[int, list[int]] = {}
    for id_ in ids:
        fits = (n for n, part in enumerate(parts) if matches(part.query, known[id_].properties))
        shares.setdefault(next(fits, len(parts) - 1), []).append(id_)
    return [(parts[number], share) for number, share in sorted(shares.items())]


def _flag(
    session: Session,
    lease: Lease,
    live: Sequence[Reservation],
    failing: Mapping[str, Sequence[int]],
    gained: Mapping[str, int],
    now: datetime,
) -> None:
    """Store the flags of the lease and its reservations; notify if that is a change."""
    running = lease.status is LeaseStatus.ACTIVE
    for reservation in live:
        missing = len(failing[reservation.id]) > gained.get(reservation.id, 0)
        changed = reservation.resources_changed or (running and gained.get(reservation.id, 0) > 0)
        if (missing, changed) != (reservation.missing_resources, reservation.resources_changed):
            leases.set_reservation(
                session, reservation.id, now, missing_resources=missing, resources_changed=changed
            )
    short = any(len(failing[r.id]) > gained.get(r.id, 0) for r in live)
    leaving = any(LEAVING in r.details and r.status in _TAKEN for r in lease.reservations)
    behind = running and (leaving or _is_behind(session, live))
    waiting = any(event.kind == UPDATE and event.status in OPEN_EVENT for event in lease.events)
    if behind and not waiting:
        add_update_event(session, lease, now)
    degraded = short or behind
    if any(gained.values()) or degraded != lease.degraded:
        leases.update(session, replace(lease, degraded=degraded, updated_at=now))
        LOG.warning("lease %s: %s replaced, still short: %s", lease.id, dict(gained), short)
        outbox.write(
            session, "lease.update", blazar_wire.payload(leases.get(session, lease.id)), now
        )


def _is_behind(session: Session, live: Sequence[Reservation]) -> bool:
    """Return whether a working resource was not handed over."""
    held = allocations.held(session, [reservation.id for reservation in live])
    working = resources.reservable(session, {id_ for ids in held.values() for id_ in ids})
    return any(
        id_ in working and not _has(reservation, id_, held[reservation.id])
        for reservation in live
        for id_ in held[reservation.id]
    )


def _has(reservation: Reservation, resource_id: int, held: Mapping[int, Held]) -> bool:
    """Return whether a resource was handed over, with the amounts that it has now."""
    amounts = dict(held[resource_id].amounts)
    known = reservation.details.get(SHARES, {}).get(str(resource_id), amounts)
    return known == amounts and resource_id in _handed_over(reservation, held)


def _handed_over(reservation: Reservation, held: Collection[int]) -> Collection[int]:
    """Return the resources handed over; all, if an older release did it and wrote no list."""
    pending = reservation.status is ReservationStatus.PENDING
    return reservation.details.get(HANDED_OVER, () if pending else held)  # type: ignore[no-any-return]
