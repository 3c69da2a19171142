"""Requirements: how many resources, with which properties, each reservation of a request needs.

The plug-in of the resource type computes the requirements. This module also makes reservations from
requests, and checks the property expressions in them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from marshmallow import ValidationError
from sqlalchemy.orm import Session

from climate.core.errors import InvalidInput, InvalidQuery, UnknownProperty
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import CREATE, ON_START, PART, STACK, Lease, Reservation
from climate.core.lease.on_start import Kind, booked_lead
from climate.core.matching import property_type
from climate.core.matching import query as expressions
from climate.core.matching.expression import MAX_CONDITIONS
from climate.core.matching.query import Everything, Query
from climate.core.matching.quoting import show
from climate.core.matching.requirement import Requirement
from climate.core.provisioning.cleaning import RESOURCE_CLASS
from climate.core.settings import Settings
from climate.core.window import Margins, Window
from climate.db.engine import ids
from climate.db.resources import allocations, resources
from climate.manager.process.runtime import Catalog, Runtime
from climate.plugins.base import Member, Requester

NO_LEAD = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """A request for one reservation: its resource type and its validated parameters.

    If the reservation is for a stack (a Heat stack of servers, volumes and so on), ``children`` are
    the requests for the parts of the stack. Each part becomes a separate reservation. ``prepared``
    is set if a plug-in has prepared the reservation in the cloud before the lease got it.
    """

    resource_type: str
    params: Mapping[str, Any]
    children: "tuple[ReservationRequest, ...]" = ()
    prepared: Reservation | None = None


Requested = Reservation | ReservationRequest


def look_up(
    catalog: Catalog, resource_type: str, params: Mapping[str, Any], requester: Requester
) -> ReservationRequest:
    """Return a request for a reservation, with the data that its plug-in reads from the cloud.

    For example, the plug-in for servers reads the size of the flavor. If the reservation is for a
    stack, the result contains a child for each part of the stack. No transaction may be open.
    Raises UnsupportedResourceType, InvalidInput, BackendUnavailable.
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
    """Return the new reservations of a lease; nothing is stored.

    First comes a reservation for each request, then one for each part of a requested stack.
    """
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
    """Return the request ``child`` with the id of ``stack`` added to its parameters.

    ``stack`` is the reservation for a whole stack, ``child`` the request for a part of the stack.
    """
    return replace(child, params={**child.params, STACK: stack.id})


def new_reservation(
    catalog: Catalog, lease_id: str, request: ReservationRequest, id_: str, now: datetime
) -> Reservation:
    """Return a new reservation with the id ``id_`` and the status PENDING; nothing is stored.

    The field ``details`` contains what the plug-in knows before the lease starts, for example the
    id of an object that it will create. Raises UnsupportedResourceType.
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


def requirements_of(
    catalog: Catalog, reservation: Requested, project_id: str
) -> tuple[Requirement, ...]:
    """Return what a reservation needs, as its plug-in computes it from the parameters.

    Most reservations have one requirement, for example "2 to 4 hosts with 64 vCPUs". If a
    reservation needs several kinds of resources, it has one requirement for each kind. Their
    queries compare values by the declared types of properties. If the operator restricts resources
    to projects, only those that the project may book match. If a filter of Nova selects hosts, it
    reads the project.
    """
    parts = catalog.plugins[reservation.resource_type].requirement(reservation.params).parts
    if catalog.selection.screens:
        parts = tuple(replace(part, project_id=project_id) for part in parts)
    if not (types := catalog.property_types):
        return parts
    permitted = property_type.permitted(types, project_id)
    return tuple(
        replace(part, query=property_type.bind(part.query, types), permitted=permitted)
        for part in parts
    )


def by_reservation(
    catalog: Catalog, reservations: Iterable[Reservation], project_id: str
) -> dict[str, tuple[Requirement, ...]]:
    """Return ``requirements_of`` each reservation of a project, by the id of the reservation."""
    return {each.id: requirements_of(catalog, each, project_id) for each in reservations}


def needs_of(
    catalog: Catalog, requests: Iterable[ReservationRequest], project_id: str
) -> list[Requirement]:
    """Return the requirements of all requests in one list, including those of the parts of stacks.

    Requirements for 0 units are left out.
    """
    all_requests = chain.from_iterable((request, *request.children) for request in requests)
    parts = (requirements_of(catalog, request, project_id) for request in all_requests)
    return [part for part in chain.from_iterable(parts) if part.maximum]


def any_prepares(catalog: Catalog, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in must prepare the cloud for any of these reservations.

    Such a plug-in acts when the lease is created, long before the start.
    """
    return any(catalog.plugins[r.resource_type].prepares(r.params) for r in reservations)


def any_acts_as_user(catalog: Catalog, reservations: Iterable[Requested]) -> bool:
    """Return whether a plug-in must act in the cloud as the user for any of the reservations.

    For this, climate needs a Keystone trust, by which the user delegates rights to climate.
    """
    return any(catalog.plugins[r.resource_type].acts_as_user(r.params) for r in reservations)


def can_wait(catalog: Catalog, reservations: Collection[Requested]) -> bool:
    """Return whether leases with these reservations may wait in the wait list.

    climate books them without the user, so no plug-in may need the user's token.
    """
    return not (any_acts_as_user(catalog, reservations) or any_prepares(catalog, reservations))


def may_fit(requirement: Requirement, matching: int) -> bool:
    """Return whether ``matching`` resources, if they were all free, may satisfy a requirement.

    The size of resources that leases share is not considered.
    """
    return matching >= (
        requirement.minimum if requirement.is_whole else min(1, requirement.minimum)
    )


def check_queries(
    session: Session,
    catalog: Catalog,
    requirements: Sequence[Requirement],
    *,
    private: bool,
    present: Collection[Requirement] = (),
) -> None:
    """Raise InvalidQuery if the property expression of a requirement is not allowed.

    Every property in an expression must exist for the resource type, and every value must fit the
    declared type of its property. All expressions together must
    not have more than ``MAX_CONDITIONS`` conditions. If ``private`` is false, private properties
    (hidden from ordinary users) are treated as unknown, so that requesters cannot learn about them
    from errors or numbers. ``present`` are the requirements of the stored lease. A changed lease
    may keep their expressions even if they break the rules.
    """
    _check_devices(catalog, requirements, present)
    present_queries = [part.query for part in present]
    queries = [r.query for r in requirements if not isinstance(r.query, Everything)]
    count = sum(map(expressions.written, queries))
    if count > max(MAX_CONDITIONS, sum(map(expressions.written, present_queries))):
        raise InvalidQuery(
            f"The reservations have {count} conditions; at most {MAX_CONDITIONS} are allowed in"
            " all: use shorter expressions, or several leases"
        )
    for index, requirement in enumerate(requirements):
        query, resource_type = requirement.query, requirement.resource_type
        if isinstance(query, Everything) or query in present_queries:
            continue
        try:
            check_names(session, catalog, resource_type, query, private=private)
        except UnknownProperty as error:
            where = f" (in reservation {index})" if len(requirements) > 1 else ""
            unknown = UnknownProperty(f"{error.message}{where}")
            unknown.name, unknown.resource_type = error.name, resource_type
            raise unknown from None


def _check_devices(
    catalog: Catalog, requirements: Sequence[Requirement], present: Collection[Requirement]
) -> None:
    """Raise InvalidQuery if a user requests devices that neither climate nor Nova's filters check.

    The devices in ``present`` are allowed.
    """
    if catalog.selection.screens:
        return
    known = {key for part in present if part.flavor for key in part.flavor.devices}
    for part in requirements:
        for key in part.flavor.devices if part.flavor else ():
            if key not in known:
                hint = (
                    "the operator counts no such devices"
                    if part.is_whole
                    else "reserve instances of a flavor with these devices (flavor:instance)"
                )
                raise InvalidQuery(
                    f"hosts cannot be chosen by their devices in {show(key)}: {hint}"
                )


def check_names(
    session: Session, catalog: Catalog, resource_type: str, query: Query, *, private: bool
) -> None:
    """Raise UnknownProperty if a query names a property that no resource of the type has.

    Raises InvalidQuery if a value does not fit the declared type of its property. If ``private`` is
    false, private properties (hidden from ordinary users) are treated as unknown.
    """
    named = expressions.names(query)
    names = native = catalog.plugins[resource_type].native_properties
    if not named <= native:
        names = _property_names(session, resource_type, named, native, private=private)
    expressions.check_names(query, names)
    expressions.check_values(query)


def _property_names(
    session: Session,
    resource_type: str,
    named: Collection[str],
    native: Collection[str],
    *,
    private: bool,
) -> frozenset[str]:
    """Return the names of the properties of a resource type that the requester may use in a query.

    ``named`` are the names in the query. ``native`` are properties that all resources of the type
    have. The result contains these names:

    - all names in ``native``
    - the properties that are defined for the type; private ones only if ``private`` is true
    - the names in ``named`` that are not defined, but that a resource of the type has

    The result is not cached, because another process may make a property private at any time.
    """
    privacy = resources.privacy(session, resource_type)
    known = frozenset({*native, *privacy})
    known |= resources.names_in_use(session, resource_type, {*named} - known)
    hidden = {name for name, is_private in privacy.items() if is_private and not private}
    return known - (hidden - {*native})


def kinds_of(catalog: Catalog, reservations: Iterable[Requested]) -> set[Kind]:
    """Return the kinds of what climate creates for these reservations at the start."""
    return {
        Kind(each.resource_type, catalog.plugins[each.resource_type].source_of(each.params))
        for each in reservations
        if each.params.get(ON_START) == CREATE
    }


def lead_of(
    runtime: Runtime, session: Session, reservations: Iterable[Requested], now: datetime
) -> timedelta:
    """Return how long before the start climate must begin to create resources for a lease.

    It is 0 if climate creates nothing for the lease, or nothing before its start.
    """
    times = runtime.creation_times
    return times.lead(session, kinds_of(runtime.catalog, reservations), now) if times else NO_LEAD


def learned_cleaning(
    runtime: Runtime, session: Session, requirements: Iterable[Requirement], now: datetime
) -> timedelta | None:
    """Return how long resources of a new booking stay booked after the lease, as climate learned.

    This is the longest time of all resources that match, because they are chosen later. None: the
    configured time applies, as there is no measurement of any of them.
    """
    times = runtime.cleaning_times
    if times is None or not (spans := times.by_class(session, now)):
        return None
    classes = set[str | None]()
    for part in requirements:
        classes |= allocations.values(session, part, RESOURCE_CLASS)
    learned = [spans[name] for name in classes if name is not None and name in spans]
    is_mixed = len(learned) < len(classes)
    configured = [runtime.settings.cleaning_time] if is_mixed else []
    return max([*learned, *configured]) if learned else None


def margins_of(
    runtime: Runtime,
    session: Session,
    reservations: Iterable[Requested],
    requirements: Iterable[Requirement],
    now: datetime,
) -> Margins:
    """Return how long before and after its window a new booking would occupy resources.

    ``requirements`` are those of the ``reservations``.
    """
    cleaning = learned_cleaning(runtime, session, requirements, now)
    configured = runtime.settings.cleaning_time
    return Margins(
        lead_of(runtime, session, reservations, now), configured if cleaning is None else cleaning
    )


def with_new_margins(
    runtime: Runtime, session: Session, lease: Lease, start: datetime, now: datetime
) -> Lease:
    """Return the lease with the lead and the cleaning time of a new booking from ``start`` on."""
    live = [reservation for reservation in lease.reservations if reservation.stays]
    parts = (requirements_of(runtime.catalog, each, lease.project_id) for each in live)
    needs = (part for part in chain.from_iterable(parts) if part.maximum)
    lead = booked_lead(lead_of(runtime, session, live, now), start, now)
    return replace(
        lease,
        start=replace(lease.start, lead=lead),
        cleaning=learned_cleaning(runtime, session, needs, now),
    )


def margined(runtime: Runtime, lease: Lease, now: datetime) -> Lease:
    """Return a new lease with its lead and its cleaning time; no transaction is open."""
    if runtime.creation_times is None and runtime.cleaning_times is None:
        return lease
    with runtime.database.read() as session:
        return with_new_margins(runtime, session, lease, lease.window.start, now)


def occupied_window(window: Window, now: datetime, margins: Margins) -> Window:
    """Return the time during which no other lease can have the resources of a lease.

    The window begins the lead before the start of the lease, or at ``now`` if that has passed. It
    ends when the cleaning time after the lease is over.
    """
    return Window(max(window.start - margins.lead, now), window.end).busy(margins.cleaning)


def occupied_by(lease: Lease, now: datetime, settings: Settings) -> Window:
    """Return the time during which no other lease can have the resources of this lease."""
    return occupied_window(lease.window, now, lease.margins(settings.cleaning_time))
