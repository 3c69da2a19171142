"""The shared base of floating IPs and networks: exclusive endpoints, their plug-in and audit.

An endpoint is an address or a segment, registered as a resource. Its name is the external id of
the resource. The cloud allows one occupant per endpoint: a floating IP at an address, or a network
on a segment. climate marks the occupants that it creates with their reservation. The project that
owns an occupant can remove the mark, so climate also stores the ids of its occupants. The audit
ignores endpoints that are not registered: they may belong to another reservation service.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from marshmallow import fields, validate

from climate.core.lease.model import Lease, Reservation, Resource
from climate.plugins.base import (
    CREATE,
    DELETE,
    KEEP,
    NOTHING,
    DefaultingSchema,
    Drift,
    ExpectedState,
    HeldReservation,
    ResourcePlugin,
    run_all,
    titled,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """A floating IP or network at an endpoint.

    ``what`` is its kind, for messages. ``reservation_id`` is the id of the reservation for which
    climate created it, or None. With ``is_marked`` the owner of the occupant can see this
    reservation, too. ``port_id`` is the port of a server to which it is connected. ``network_id``
    distinguishes endpoints of the same name in several networks; None means unknown.
    """

    what: str
    id: str
    endpoint: str
    project_id: str
    network_id: str | None = None
    port_id: str | None = None
    reservation_id: str | None = None
    is_marked: bool = True

    def __str__(self) -> str:
        return f"{self.what} {self.id} of project {self.project_id}"

    def is_at_any(self, resources: Iterable[Resource]) -> bool:
        """Tell whether the occupant is at one of these endpoints.

        Also true if no resource has the occupant's endpoint as its name, or if the occupant's
        network is unknown.
        """
        same = [resource for resource in resources if resource.external_id == self.endpoint]
        networks = {resource.properties.get("network_id") for resource in same}
        return not same or self.network_id is None or self.network_id in networks


class EndpointTaken(RuntimeError):
    """An endpoint has an occupant that does not belong to the reservation."""


class EndpointCloud(Protocol):
    """A cloud in which climate reserves endpoints. All methods but ``create`` are idempotent."""

    def occupants(
        self, endpoints: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Occupant]:
        """Return the occupants of the endpoints, and all occupants of the reservation."""

    def create(self, lease: Lease, reservation: Reservation, endpoint: Resource) -> str:
        """Create an occupant that names the reservation; return its id.

        Fails if the endpoint is taken.
        """

    def mark(self, occupant_id: str, reservation_id: str) -> None:
        """Mark an occupant with its reservation, so that its owner can see the reservation."""

    def unmark(self, occupant_id: str) -> None:
        """Remove climate's marks from an occupant; succeeds if the occupant is gone."""

    def delete(self, occupant: Occupant) -> None:
        """Delete an occupant, even if it is in use; succeeds if the occupant is gone."""


def find_drifts(
    cloud: EndpointCloud,
    expected: Callable[[], ExpectedState],
    created_by: Callable[[Reservation], Mapping[str, str]],
) -> Iterator[Drift]:
    """Yield every difference between occupants and leases.

    Ignores reservations in ``ExpectedState.changing``. ``created_by`` returns the ids of the
    occupants that climate created for a reservation, by endpoint.
    """
    registered = expected().registered
    listed = cloud.occupants([each.external_id for each in registered]) if registered else []
    occupants = [occupant for occupant in listed if occupant.is_at_any(registered)]
    state = expected()
    for held in state.running:
        yield from _drifts_of_running(held, occupants, created_by(held.reservation))
    known = {held.reservation.id for held in state.running} | set(state.changing)
    promised = {
        (resource.external_id, held.lease.project_id)
        for held in state.running
        if held.reservation.params["on_start"] == NOTHING
        for resource in held.resources
    }
    created = {id_ for held in state.running for id_ in created_by(held.reservation).values()}
    for occupant in occupants:
        id_ = occupant.reservation_id
        if id_ is not None and id_ not in known:
            yield Drift(
                f"{occupant} has {occupant.endpoint} for reservation {id_}, which does not run",
                partial(cloud.delete, occupant),
                reservation_id=id_,
            )
        is_promised = (occupant.endpoint, occupant.project_id) in promised
        if id_ is None and occupant.id not in created and not is_promised:
            yield Drift(f"{occupant.endpoint} can be reserved, and {occupant} has it")


def _drifts_of_running(
    held: HeldReservation, occupants: Sequence[Occupant], created: Mapping[str, str]
) -> Iterator[Drift]:
    """Yield how the cloud differs from a running reservation; ``start`` can repair it."""
    if held.reservation.params["on_start"] == NOTHING:
        return
    subject = f"reservation {held.reservation.id} of lease {held.lease.id}"
    occupied = {
        occupant.endpoint
        for occupant in occupants
        if occupant.reservation_id == held.reservation.id or occupant.id in created.values()
    }
    for resource in held.resources:
        if resource.reservable and resource.external_id not in occupied:
            yield Drift(f"{subject} lacks {resource.external_id}", lease_id=held.lease.id)
    for endpoint in sorted(occupied - {resource.external_id for resource in held.resources}):
        yield Drift(f"{subject} has {endpoint}, which is not its own", lease_id=held.lease.id)


class EndpointSchema(DefaultingSchema):
    """The parameters for the actions at the start and at the end of a reservation."""

    on_start = fields.String(
        load_default=CREATE,
        allow_none=True,
        validate=validate.OneOf([CREATE, NOTHING]),
        metadata=titled("At the start", "nothing: you create it yourself."),
    )
    on_end = fields.String(
        load_default=DELETE,
        allow_none=True,
        validate=validate.OneOf([DELETE, KEEP]),
        metadata=titled("At the end", "keep: your project keeps it after the lease."),
    )


class EndpointPlugin(ResourcePlugin):
    """Base of plug-ins for endpoints, whose occupants belong to the lease's project."""

    #: The key in a reservation's details; its value maps endpoints to the ids of occupants.
    details_key: ClassVar[str]
    cloud: EndpointCloud

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Create the missing occupants, unless ``on_start`` is ``nothing``.

        Deletes the reservation's occupants of endpoints that it no longer has. Returns the ids of
        the occupants by endpoint, under ``details_key``. Raises EndpointTaken.
        """
        if reservation.params["on_start"] == NOTHING:
            return {}
        present = self._occupants(reservation, resources)
        own = {each.endpoint: each for each in present if self._is_of(each, lease, reservation)}
        others = {each.endpoint: each for each in present if each.endpoint not in own}
        reserved = {resource.external_id for resource in resources}
        run_all(*(partial(self.cloud.delete, own[name]) for name in own.keys() - reserved))
        ids: dict[str, str] = {}

        def ensure(resource: Resource) -> None:
            name = resource.external_id
            if name in others:
                raise EndpointTaken(f"{name} is taken by {others[name]}")
            ids[name] = self._ensure_occupant(lease, reservation, resource, own.get(name))

        working = [each for each in resources if each.reservable or each.external_id in own]
        run_all(*(partial(ensure, resource) for resource in working))
        return {self.details_key: ids}

    def _ensure_occupant(
        self, lease: Lease, reservation: Reservation, resource: Resource, present: Occupant | None
    ) -> str:
        """Create and mark the occupant of an endpoint if necessary; return its id."""
        if present is not None and present.is_marked:
            return present.id
        id_ = self.cloud.create(lease, reservation, resource) if present is None else present.id
        self.cloud.mark(id_, reservation.id)
        return id_

    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        present = self._occupants(reservation, resources)
        own = [each for each in present if self._is_of(each, lease, reservation)]
        if reservation.params["on_end"] == KEEP:
            run_all(*(partial(self.cloud.unmark, occupant.id) for occupant in own))
        else:
            run_all(*(partial(self.cloud.delete, occupant) for occupant in own))

    def audit(self, expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        return find_drifts(self.cloud, expected, self._ids)

    def taken(self, registered: Sequence[Resource]) -> set[str]:
        """Return the names of the endpoints with an occupant that has no reservation."""
        endpoints = [resource.external_id for resource in registered]
        present = self.cloud.occupants(endpoints) if endpoints else []
        strangers = [each for each in present if each.reservation_id is None]
        return {each.endpoint for each in strangers if each.is_at_any(registered)}

    def _occupants(
        self, reservation: Reservation, resources: Sequence[Resource]
    ) -> Sequence[Occupant]:
        names = {resource.external_id for resource in resources} | self._ids(reservation).keys()
        present = self.cloud.occupants(sorted(names), reservation.id)
        return [occupant for occupant in present if occupant.is_at_any(resources)]

    def _ids(self, reservation: Reservation) -> Mapping[str, str]:
        """Return the ids of the occupants that climate created, by endpoint."""
        ids: Mapping[str, str] = reservation.details.get(self.details_key, {})
        return ids

    def _is_of(self, occupant: Occupant, lease: Lease, reservation: Reservation) -> bool:
        """Tell whether an occupant is the reservation's, even if its owner removed the marks.

        With ``on_start`` ``nothing``, this includes unmarked occupants of the lease's project.
        """
        if occupant.project_id != lease.project_id:
            return False
        if occupant.reservation_id is None and reservation.params["on_start"] == NOTHING:
            return True
        known = self._ids(reservation).values()
        return occupant.reservation_id == reservation.id or occupant.id in known
