"""Requirements: what the reservations of a request need, as their plug-ins compute it.

The module also converts requests into new reservations, and checks the queries in them.
"""

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
    """A request for one reservation, with parameters that the plug-in's schema has validated.

    If the reservation is for a stack, ``children`` are the requests for its parts. Each part
    becomes a separate reservation.
    """

    resource_type: str
    params: Mapping[str, Any]
    children: "tuple[ReservationRequest, ...]" = ()


Requested = Reservation | ReservationRequest


def look_up(
    catalog: Catalog, resource_type: str, params: Mapping[str, Any], requester: Requester
) -> ReservationRequest:
    """Return a request for a reservation, completed with data from the cloud.

    The plug-in reads these data. If the reservation is for a stack, the result has a child for each
    part of the stack. No transaction may be open. Raises UnsupportedResourceType, InvalidInput,
    BackendUnavailable.
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
    """Return new reservations: first one for each request, then one for each child of a request."""
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
    """Return the request ``child`` for a part of a stack, with the stack's id in its parameters."""
    return replace(child, params={**child.params, STACK: stack.id})


def new_reservation(
    catalog: Catalog, lease_id: str, request: ReservationRequest, id_: str, now: datetime
) -> Reservation:
    """Return a new reservation for the request, with the status PENDING.

    Raises UnsupportedResourceType.
    """
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
    """Return the requirements of a reservation, as its plug-in computes them from the parameters.

    Most reservations have one requirement. If a reservation queries several kinds of resources, it
    has one for each.
    """
    return catalog.plugins[reservation.resource_type].requirement(reservation.params).parts


def needs_of(catalog: Catalog, requests: Iterable[ReservationRequest]) -> list[Requirement]:
    """Return the requirements of all requests, including the parts of stacks.

    Requirements for 0 units are omitted.
    """
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
    """Raise InvalidQuery if a requirement has a property expression that is not acceptable.

    An expression is not acceptable if it names a property that no resource of its type has. The
    number of conditions in all expressions together is limited, too. Unless ``private`` is set,
    private properties count as unknown, so that neither a refusal nor a number of matching
    resources reveals them. A changed lease may keep the expressions in ``present``, even if they
    break these rules.
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

    Unless ``private`` is set, private properties count as unknown.
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
    """Return the names of the properties of a resource type that the requester may use.

    A resource may have a property for which there is no definition. Of these names, the result has
    only those in ``named``. The result is not cached, because another process may make a property
    private.
    """
    privacy = resources.privacy(session, resource_type)
    known = frozenset({*native, *privacy})
    known |= resources.names_in_use(session, resource_type, {*named} - known)
    hidden = {name for name, is_private in privacy.items() if is_private and not private}
    return known - (hidden - {*native})


def occupied_window(window: Window, now: datetime, settings: Settings) -> Window:
    """Return the window in which a lease occupies its resources.

    It begins at the start of the lease, or now if the lease has started. It ends when the cleaning
    time after the lease is over.
    """
    return Window(max(window.start, now), window.end).busy(settings.cleaning_time)
