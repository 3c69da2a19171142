"""Previews: what a request to create or change a lease would do, without storing anything.

A dry run executes the request in a transaction and then rolls it back. The preview states how many
units each reservation requires and how many are free. The numbers for a reservation ignore the
other reservations of the lease, and treat the lease's own bookings as free. They are for the whole
window of the lease.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.lease.model import Lease, Reservation
from climate.core.matching.requirement import Requirement
from climate.db.resources import allocations
from climate.db.resources.allocations import Held, Named
from climate.manager.admission.candidates import (
    Demand,
    find_all_candidates,
    most_units,
    with_room,
)
from climate.manager.admission.limits import limits
from climate.manager.admission.limits.limits import Account
from climate.manager.admission.requirements import by_reservation, occupied_by
from climate.manager.admission.window_search import MAX_REQUIREMENTS
from climate.manager.process.runtime import Runtime

# The number of free resources in a preview of a reservation.
_RESOURCES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCapacity:
    """How much capacity one reservation requires, and how much is free.

    Capacity is counted in units: hosts, instances and so on, depending on the resource type.
    ``asked`` is the required number of units. ``free`` is the number of units that are free during
    the whole window. ``matching`` is the number of resources that match the query, free or not.
    ``resources`` are the first matching resources with a free unit, ordered by id. If the lease has
    too many reservations to count all, ``free`` and ``matching`` are None, and ``resources`` is
    empty.
    """

    resource_type: str
    asked: int
    free: int | None = None
    matching: int | None = None
    resources: Sequence[Named] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The lease that climate would store for a request, and the capacity and limits that apply.

    ``reservations`` contains the capacity for each reservation, in the order of the lease's
    reservations; removed reservations are left out. ``accounts`` contains the limits of the
    requester's project and user, and their use after the request (None: no limits apply).
    ``not_checked`` names services that a dry run does not call, so a real request may still fail
    there.
    """

    lease: Lease
    reservations: Sequence[FreeCapacity]
    accounts: Sequence[Account] | None
    not_checked: Sequence[str]


def free_capacity(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    now: datetime,
    held: Mapping[str, Mapping[int, Held]],
) -> list[FreeCapacity]:
    """Return the required and the free capacity for each reservation of a lease.

    Removed reservations are left out. If ``lease.window`` ends at or before ``now``, the list is
    empty.

    ``held`` contains the lease's allocations (bookings) by reservation id and resource id. The
    caller has deleted these allocations in this transaction, so their resources are free. The
    function counts even failed resources in ``held`` as free, because the lease may keep them.
    """
    if lease.window.end <= now:
        return []
    occupied = occupied_by(lease, now, runtime.settings)
    live = [reservation for reservation in lease.reservations if reservation.stays]
    parts = by_reservation(runtime.catalog, live, lease.project_id)
    demands = [
        Demand(reservation_id=id_, requirement=part)
        for id_, requirements in parts.items()
        for part in requirements
    ][:MAX_REQUIREMENTS]
    candidates = find_all_candidates(session, demands, occupied, runtime.preference())
    counted: dict[str, list[tuple[int, int, list[int]]]] = {r.id: [] for r in live}
    for index, demand in enumerate(demands):
        matching = allocations.count(session, demand.requirement) if demand.maximum else 0
        numbers = most_units(candidates, index), matching, with_room(candidates, index)
        counted[demand.reservation_id].append(numbers)
    return [_capacity(session, r, parts[r.id], counted[r.id], held.get(r.id, {})) for r in live]


def _capacity(
    session: Session,
    reservation: Reservation,
    parts: Sequence[Requirement],
    counted: Sequence[tuple[int, int, list[int]]],
    held: Mapping[int, Held],
) -> FreeCapacity:
    asked = sum(part.minimum for part in parts)
    if len(counted) < len(parts):
        return FreeCapacity(resource_type=reservation.resource_type, asked=asked)
    units = sum(parts[0].units(share.amounts) for share in held.values())
    ids = {*held, *(id_ for _, _, free_ids in counted for id_ in free_ids)}
    named = allocations.names(session, sorted(ids)[:_RESOURCES])
    return FreeCapacity(
        resource_type=reservation.resource_type,
        asked=asked,
        free=max(units, sum(free for free, _, _ in counted)),
        matching=sum(matching for _, matching, _ in counted),
        resources=tuple(named.values()),
    )


def use_after(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    requester: tuple[str, str, Sequence[str]],
    now: datetime,
) -> list[Account] | None:
    """Return the limits of the requester's project and user, and their use after the request.

    The numbers include the uncommitted changes of this transaction. ``requester`` is a tuple of
    user id, project id and roles.

    The project is left out if ``lease`` belongs to another project. The user is left out if
    ``lease`` belongs to another user. Returns None if both are left out, or if no limits apply.
    """
    user_id, project_id, roles = requester
    settings = runtime.settings.limits
    if not settings.apply_to(lease.project_id, lease.user_id, roles):
        return None
    own = limits.parties_of(project_id, user_id)
    parties = [
        party for party in limits.parties_of(lease.project_id, lease.user_id) if party in own
    ]
    return limits.accounts(session, settings, parties, now) if parties else None
