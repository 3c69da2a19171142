"""Requirements: convert requests for reservations into reservations and their requirements."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from marshmallow import ValidationError
from sqlalchemy.orm import Session

from climate.core.errors import InvalidInput, InvalidQuery
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import PART, STACK, Reservation
from climate.core.matching import query as expressions
from climate.core.matching.expression import MAX_CONDITIONS
from climate.core.matching.query import Everything, Query
from climate.core.matching.requirement import Requirement
from climate.core.settings import Settings
from climate.core.window import Window
from climate.db.engine import ids
from climate.db.resources import resources
from climate.manager.process.runtime import Catalog
from climate.plugins.base import Member, Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """A request for one reservation; the plug-in's schema has validated ``params``.

    ``children`` are requests for the parts of a stack. Each part becomes a separate reservation.
    """

    resource_type: str
    params: Mapping[str, Any]
    children: "tuple[ReservationRequest, ...]" = ()


Requested = Reservation | ReservationRequest


def look_up(
    catalog: Catalog, resource_type: str, params: Mapping[str, Any], requester: Requester
) -> ReservationRequest:
    """Return a request with data from the plug-in's look-ups in the cloud, and with its children.

    No transaction is open. Raises UnsupportedResourceType, InvalidInput, BackendUnavailable.
    """
    plugin = catalog.plugins[resource_type]
    complete = plugin.look_up(params, requester)
    children = tuple(_child(catalog, child, requester) for child in plugin.members(complete))
    return ReservationRequest(resource_type=resource_type, params=complete, children=children)


def _child(catalog: Catalog, child: Member, requester: Requester) -> ReservationRequest:
    try:
        params = catalog.plugins[child.resource_type].schema().load(child.params)
    except ValidationError as error:
        raise InvalidInput(f"The {child.name} cannot be reserved: {error}") from None
    request = look_up(catalog, child.resource_type, params, requester)
    return replace(request, params={**request.params, PART: child.name})


def new_reservations(
    catalog: Catalog,
    lease_id: str,
    requests: Sequence[ReservationRequest],
    now: datetime,
) -> tuple[Reservation, ...]:
    """Return a new reservation for each request, and then one for each child of a request."""
    reservations = [
        new_reservation(catalog, lease_id, request, ids.new_id(), now) for request in requests
    ]
    children = [
        new_reservation(catalog, lease_id, part_of(stack, child), ids.new_id(), now)
        for stack, request in zip(reservations, requests, strict=True)
        for child in request.children
    ]
    return (*reservations, *children)


def part_of(stack: Reservation, child: ReservationRequest) -> ReservationRequest:
    """Return the request ``child`` with the id of its stack's reservation in its parameters."""
    return replace(child, params={**child.params, STACK: stack.id})


def new_reservation(
    catalog: Catalog, lease_id: str, request: ReservationRequest, id_: str, now: datetime
) -> Reservation:
    """Return a new, PENDING reservation for the request; raises UnsupportedResourceType."""
    return Reservation(
        id=id_,
        lease_id=lease_id,
        resource_type=request.resource_type,
        status=ReservationStatus.PENDING,
        params=request.params,
        details=catalog.plugins[request.resource_type].preview_details(id_),
        created_at=now,
        updated_at=None,
    )


def requirements_of(catalog: Catalog, reservation: Requested) -> tuple[Requirement, ...]:
    """Return the requirements of a reservation: one for each of its queries for resources."""
    return catalog.plugins[reservation.resource_type].requirement(reservation.params).parts


def needs_of(catalog: Catalog, requests: Iterable[ReservationRequest]) -> list[Requirement]:
    """Return the requirements of requests and their children, without requirements of 0 units."""
    all_requests = chain.from_iterable((request, *request.children) for request in requests)
    parts = chain.from_iterable(requirements_of(catalog, request) for request in all_requests)
    return [part for part in parts if part.maximum]


def any_prepares(catalog: Catalog, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in must prepare any of these reservations before the start."""
    return any(catalog.plugins[r.resource_type].needs_preparation for r in reservations)


def any_acts_as_user(catalog: Catalog, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in must act as the user (with a trust) for any of the reservations."""
    return any(catalog.plugins[r.resource_type].acts_as_user(r.params) for r in reservations)


def check_queries(
    session: Session,
    catalog: Catalog,
    requirements: Sequence[Requirement],
    *,
    private: bool,
    present: Collection[Query] = (),
) -> None:
    """Raise InvalidQuery for too many conditions, or a property that no resource of its type has.

    Without ``private``, private properties count as unknown, so that no refusal and no number of
    matching resources reveals them. A changed lease may keep its ``present`` queries, whatever
    properties they name and however many conditions they have.
    """
    queries = [r.query for r in requirements if not isinstance(r.query, Everything)]
    count = sum(map(expressions.written, queries))
    if count > max(MAX_CONDITIONS, sum(map(expressions.written, present))):
        raise InvalidQuery(
            f"The reservations have {count} conditions; at most {MAX_CONDITIONS} are allowed in"
            " all: use shorter expressions, or several leases"
        )
    for index, requirement in enumerate(requirements):
        query, resource_type = requirement.query, requirement.resource_type
        if isinstance(query, Everything) or query in present:
            continue
        try:
            check_names(session, catalog, resource_type, query, private=private)
        except InvalidQuery as error:
            where = f" (in reservation {index})" if len(requirements) > 1 else ""
            raise InvalidQuery(f"{error.message}{where}") from None


def check_names(
    session: Session, catalog: Catalog, resource_type: str, query: Query, *, private: bool
) -> None:
    """Raise InvalidQuery if a query names a property that no resource of the type has.

    Without ``private``, private properties count as unknown.
    """
    named = expressions.names(query)
    names = native = catalog.plugins[resource_type].native_properties
    if not named <= native:
        names = _property_names(session, resource_type, named, native, private=private)
    expressions.check_names(query, names)


def _property_names(
    session: Session,
    resource_type: str,
    named: Collection[str],
    native: Collection[str],
    *,
    private: bool,
) -> frozenset[str]:
    """Return the names of the properties that exist for the requester.

    Of properties that resources have without a definition, only those in ``named`` are included.
    Not cached: another process may make a property private.
    """
    privacy = resources.privacy(session, resource_type)
    known = frozenset({*native, *privacy})
    known |= resources.names_in_use(session, resource_type, {*named} - known)
    hidden = {name for name, is_private in privacy.items() if is_private and not private}
    return known - (hidden - {*native})


def occupied_window(window: Window, now: datetime, settings: Settings) -> Window:
    """Return the time that a lease occupies: its window from ``now`` on, plus the cleaning time."""
    return Window(max(window.start, now), window.end).busy(settings.cleaning_time)
