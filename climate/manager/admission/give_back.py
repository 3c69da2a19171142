"""Give-backs: a running reservation shrinks, and gives back resources that its users do not use.

1. Before the transaction, ``find_unused`` asks the plug-in which resources are unused. If the user
   names the resources to give back, ``find_named`` checks that they are unused.
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

from climate.core.errors import Conflict, InvalidInput, ResourcesInUse
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import HANDED_OVER, LEAVING, Granted, Lease, Reservation, Resource
from climate.core.matching.requirement import Requirement
from climate.db.engine import ids
from climate.db.leases import leases
from climate.db.resources import allocations, resources
from climate.manager.process.runtime import Runtime

# The parameters that say how many units to reserve.
_COUNTS = frozenset({"min", "max", "amount"})


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


def find_named(
    runtime: Runtime, lease: Lease, reservation: Reservation, names: Sequence[str]
) -> tuple[frozenset[int], dict[str, int]]:
    """Return the ids of the resources with these names, and the parameters for the smaller number.

    A name is the id or the name of a resource that the reservation has. No transaction may be open.
    Raises Conflict if the reservation cannot give back resources, ResourcesInUse if one of them is
    in use, and InvalidInput if the reservation does not have it, or would be empty.
    """
    plugin = runtime.catalog.plugins[reservation.resource_type]
    if lease.status is not LeaseStatus.ACTIVE or not plugin.gives_back:
        raise Conflict(
            f"Reservation {reservation.id} cannot give back resources by name: only a running"
            " reservation of hosts can"
        )
    with runtime.database.read() as session:
        held = allocations.held(session, [reservation.id])[reservation.id]
        found = resources.find_some(session, held)
    named = _named(reservation, found, names)
    left = len(found) - len(named)
    if not left:
        raise InvalidInput(
            f"Reservation {reservation.id} would be empty: remove it, or end the lease"
        )
    granted = [Granted.of(found[id_], held[id_].amounts) for id_ in named]
    unused = {resource.id for resource in plugin.unused(granted)}
    if used := [found[id_].external_id for id_ in named if id_ not in unused]:
        raise ResourcesInUse(f"{', '.join(used)} has servers: delete them, then give the host back")
    counts = dict.fromkeys(_COUNTS & reservation.params.keys(), left)
    if "min" in counts:
        counts["min"] = min(left, reservation.params["min"])
    return frozenset(named), counts


def _named(
    reservation: Reservation, held: Mapping[int, Resource], names: Sequence[str]
) -> list[int]:
    by_name = {name: id_ for id_, found in held.items() for name in (found.external_id, str(id_))}
    if unknown := [name for name in names if name not in by_name]:
        raise InvalidInput(
            f"Reservation {reservation.id} does not have {', '.join(unknown)}. It has:"
            f" {', '.join(sorted(found.external_id for found in held.values()))}"
        )
    return sorted({by_name[name] for name in names})


def store(
    runtime: Runtime,
    session: Session,
    shrunk: Sequence[tuple[Reservation, Collection[int]]],
    named: Collection[str],
    position: int,
    now: datetime,
) -> bool:
    """Move surplus resources to new reservations, which leave the lease; return whether any moved.

    ``shrunk`` contains reservations with their new parameters, and the resources that they can give
    back. Those with an id in ``named`` give back exactly these. ``position`` is the position of the
    first new reservation in the lease. Raises ResourcesInUse if users use too many of the
    resources, and Conflict if the named ones are not what the reservation has too many.
    """
    leaving = []
    for reservation, unused in shrunk:
        plugin = runtime.catalog.plugins[reservation.resource_type]
        exactly = unused if reservation.id in named else None
        requirement = plugin.requirement(reservation.params)
        given = _surplus(session, reservation, requirement, unused, exactly)
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
    exactly: Collection[int] | None,
) -> list[int]:
    held = allocations.held(session, [reservation.id])[reservation.id]
    count = max(0, len(held) - requirement.maximum)
    given = sorted(held.keys() & set(unused))[:count]
    if exactly is not None and set(given) != set(exactly):
        raise Conflict(
            f"Reservation {reservation.id} has {len(held)} {requirement.noun} and max"
            f" {requirement.maximum}, so it cannot give back exactly the {len(exactly)} named:"
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
    counts = dict.fromkeys(_COUNTS & reservation.params.keys(), len(given))
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
