"""Healing: replace failed resources of leases by free ones.

Each lease is healed in its own transaction. If no free resource can replace a failed one, the lease
keeps the failed one. Which resources count as failed depends on the lease:

- Pending lease: all resources that are not reservable now.
- Running lease: only resources that have stopped running ("lost"), because users have data on the
  others.
- Running lease, reservations with the flag ``missing_resources``: all resources that are not
  reservable now.

If a running lease gets replacements, healing adds an ``update_lease`` event, which is due now: with
it, a manager gives the users access to the replacements.

The flags have Blazar's names. A reservation has ``missing_resources`` while one of its resources
has failed and has no replacement. It has ``resources_changed`` once healing has replaced a resource
while the lease was running. A lease is ``degraded`` while one of these is true:

- One of its reservations has ``missing_resources``.
- Users cannot use one of its working resources yet.
- A removed reservation still has resources.
- climate cannot reserve what users have changed in the cloud (``audit.changes_in_cloud``).
- A reservation that a user starts or stops has not reached the new state.

Unlike Blazar, healing clears ``missing_resources`` and ``degraded``; it never clears
``resources_changed``.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, NotFound
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import OPEN_EVENT, LeaseStatus, ReservationStatus
from climate.core.lease.model import (
    CREATED_AFTER,
    HANDED_OVER,
    LEAVING,
    NOT_RESERVED,
    SHARES,
    UNAPPLIED,
    Lease,
    Reservation,
)
from climate.core.lease.on_start import UNDER_WAY
from climate.core.lease.schedule import UPDATE
from climate.core.matching.packing import first
from climate.core.matching.query import matches
from climate.core.matching.requirement import Requirement
from climate.core.notifications import event_type
from climate.core.window import Window
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.resources import allocations, resources
from climate.db.resources.allocations import Held
from climate.manager.admission.admission import admit, rows
from climate.manager.admission.candidates import Demand
from climate.manager.admission.requirements import by_reservation, occupied_by
from climate.manager.leases.event_plan import add_update_event, create_again
from climate.manager.process.runtime import Runtime
from climate.observability import log_context

LOG = logging.getLogger(__name__)

_UNFINISHED = frozenset(ReservationStatus) - {ReservationStatus.DELETED}
_HEALABLE = frozenset({LeaseStatus.PENDING, LeaseStatus.ACTIVE})


def heal_all(runtime: Runtime, lost: Collection[int]) -> None:
    """Replace failed resources in all leases that run now or start soon.

    "Soon" means within ``healing_interval``; if this setting is None, the function heals all
    pending leases. ``lost`` contains the ids of resources that have stopped running. If one lease
    cannot be healed, the function logs this and continues with the other leases.
    """
    now, ahead = runtime.clock.now(), runtime.settings.healing_interval
    if ahead and runtime.settings.creation:  # some leases need their resources before the start
        ahead += timedelta(seconds=runtime.settings.creation.policy.longest)
    with runtime.database.read() as session:
        failing_leases = leases.ailing(session, now, now + ahead if ahead else None)
    for lease_id in failing_leases:
        with log_context.about(lease_id):
            try:
                runtime.database.write(partial(heal, runtime, lost, lease_id))
            except ClimateError as error:
                LOG.warning(
                    "cannot replace the failed resources of lease %s: %s", lease_id, error.message
                )
    if failing_leases:
        runtime.wakeup.hint()


def heal(runtime: Runtime, lost: Collection[int], lease_id: str, session: Session) -> None:
    """Replace failed resources of one lease by free ones, and store the new flags of the lease.

    ``lost`` contains the ids of resources that have stopped running. The module's docstring
    explains which resources count as failed, and what the flags mean. Does nothing if the lease is
    over or deleted.
    """
    now = runtime.clock.now()
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return
    if lease.status not in _HEALABLE or lease.window.end <= now:
        return
    live = [reservation for reservation in lease.reservations if reservation.stays]
    held = allocations.held(session, [reservation.id for reservation in live])
    everything = {id_ for ids in held.values() for id_ in ids}
    working = resources.reservable(session, everything)
    free = _free(lease)
    # A reservation keeps its missing_resources flag until its resources work.
    failing = {
        r.id: sorted(
            held[r.id].keys()
            & (everything - working if r.id in free or r.missing_resources else set(lost))
        )
        for r in live
    }
    occupied = occupied_by(lease, now, runtime.settings)
    parts = by_reservation(runtime.catalog, live, lease.project_id)
    broken = {id_: _by_requirement(session, parts[id_], ids) for id_, ids in failing.items() if ids}
    gained = {
        id_: _replace(runtime, session, id_, groups, held[id_], occupied)
        for id_, groups in broken.items()
    }
    if any(gained.values()):
        create_again(session, lease, now)
    missing = {id_ for id_, ids in failing.items() if len(ids) > gained.get(id_, 0)}
    _flag(session, lease, missing, gained, now)


def _free(lease: Lease) -> set[str]:
    """Return the ids of the reservations on whose resources there is nothing yet.

    climate may have created servers for a pending lease already.
    """
    if lease.status is not LeaseStatus.PENDING:
        return set()
    used = {each.id for each in lease.reservations if CREATED_AFTER in each.details}
    return {r.id for r in lease.reservations if not used.intersection((r.id, r.stack_id))}


def _replace(
    runtime: Runtime,
    session: Session,
    reservation_id: str,
    failing: Sequence[tuple[Requirement, list[int]]],
    held: Mapping[int, Held],
    occupied: Window,
) -> int:
    """Replace the ``failing`` resources of a reservation by free ones; return how many it replaced.

    ``failing`` contains these resources by the requirement that they match. ``held`` contains the
    present bookings of the reservation by resource id. The replacements must be free during
    ``occupied``: until the end of the cleaning time after the lease. A resource may hold several
    units of the reservation, such as virtual instances. A resource is replaced only if free
    resources can take all its units.
    """
    replaced: list[int] = []
    for requirement, ids in failing:
        lost_units = {id_: requirement.units(held[id_].amounts) for id_ in ids}
        demand = Demand(
            reservation_id=reservation_id,
            requirement=replace(requirement, minimum=0, maximum=sum(lost_units.values())),
            beside=held.keys() - lost_units.keys(),
        )
        [free] = admit(session, [demand], occupied, runtime.preference())
        given_up: list[int] = []
        for id_ in ids:
            if sum(lost_units[other] for other in (*given_up, id_)) <= sum(free.values()):
                given_up.append(id_)
        if given_up:
            replacements = first(free, sum(lost_units[id_] for id_ in given_up))
            allocations.give_up(session, reservation_id, given_up)
            allocations.take(session, rows([demand], [replacements], occupied))
        replaced += given_up
    return len(replaced)


def _by_requirement(
    session: Session, parts: Sequence[Requirement], ids: Sequence[int]
) -> list[tuple[Requirement, list[int]]]:
    """Group resources of a reservation by the requirement that they match.

    ``parts`` are the requirements, ``ids`` the ids of the resources. Returns pairs: a requirement,
    and the ids of its resources. A resource that matches no requirement any more is listed with the
    last requirement. Requirements without resources are left out.
    """
    records = resources.find_some(session, ids)
    shares: dict[int, list[int]] = {}
    for id_ in ids:
        fits = (
            n for n, part in enumerate(parts) if matches(part.condition, records[id_].properties)
        )
        shares.setdefault(next(fits, len(parts) - 1), []).append(id_)
    return [(parts[number], share) for number, share in sorted(shares.items())]


def _flag(
    session: Session,
    lease: Lease,
    missing: Collection[str],
    gained: Mapping[str, int],
    now: datetime,
) -> None:
    """Set or clear the flags of a lease and its reservations after its resources were replaced.

    ``missing`` contains the ids of the reservations with a failed resource that was not replaced:
    only these reservations get the flag ``missing_resources``. ``gained`` contains the number of
    replaced resources by reservation id. The module's docstring explains when a lease is
    ``degraded``. If the lease changed, the function writes a ``lease.update`` notification.
    """
    running = lease.status is LeaseStatus.ACTIVE
    live = [reservation for reservation in lease.reservations if reservation.stays]
    for r in live:
        flags = {
            "missing_resources": r.id in missing,
            "resources_changed": r.resources_changed or (running and gained.get(r.id, 0) > 0),
        }
        if tuple(flags.values()) != (r.missing_resources, r.resources_changed):
            leases.set_reservation(session, r.id, now, **flags)
    short = bool(missing)
    leaving = any(LEAVING in r.details and r.status in _UNFINISHED for r in lease.reservations)
    unapplied = any(UNAPPLIED in r.details or r.run_state in UNDER_WAY for r in live)
    behind = running and (leaving or unapplied or _is_behind(session, live))
    waiting = any(event.kind == UPDATE and event.status in OPEN_EVENT for event in lease.events)
    if behind and not waiting:
        add_update_event(session, lease, now)
    degraded = short or behind or any(NOT_RESERVED in r.details for r in live)
    if any(gained.values()) or degraded != lease.degraded:
        leases.update(session, replace(lease, degraded=degraded, updated_at=now))
        state = "is degraded" if degraded else "is complete"
        LOG.warning(
            "lease %s got %s new resource(s), and %s", lease.id, sum(gained.values()), state
        )
        payload = blazar_wire.payload(leases.get(session, lease.id))
        outbox.write(session, event_type.LEASE_UPDATE, payload, now)


def _is_behind(session: Session, live: Sequence[Reservation]) -> bool:
    """Return whether the reservations ``live`` have a working resource that users cannot use yet.

    For example, the resource is booked as a replacement, but no plug-in has given users access yet.
    """
    held = allocations.held(session, [reservation.id for reservation in live])
    working = resources.reservable(session, {id_ for ids in held.values() for id_ in ids})
    return any(
        id_ in working and not _is_handed_over(reservation, id_, held[reservation.id])
        for reservation in live
        for id_ in held[reservation.id]
    )


def _is_handed_over(reservation: Reservation, resource_id: int, held: Mapping[int, Held]) -> bool:
    """Return whether users have access to a resource, in the amounts that are booked now.

    An amount is, for example, 4 VCPU. ``held`` contains the bookings of the reservation by resource
    id. The details of a reservation list the resources to which users have access. If an older
    release of climate started the reservation, there is no such list, and the users have access to
    all resources of the reservation.
    """
    amounts = dict(held[resource_id].amounts)
    shares = reservation.details.get(SHARES, {}).get(str(resource_id), amounts)
    unlisted = () if reservation.status is ReservationStatus.PENDING else held
    return shares == amounts and resource_id in reservation.details.get(HANDED_OVER, unlisted)
