"""The common part of the plug-ins for floating IPs and networks, and their audit.

Both reserve *endpoints*: an endpoint is an IP address or a network segment. The cloud allows one
*occupant* per endpoint: a floating IP at the address, or a network on the segment. climate marks
the occupants that it creates with the id of the reservation. The project that owns an occupant can
remove the mark, so climate also stores the ids of the occupants that it has created. The audit
ignores endpoints that are not registered, because they may belong to another reservation service.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from marshmallow import fields, validate

from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import CREATE, MANUAL, NOTHING, Lease, Reservation, Resource
from climate.plugins.base import (
    DELETE,
    KEEP,
    Drift,
    ExpectedState,
    HeldReservation,
    ResourcePlugin,
    run_all,
)
from climate.plugins.request_fields import DefaultingSchema, titled


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """A floating IP at an address, or a network on a segment.

    - ``what`` is the kind of occupant as a text for messages.
    - ``network_id`` is the network of the address, because several networks can have equal
      addresses. None: unknown.
    - ``port_id`` is the port to which a floating IP is connected.
    - ``reservation_id`` is the reservation for which climate created the occupant. None: climate
      did not create it.
    - ``is_marked`` says whether the owner can see the reservation's id in the cloud.
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
        """Return False if ``resources`` contain the occupant's address, but only in other networks.

        Such an occupant does not use any of the resources: several networks can have equal
        addresses. Return True if one of the resources has the occupant's address and network, if
        none has its address, or if its network is unknown.
        """
        same = [resource for resource in resources if resource.external_id == self.endpoint]
        networks = {resource.properties.get("network_id") for resource in same}
        return not same or self.network_id is None or self.network_id in networks


class EndpointTaken(RuntimeError):
    """Raised if the floating IP or network of another owner uses a reserved endpoint.

    An endpoint is an address or a segment.
    """


class EndpointCloud(Protocol):
    """Interface of a driver for a cloud in which climate reserves addresses or segments.

    An endpoint is an address or a segment. An occupant is a floating IP or network that uses it.
    All methods except ``create`` are idempotent.
    """

    def occupants(
        self, endpoints: Collection[str], reservation_id: str | None = None
    ) -> Sequence[Occupant]:
        """Return the floating IPs or networks that use these addresses or segments.

        If ``reservation_id`` is set, also return all that climate created for this reservation.
        """

    def create(self, lease: Lease, reservation: Reservation, endpoint: Resource) -> str:
        """Create a floating IP at an address, or a network on a segment; return its id.

        The new object contains the reservation's id. Fails if the address or segment is in use.
        """

    def mark(self, occupant_id: str, reservation_id: str) -> None:
        """Mark a floating IP or network with a reservation's id, visible to the object's owner."""

    def unmark(self, occupant_id: str) -> None:
        """Remove climate's marks from a floating IP or network, if the object still exists."""

    def delete(self, occupant: Occupant) -> None:
        """Delete a floating IP or network, even if it is in use; do nothing if it is missing."""


def find_drifts(
    cloud: EndpointCloud,
    expected: Callable[[], ExpectedState],
    created_by: Callable[[Reservation], Mapping[str, str]],
) -> Iterator[Drift]:
    """Yield the differences between the cloud's floating IPs or networks, and the leases.

    Reservations in ``ExpectedState.changing`` are ignored. ``created_by`` returns the ids of the
    floating IPs or networks that climate created for a reservation, by address or segment.
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
    """Yield the differences between the cloud and a running reservation.

    ``created`` contains the ids of the occupants that climate created for the reservation, by
    address or segment. To repair a difference, a manager starts the reservation again.
    """
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
    """The parameters that reservations of addresses and reservations of segments have in common.

    The parameters say what climate does at the start and at the end of a reservation.
    """

    on_start = fields.String(
        load_default=CREATE,
        allow_none=True,
        validate=validate.OneOf([CREATE, NOTHING, MANUAL]),
        metadata=titled(
            "At the start",
            "nothing: you create it yourself; manual: climate creates it when you start the"
            " reservation.",
        ),
    )
    on_end = fields.String(
        load_default=DELETE,
        allow_none=True,
        validate=validate.OneOf([DELETE, KEEP]),
        metadata=titled("At the end", "keep: your project keeps it after the lease."),
    )


def _is_adopted(occupant: Occupant, lease: Lease, reservation: Reservation) -> bool:
    """Return whether a running reservation adopts a floating IP or network without a mark.

    The project of the lease created it, for instance while ``on_start`` was ``nothing``.
    """
    is_running = reservation.status is ReservationStatus.ACTIVE
    is_of_project = occupant.project_id == lease.project_id
    return is_running and is_of_project and occupant.reservation_id is None


class EndpointPlugin(ResourcePlugin):
    """Base class of the plug-ins that reserve endpoints: addresses or segments.

    At the start of a reservation, the plug-in creates a floating IP or a network for each endpoint.
    The lease's project owns these objects.
    """

    #: The key in a reservation's details; its value maps endpoints to the ids of occupants.
    details_key: ClassVar[str]
    cloud: EndpointCloud

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Create the missing floating IPs or networks, unless ``on_start`` is ``nothing``.

        First delete floating IPs or networks at endpoints that the reservation no longer has. An
        endpoint is an address or a segment. Returns ``{details_key: ids}``, where ``ids`` maps
        endpoints to floating IPs or networks. Raises EndpointTaken if another owner uses an
        endpoint.
        """
        if reservation.params["on_start"] == NOTHING:
            return {}
        present = self._occupants(reservation, resources)
        reserved = {resource.external_id for resource in resources}
        own = {
            each.endpoint: each
            for each in present
            if self._is_of(each, lease, reservation)
            or (each.endpoint in reserved and _is_adopted(each, lease, reservation))
        }
        others = {each.endpoint: each for each in present if each.endpoint not in own}
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
        """Return the id of the endpoint's floating IP or network.

        ``present`` is the existing object. If it is None, create the object. Afterwards, mark the
        object if it has no mark.
        """
        if present is not None and present.is_marked and present.reservation_id is not None:
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
        """Return the names of the addresses or segments that are in use without a reservation."""
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
        """Return the ids of the floating IPs or networks that climate created for a reservation.

        The keys are addresses or segments. climate stores this mapping in the reservation's
        details.
        """
        ids: Mapping[str, str] = reservation.details.get(self.details_key, {})
        return ids

    def _is_of(self, occupant: Occupant, lease: Lease, reservation: Reservation) -> bool:
        """Return whether the floating IP or network ``occupant`` belongs to the reservation.

        The object must be in the lease's project, and one of these must be true:

        - The object is marked with the reservation's id.
        - The reservation's details contain the object's id. The owner may have removed the mark.
        - The object has no mark, and ``on_start`` is ``nothing``: a user may have created it.
        """
        if occupant.project_id != lease.project_id:
            return False
        if occupant.reservation_id is None and reservation.params["on_start"] == NOTHING:
            return True
        known = self._ids(reservation).values()
        return occupant.reservation_id == reservation.id or occupant.id in known
