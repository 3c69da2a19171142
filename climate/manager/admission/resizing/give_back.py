"""Give-backs: a running reservation shrinks, and gives back resources that its users do not use.

1. Before the transaction, ``find_unused`` asks the plug-in which resources are unused. If the user
   names the resources to give back, ``by_name`` checks that they are unused.
2. In the transaction, the bookings of these resources move to a new reservation, which leaves the
   lease like a removed one. An ``update_lease`` event reclaims its resources. Other
   leases cannot book them before that.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import Conflict, ResourcesInUse
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import HANDED_OVER, LEAVING, Granted, Lease, Reservation
from climate.core.matching.requirement import Requirement
from climate.db.engine import ids
from climate.db.leases import leases
from climate.db.resources import allocations, resources
from climate.manager.process.runtime import Runtime

# The parameters that say how many units to reserve.
COUNTS = frozenset({"min", "max", "amount"})
# Reservations of a lease that are over, after which it gives nothing back: each give-back adds one.
MAX_OVER = 100


def find_unused(
    runtime: Runtime, lease: Lease, reservation: Reservation, params: Mapping[str, Any]
) -> frozenset[int] | None:
    """Return the ids of resources that the reservation can give back, as many as it has too many.

    ``params`` are the new parameters of the reservation. The result has fewer ids if users use the
    other resources. It is None if the reservation does not run, has none too many, or if its
    resource type cannot give back resources. The function reads from the cloud, so no transaction
    may be open.
    """
    plugin = runtime.catalog.plugins[reservation.resource_type]
    if lease.status is not LeaseStatus.ACTIVE or not plugin.gives_back:
        return None
    with runtime.database.read() as session:
        held = allocations.held(session, [reservation.id])[reservation.id]
        found = resources.find_some(session, held)
    count = len(found) - plugin.requirement(params).maximum
    if count <= 0:
        return None
    granted = [Granted.of(found[id_], held[id_].amounts) for id_ in sorted(found, reverse=True)]
    granted.sort(key=lambda resource: resource.reservable)  # those that fail come first
    return frozenset(item.id for item in islice(plugin.unused(granted), count))


def check_count(lease: Lease, count: int) -> None:
    """Raise Conflict if the lease has too many reservations that are over for ``count`` more."""
    if count and sum(not r.stays for r in lease.reservations) + count > MAX_OVER:
        raise Conflict(
            f"Lease {lease.id} has {MAX_OVER} reservations that are over, so it cannot give"
            " anything back any more: keep its size, or end it and create another lease"
        )


def store(
    runtime: Runtime,
    session: Session,
    shrunk: Sequence[tuple[Reservation, Collection[int]]],
    named: Mapping[str, int],
    position: int,
    now: datetime,
) -> bool:
    """Move surplus resources to new reservations, which leave the lease; return whether any moved.

    ``shrunk`` contains reservations with their new parameters, and the resources that they can give
    back. Those with an id in ``named`` give back exactly these; the value is the number of those
    that join in exchange. ``position`` is the position of the first new reservation in the lease.
    Raises ResourcesInUse if users use too many of the resources, and Conflict if the named ones are
    not what the reservation has too many.
    """
    leaving = []
    for reservation, unused in shrunk:
        plugin = runtime.catalog.plugins[reservation.resource_type]
        requirement = plugin.requirement(reservation.params)
        joining = named.get(reservation.id)
        given = _surplus(session, reservation, requirement, unused, joining)
        if given:
            new = _leaving(reservation, given, ids.repeatable(runtime.rng), now)
            leaving.append((reservation.id, new, given))
    leases.insert_reservations(session, [new for _, new, _ in leaving], position)
    for id_, new, given in leaving:
        allocations.hand_on(session, id_, new.id, given)
    return bool(leaving)


def _surplus(
    session: Session,
    reservation: Reservation,
    requirement: Requirement,
    unused: Collection[int],
    joining: int | None,
) -> list[int]:
    held = allocations.held(session, [reservation.id])[reservation.id]
    count = max(0, len(held) + (joining or 0) - requirement.maximum)
    given = sorted(held.keys() & set(unused))[:count]
    if joining is not None and (len(given) < count or set(given) != set(unused)):
        raise Conflict(
            f"Reservation {reservation.id} has {len(held)} {requirement.noun} and max"
            f" {requirement.maximum}, so it cannot give back exactly the {len(unused)} named:"
            " leave out max, or try again if it has just changed"
        )
    if len(given) < count:
        raise ResourcesInUse(
            f"Reservation {reservation.id} has {len(held)} {requirement.noun} and would give back"
            f" {count}, but only {len(given)} of them have no servers: delete the servers on the"
            f" {requirement.noun} that you give back"
        )
    return given


def _leaving(
    reservation: Reservation, given: Sequence[int], new_id: str, now: datetime
) -> Reservation:
    counts = dict.fromkeys(COUNTS & reservation.params.keys(), len(given))
    return replace(
        reservation,
        id=new_id,
        params={**reservation.params, **counts},
        details={LEAVING: True, HANDED_OVER: [*given]},
        missing_resources=False,
        resources_changed=False,
        created_at=now,
        updated_at=None,
    )
