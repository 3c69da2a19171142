"""The resources that a user names, to give them back or to add them to a reservation.

The functions run before the transaction of the change. The transaction decides again.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from climate.core.errors import Conflict, InvalidInput, ResourcesInUse
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Granted, Lease, Reservation, Resource
from climate.core.matching.property_type import permitted
from climate.core.matching.query import matches
from climate.db.resources import allocations, resources
from climate.manager.admission.resizing.give_back import COUNTS
from climate.manager.process.runtime import Runtime
from climate.plugins.base import ResourcePlugin


@dataclass(frozen=True, slots=True)
class Named:
    """The ids of the resources that leave and join a reservation, and its new ``counts``.

    ``given`` is None if the user names no resources to give back. ``counts`` are the parameters
    for the new number of resources.
    """

    given: frozenset[int] | None
    joining: frozenset[int]
    counts: Mapping[str, int]


def find_named(
    runtime: Runtime,
    lease: Lease,
    reservation: Reservation,
    give_back: Sequence[str],
    add: Sequence[str],
) -> Named:
    """Return the resources that leave and join a reservation by their names or ids.

    No transaction may be open. Raises Conflict if the reservation cannot shrink or grow by name,
    ResourcesInUse if a resource to give back is in use, and InvalidInput if the reservation does
    not have it, or would be empty. Raises InvalidInput if the reservation has a resource to add
    already, or if the project of the lease may book no resource with this name.
    """
    plugin = runtime.catalog.plugins[reservation.resource_type]
    _check_possible(plugin, lease, reservation, is_shrinking=bool(give_back))
    with runtime.database.read() as session:
        held = allocations.held(session, [reservation.id])[reservation.id]
        found = resources.find_some(session, held)
        known = resources.find_named(session, plugin.type_of_resources, add) if add else []
    given = _held_ids(reservation, found.values(), give_back)
    may_book = permitted(runtime.settings.property_types, lease.project_id)
    bookable = [resource for resource in known if matches(may_book, resource.properties)]
    joining = _new_ids(reservation, found, bookable, add)
    left = len(found) - len(given) + len(joining)
    if not left:
        raise InvalidInput(
            f"Reservation {reservation.id} would be empty: remove it, or end the lease"
        )
    _check_unused(plugin, [Granted.of(found[id_], held[id_].amounts) for id_ in sorted(given)])
    more = max(0, len(joining) - len(given))
    return Named(given if give_back else None, joining, _counts(reservation, left, more))


def check_distinct(joining: Collection[Collection[int]]) -> None:
    """Raise InvalidInput if a resource would join several reservations. Takes the ids for each."""
    times = Counter(id_ for ids in joining for id_ in ids)
    if several := sorted(id_ for id_, count in times.items() if count > 1):
        raise InvalidInput(
            f"Resources {', '.join(map(str, several))} would join several reservations:"
            " name each only once"
        )


def _check_possible(
    plugin: ResourcePlugin, lease: Lease, reservation: Reservation, *, is_shrinking: bool
) -> None:
    if is_shrinking and not (lease.status is LeaseStatus.ACTIVE and plugin.gives_back):
        raise Conflict(
            f"Reservation {reservation.id} cannot give back resources by name: only a running"
            " reservation of hosts can"
        )
    if not plugin.gives_back:
        raise Conflict(
            f"Reservation {reservation.id} cannot get resources by name: only a reservation of"
            " hosts can"
        )


def _check_unused(plugin: ResourcePlugin, given: Sequence[Granted]) -> None:
    unused = {resource.id for resource in plugin.unused(given)} if given else set()
    if used := [resource.external_id for resource in given if resource.id not in unused]:
        raise ResourcesInUse(f"{', '.join(used)} has servers: delete them, then give the host back")


def _counts(reservation: Reservation, left: int, more: int) -> dict[str, int]:
    """Return the parameters for ``left`` resources, ``more`` of which the reservation gains."""
    counts = dict.fromkeys(COUNTS & reservation.params.keys(), left)
    if "min" in counts:
        counts["min"] = min(left, reservation.params["min"] + more)
    return counts


def _held_ids(
    reservation: Reservation, held: Collection[Resource], names: Sequence[str]
) -> frozenset[int]:
    by_name = _by_name(held)
    if unknown := [name for name in names if name not in by_name]:
        raise InvalidInput(
            f"Reservation {reservation.id} does not have {', '.join(unknown)}. It has:"
            f" {', '.join(sorted(resource.external_id for resource in held))}"
        )
    return frozenset(by_name[name] for name in names)


def _new_ids(
    reservation: Reservation,
    held: Collection[int],
    bookable: Collection[Resource],
    names: Sequence[str],
) -> frozenset[int]:
    by_name = _by_name(bookable)
    # The same message for a resource of other projects: it must not reveal that it exists.
    if unknown := [name for name in names if name not in by_name]:
        raise InvalidInput(
            f"Reservation {reservation.id} cannot get {', '.join(unknown)}: there is no such host"
        )
    if present := [name for name in names if by_name[name] in held]:
        raise InvalidInput(f"Reservation {reservation.id} has {', '.join(present)} already")
    return frozenset(by_name[name] for name in names)


def _by_name(found: Collection[Resource]) -> dict[str, int]:
    """Return the ids of resources by their ids as text, and by their names, which count more."""
    by_id = {str(resource.id): resource.id for resource in found}
    return {**by_id, **{resource.external_id: resource.id for resource in found}}
