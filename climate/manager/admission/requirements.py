"""Requirements: what a request needs from admission, checked, and for which time."""

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
    """A request for one reservation; the plug-in's schema has checked ``params``.

    ``children`` are the parts of a stack, each of which is a reservation of its own.
    """

    resource_type: str
    params: Mapping[str, Any]
    children: "tuple[ReservationRequest, ...]" = ()


class Requested(Protocol):
    """A reservation, or a request for one."""

    @property
    def resource_type(self) -> str:
        """The type of its resources."""

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of the request."""


def look_up(
    runtime: Runtime, resource_type: str, params: Mapping[str, Any], requester: Requester
) -> ReservationRequest:
    """Return a request completed with what the cloud says about the things it names.

    The caller has no transaction open. Raises UnsupportedResourceType, InvalidInput,
    BackendUnavailable.
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
    """Return a reservation for each request, and after all of them those of their children."""
    made = [new_reservation(runtime, lease_id, request, new_id(), now) for request in requests]
    children = [
        new_reservation(runtime, lease_id, part_of(stack, child), new_id(), now)
        for stack, request in zip(made, requests, strict=True)
        for child in request.children
    ]
    return (*made, *children)


def part_of(stack: Reservation, child: ReservationRequest) -> ReservationRequest:
    """Return the request for a child as a part of the stack's reservation."""
    return replace(child, params={**child.params, STACK: stack.id})


def new_reservation(
    runtime: Runtime, lease_id: str, request: ReservationRequest, id_: str, now: datetime
) -> Reservation:
    """Return a reservation for the request; raises UnsupportedResourceType."""
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
    """Return what admission must find, in one or more parts; raises UnsupportedResourceType."""
    return runtime.plugin(reservation.resource_type).requirement(reservation.params).parts


def needs_of(runtime: Runtime, requests: Iterable[ReservationRequest]) -> list[Requirement]:
    """Return all that admission must find for requests and their children."""
    everything = chain.from_iterable((request, *request.children) for request in requests)
    parts = chain.from_iterable(requirements_of(runtime, request) for request in everything)
    return [part for part in parts if part.maximum]


def any_prepares(runtime: Runtime, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in prepares something in the cloud before the start of any of these."""
    return any(runtime.plugin(one.resource_type).needs_preparation for one in reservations)


def any_acts_as_user(runtime: Runtime, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in acts as the lease's user for any of these: that takes a trust."""
    return any(runtime.plugin(one.resource_type).acts_as_user(one.params) for one in reservations)


def check_properties(
    session: Session, runtime: Runtime, requirements: Sequence[Requirement]
) -> None:
    """Raise InvalidQuery if an expression names a property that no resource of its type has."""
    for index, requirement in enumerate(requirements):
        if isinstance(requirement.query, Everything):
            continue
        named = expressions.names(requirement.query)
        resource_type = requirement.resource_type
        known = runtime.plugin(resource_type).native_properties
        known |= runtime.defined.get(resource_type, frozenset())
        if not named <= known:
            defined = resources.property_names(session, resource_type)
            runtime.defined[resource_type] = frozenset(defined)
            known |= defined
            known |= resources.names_in_use(session, resource_type, named - known)
            try:
                expressions.check_names(requirement.query, known)
            except InvalidQuery as error:
                where = f" (in reservation {index})" if len(requirements) > 1 else ""
                raise InvalidQuery(f"{error.message}{where}") from None


def occupied_window(window: Window, now: datetime, settings: Settings) -> Window:
    """Return the time that resources are occupied for: not the past, and with cleaning time."""
    return Window(max(window.start, now), window.end).busy(settings.cleaning_time)
