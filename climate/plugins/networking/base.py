"""What floating IPs and networks have in common: exclusive endpoints, their plug-in and audit.

A place is a registered address or segment, named by the external id of its resource. The cloud
allows one occupant per place at a time: a floating IP at an address, or a network on a segment.
What climate creates for a reservation carries a mark. Owners can remove marks, so climate also
stores the id.

The audit compares the registered places with their leases. It ignores everything else in the
cloud, which may belong to another reservation service.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from marshmallow import fields, post_load, validate

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.base import (
    Difference,
    Expected,
    Holding,
    RequestSchema,
    ResourcePlugin,
    do_all,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """What is at a place; with a ``reservation_id`` it was made for that reservation.

    ``is_marked`` says whether its owner can see that, too; ``port_id`` where it is in use, and
    ``network_id`` in which network, where several may have a place of the same name.
    """

    what: str
    id: str
    place: str
    project_id: str
    network_id: str | None = None
    port_id: str | None = None
    reservation_id: str | None = None
    is_marked: bool = True

    def __str__(self) -> str:
        """Say which it is and whose."""
        return f"{self.what} {self.id} of project {self.project_id}"

    def is_at_any(self, resources: Iterable[Resource]) -> bool:
        """Tell whether it is at one of these places, or at none of such a name."""
        same = [one for one in resources if one.external_id == self.place]
        networks = {one.properties.get("network_id") for one in same}
        return not same or self.network_id is None or self.network_id in networks


class AuditedCloud(Protocol):
    """What an audit needs of a PlaceCloud."""

    def takers(self, places: Collection[str], reservation_id: str | None = None) -> Sequence[Taker]:
        """Return what is at the places."""

    def delete(self, taker: Taker) -> None:
        """Delete it."""


def differences(
    cloud: AuditedCloud, expected: Callable[[], Expected], key: str
) -> Iterator[Difference]:
    """Name every difference; reservations that a manager is at are left out.

    What was made for one is by its id under ``key`` of its details.
    """
    registered = expected().registered
    found = cloud.takers([one.external_id for one in registered]) if registered else []
    there = [one for one in found if one.is_at_any(registered)]
    told = expected()
    running = {holding.reservation.id: holding for holding in told.running}
    for holding in told.running:
        yield from _of_running(holding, there, _made(holding, key))
    known = running.keys() | set(told.changing)
    promised = {
        (resource.external_id, holding.lease.project_id)
        for holding in told.running
        if holding.reservation.params["on_start"] == "nothing"
        for resource in holding.resources
    }
    made = {id_ for one in told.running for id_ in _made(one, key).values()}
    for one in there:
        if one.reservation_id is not None and one.reservation_id not in known:
            yield Difference(
                f"{one} has {one.place} for reservation {one.reservation_id}, which does not run",
                partial(cloud.delete, one),
                reservation_id=one.reservation_id,
            )
        unexplained = one.id not in made and (one.place, one.project_id) not in promised
        if one.reservation_id is None and unexplained:
            yield Difference(f"{one.place} can be reserved, and {one} has it")


def _of_running(
    holding: Holding, there: Sequence[Taker], made: Mapping[str, str]
) -> Iterator[Difference]:
    """Compare a running reservation; the manager does it over again to repair it."""
    if holding.reservation.params["on_start"] == "nothing":
        return
    mine = f"reservation {holding.reservation.id} of lease {holding.lease.id}"
    has = {
        one.place
        for one in there
        if one.reservation_id == holding.reservation.id or one.id in made.values()
    }
    for resource in holding.resources:
        if resource.reservable and resource.external_id not in has:
            yield Difference(f"{mine} lacks {resource.external_id}", lease_id=holding.lease.id)
    for place in sorted(has - {resource.external_id for resource in holding.resources}):
        yield Difference(f"{mine} has {place}, which is not its own", lease_id=holding.lease.id)


def _made(holding: Holding, key: str) -> Mapping[str, str]:
    found: Mapping[str, str] = holding.reservation.details.get(key, {})
    return found


CREATE, NOTHING = "create", "nothing"
DELETE, KEEP = "delete", "keep"


class Taken(RuntimeError):
    """Somebody else has the place."""


class PlaceCloud(Protocol):
    """What must be known and done about places, however a cloud does it."""

    def takers(self, places: Collection[str], reservation_id: str | None = None) -> Sequence[Taker]:
        """Return what is at the places, or is marked as the reservation's."""

    def create(self, lease: Lease, mine: Reservation, place: Resource) -> str:
        """Make what can be told to be the reservation's; return its id.

        Fails if the place is taken.
        """

    def mark(self, taker_id: str, reservation_id: str) -> None:
        """Show its owner which reservation it is of; may be done again."""

    def unmark(self, taker_id: str) -> None:
        """Leave it to its owner, as if it had never been of a reservation; fine if it is gone."""

    def delete(self, taker: Taker) -> None:
        """Delete it, wherever it is in use; fine if it is gone."""


class PlaceSchema(RequestSchema):
    """What can be asked of the life of what is made at places."""

    on_start = fields.String(
        load_default=CREATE, allow_none=True, validate=validate.OneOf([CREATE, NOTHING])
    )
    on_end = fields.String(
        load_default=DELETE, allow_none=True, validate=validate.OneOf([DELETE, KEEP])
    )

    @post_load
    def _life(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Read null as the default."""
        return {
            **data,
            "on_start": data["on_start"] or CREATE,
            "on_end": data["on_end"] or DELETE,
        }


class PlacePlugin(ResourcePlugin):
    """A type whose resources are places; what is made there is the project's for the time."""

    #: The key of a reservation's details under which are the ids of what was made, by place.
    made: ClassVar[str]
    cloud: PlaceCloud

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Make what is to be there, unless places are only promised.

        A place that fails joins when it works.
        """
        if reservation.params["on_start"] == NOTHING:
            return {}
        there = self._there(reservation, resources)
        mine = {one.place: one for one in there if self._is_of(one, lease, reservation)}
        others = {one.place: one for one in there if one.place not in mine}
        wanted = {one.external_id for one in resources}
        do_all(*(partial(self.cloud.delete, mine[one]) for one in mine.keys() - wanted))
        made: dict[str, str] = {}

        def ensure(resource: Resource) -> None:
            place = resource.external_id
            if place in others:
                raise Taken(f"{place} is taken by {others[place]}")
            made[place] = self._made(lease, reservation, resource, mine.get(place))

        working = [one for one in resources if one.reservable or one.external_id in mine]
        do_all(*(partial(ensure, resource) for resource in working))
        return {self.made: made}

    def _made(
        self, lease: Lease, reservation: Reservation, resource: Resource, there: Taker | None
    ) -> str:
        """Return the id of what is at a place, made and marked if need be."""
        if there is not None and there.is_marked:
            return there.id
        id_ = self.cloud.create(lease, reservation, resource) if there is None else there.id
        self.cloud.mark(id_, reservation.id)
        return id_

    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        """Delete it, wherever it is in use, or leave it to the project."""
        there = self._there(reservation, resources)
        mine = [one for one in there if self._is_of(one, lease, reservation)]
        if reservation.params["on_end"] == KEEP:
            do_all(*(partial(self.cloud.unmark, one.id) for one in mine))
        else:
            do_all(*(partial(self.cloud.delete, one) for one in mine))

    def audit(self, expected: Callable[[], Expected]) -> Iterable[Difference]:
        """Compare what is at registered places with what leases have."""
        return differences(self.cloud, expected, self.made)

    def taken(self, registered: Sequence[Resource]) -> set[str]:
        """Return the places that somebody has without a lease."""
        places = [one.external_id for one in registered]
        there = self.cloud.takers(places) if places else []
        strangers = [one for one in there if one.reservation_id is None]
        return {one.place for one in strangers if one.is_at_any(registered)}

    def _there(self, reservation: Reservation, resources: Sequence[Resource]) -> Sequence[Taker]:
        places = {one.external_id for one in resources} | self._known(reservation).keys()
        there = self.cloud.takers(sorted(places), reservation.id)
        return [one for one in there if one.is_at_any(resources)]

    def _known(self, reservation: Reservation) -> Mapping[str, str]:
        found: Mapping[str, str] = reservation.details.get(self.made, {})
        return found

    def _is_of(self, one: Taker, lease: Lease, reservation: Reservation) -> bool:
        """Tell whether something is the reservation's, also if its owner removed the marks.

        Where places were only promised, whatever the project made of them is.
        """
        if one.project_id != lease.project_id:
            return False
        if one.reservation_id is None and reservation.params["on_start"] == NOTHING:
            return True
        known = self._known(reservation).values()
        return one.reservation_id == reservation.id or one.id in known
