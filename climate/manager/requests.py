"""What is asked for, as admission needs it: requirements, checked, and the span they are for."""

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
from climate.core.matching.requirement import Requirement
from climate.core.settings import Settings
from climate.core.window import Window
from climate.db.resources import resources
from climate.manager.runtime import Runtime
from climate.plugins.base import Member, Requester


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRequest:
    """One thing asked for; ``params`` were checked by the plugin's schema.

    What it consists of, if that is reserved by itself, are its ``children``.
    """

    resource_type: str
    params: Mapping[str, Any]
    children: "tuple[ReservationRequest, ...]" = ()


class Asked(Protocol):
    """A reservation, made or asked for."""

    @property
    def resource_type(self) -> str:
        """What kind of thing."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Which and how many."""


def looked_up(
    runtime: Runtime, resource_type: str, params: Mapping[str, Any], requester: Requester
) -> ReservationRequest:
    """Return a request with what the cloud says about what it names. No transaction is open.

    Raises UnsupportedResourceType, InvalidInput, BackendUnavailable.
    """
    plugin = runtime.plugin(resource_type)
    found = plugin.look_up(params, requester)
    children = tuple(_child(runtime, one, requester) for one in plugin.members(found))
    return ReservationRequest(resource_type=resource_type, params=found, children=children)


def _child(runtime: Runtime, child: Member, requester: Requester) -> ReservationRequest:
    try:
        params = runtime.plugin(child.resource_type).schema().load(child.params)
    except ValidationError as error:
        raise InvalidInput(f"The {child.name} cannot be reserved: {error}") from None
    asked = looked_up(runtime, child.resource_type, params, requester)
    return replace(asked, params={**asked.params, PART: child.name})


def new_reservations(
    runtime: Runtime,
    lease_id: str,
    requests: Sequence[ReservationRequest],
    new_id: Callable[[], str],
    now: datetime,
) -> tuple[Reservation, ...]:
    """Return the reservations that were asked for, and after all of them their children."""
    made = [new_reservation(runtime, lease_id, asked, new_id(), now) for asked in requests]
    children = [
        new_reservation(runtime, lease_id, part_of(one, child), new_id(), now)
        for one, asked in zip(made, requests, strict=True)
        for child in asked.children
    ]
    return (*made, *children)


def part_of(stack: Reservation, child: ReservationRequest) -> ReservationRequest:
    """Return what is asked for as a part of a reservation."""
    return replace(child, params={**child.params, STACK: stack.id})


def new_reservation(
    runtime: Runtime, lease_id: str, asked: ReservationRequest, id_: str, now: datetime
) -> Reservation:
    """Return the reservation that was asked for; raises UnsupportedResourceType."""
    return Reservation(
        id=id_,
        lease_id=lease_id,
        resource_type=asked.resource_type,
        status=ReservationStatus.PENDING,
        params=asked.params,
        details=runtime.plugin(asked.resource_type).preview_details(id_),
        created_at=now,
        updated_at=None,
    )


def requirements_of(runtime: Runtime, asked: Asked) -> tuple[Requirement, ...]:
    """Return what admission must find, one part or several; raises UnsupportedResourceType."""
    return runtime.plugin(asked.resource_type).requirement(asked.params).parts


def needs_of(runtime: Runtime, requests: Iterable[ReservationRequest]) -> list[Requirement]:
    """Return all that admission must find for requests and what they consist of."""
    asked = chain.from_iterable((one, *one.children) for one in requests)
    parts = chain.from_iterable(requirements_of(runtime, one) for one in asked)
    return [part for part in parts if part.maximum]


def arranging(runtime: Runtime, asked: Iterable[Asked]) -> bool:
    """Tell whether any of these reservations has something in the cloud before its start."""
    return any(runtime.plugin(one.resource_type).needs_preparation for one in asked)


def check_properties(
    session: Session, runtime: Runtime, requirements: Sequence[Requirement]
) -> None:
    """Raise InvalidQuery if an expression names a property that no resource of its type has."""
    for index, requirement in enumerate(requirements):
        if not (asked := expressions.names(requirement.query)):
            continue
        resource_type = requirement.resource_type
        known = runtime.plugin(resource_type).native_properties
        known |= runtime.defined.get(resource_type, frozenset())
        if not asked <= known:
            defined = resources.property_names(session, resource_type)
            runtime.defined[resource_type] = frozenset(defined)
            known |= defined
            known |= resources.names_in_use(session, resource_type, asked - known)
            try:
                expressions.check_names(requirement.query, known)
            except InvalidQuery as error:
                where = f" (in reservation {index})" if len(requirements) > 1 else ""
                raise InvalidQuery(f"{error.message}{where}") from None


def taken_window(window: Window, now: datetime, settings: Settings) -> Window:
    """Return the span resources are taken for: not the past, and with cleaning time."""
    return Window(max(window.start, now), window.end).busy(settings.cleaning_time)
