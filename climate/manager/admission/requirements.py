"""Requirements: convert requests for reservations into reservations and their requirements."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, Protocol

from marshmallow import ValidationError
from sqlalchemy.orm import Session

from climate.core.errors import InvalidInput, InvalidQuery
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import PART, STACK, Reservation
from climate.core.matching import query as expressions
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.settings import Settings
from climate.core.window import Window
from climate.db.resources import resources
from climate.manager.process.runtime import Runtime
from climate.plugins.base import Member, Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """A request for one reservation; the plug-in's schema has validated ``params``.

    ``children`` are requests for the parts of a stack. Each part becomes a separate reservation.
    """

    resource_type: str
    params: Mapping[str, Any]
    children: "tuple[ReservationRequest, ...]" = ()


class Requested(Protocol):
    """A reservation, or a request for one."""

    @property
    def resource_type(self) -> str:
        """The resource type."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the request, validated by the plug-in's schema."""


def look_up(
    runtime: Runtime, resource_type: str, params: Mapping[str, Any], requester: Requester
) -> ReservationRequest:
    """Return a request with data from the plug-in's look-ups in the cloud, and with its children.

    No transaction is open. Raises UnsupportedResourceType, InvalidInput, BackendUnavailable.
    """
    plugin = runtime.plugin(resource_type)
    complete = plugin.look_up(params, requester)
    children = tuple(_child(runtime, child, requester) for child in plugin.members(complete))
    return ReservationRequest(resource_type=resource_type, params=complete, children=children)


def _child(runtime: Runtime, child: Member, requester: Requester) -> ReservationRequest:
    try:
        params = runtime.plugin(child.resource_type).schema().load(child.params)
    except ValidationError as error:
        raise InvalidInput(f"The {child.name} cannot be reserved: {error}") from None
    request = look_up(runtime, child.resource_type, params, requester)
    return replace(request, params={**request.params, PART: child.name})


def new_reservations(
    runtime: Runtime,
    lease_id: str,
    requests: Sequence[ReservationRequest],
    new_id: Callable[[], str],
    now: datetime,
) -> tuple[Reservation, ...]:
    """Return a new reservation for each request, followed by one for each of their children."""
    reservations = [
        new_reservation(runtime, lease_id, request, new_id(), now) for request in requests
    ]
    children = [
        new_reservation(runtime, lease_id, part_of(stack, child), new_id(), now)
        for stack, request in zip(reservations, requests, strict=True)
        for child in request.children
    ]
    return (*reservations, *children)


def part_of(stack: Reservation, child: ReservationRequest) -> ReservationRequest:
    """Return the request ``child`` with the id of its stack's reservation in its parameters."""
    return replace(child, params={**child.params, STACK: stack.id})


def new_reservation(
    runtime: Runtime, lease_id: str, request: ReservationRequest, id_: str, now: datetime
) -> Reservation:
    """Return a new, PENDING reservation for the request; raises UnsupportedResourceType."""
    return Reservation(
        id=id_,
        lease_id=lease_id,
        resource_type=request.resource_type,
        status=ReservationStatus.PENDING,
        params=request.params,
        details=runtime.plugin(request.resource_type).preview_details(id_),
        created_at=now,
        updated_at=None,
    )


def requirements_of(runtime: Runtime, reservation: Requested) -> tuple[Requirement, ...]:
    """Return the requirements of a reservation: several if it needs resources of different queries.

    Raises UnsupportedResourceType.
    """
    return runtime.plugin(reservation.resource_type).requirement(reservation.params).parts


def needs_of(runtime: Runtime, requests: Iterable[ReservationRequest]) -> list[Requirement]:
    """Return the requirements of the requests and their children; omit those for no units."""
    all_requests = chain.from_iterable((request, *request.children) for request in requests)
    parts = chain.from_iterable(requirements_of(runtime, request) for request in all_requests)
    return [part for part in parts if part.maximum]


def any_prepares(runtime: Runtime, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in must prepare any of these reservations before the start."""
    return any(runtime.plugin(r.resource_type).needs_preparation for r in reservations)


def any_acts_as_user(runtime: Runtime, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in must act as the lease's user (with a trust) for any of these."""
    return any(runtime.plugin(r.resource_type).acts_as_user(r.params) for r in reservations)


def check_properties(
    session: Session, runtime: Runtime, requirements: Sequence[Requirement]
) -> None:
    """Raise InvalidQuery if a query names a property that no resource of its type has."""
    for index, requirement in enumerate(requirements):
        if isinstance(requirement.query, Everything):
            continue
        named = expressions.names(requirement.query)
        resource_type = requirement.resource_type
        property_names = runtime.plugin(resource_type).native_properties
        property_names |= runtime.defined.get(resource_type, frozenset())
        if not named <= property_names:
            defined = resources.property_names(session, resource_type)
            runtime.defined[resource_type] = frozenset(defined)
            property_names |= defined
            property_names |= resources.names_in_use(session, resource_type, named - property_names)
            try:
                expressions.check_names(requirement.query, property_names)
            except InvalidQuery as error:
                where = f" (in reservation {index})" if len(requirements) > 1 else ""
                raise InvalidQuery(f"{error.message}{where}") from None


def occupied_window(window: Window, now: datetime, settings: Settings) -> Window:
    """Return the time that a lease occupies: its window from ``now`` on, plus the cleaning time."""
    return Window(max(window.start, now), window.end).busy(settings.cleaning_time)
