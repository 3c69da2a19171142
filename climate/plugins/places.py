"""Things that a project gets at places: floating IPs at addresses, networks on segments.

A place is what is reserved, named by its resource's external id; of all that could be at it the
cloud lets one be there at a time. What is made there for a reservation carries its mark. Owners
can remove marks, so what was made is known by its id, too.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

from marshmallow import fields, post_load, validate

from climate.core.lease import Lease, Reservation, Resource
from climate.plugins.base import Difference, Expected, RequestSchema, ResourcePlugin, do_all
from climate.plugins.places_audit import differences
from climate.plugins.taker import Taker

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
