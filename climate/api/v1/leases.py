"""The routes of ``/v1/leases`` and ``/v1/plugins``."""

from datetime import datetime
from functools import cache
from typing import Any

from flask import request
from marshmallow import Schema, ValidationError

from climate.api.call import Call
from climate.api.v1.schemas import (
    LEASE_CREATE,
    LEASE_UPDATE,
    NOW,
    PAGE,
    RESERVATION_ID,
    RESERVATION_TYPE,
)
from climate.core.errors import NotFound
from climate.core.lease import blazar_wire
from climate.core.lease.change import Change
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.core.window import minute_of
from climate.manager.admission.requirements import ReservationRequest, look_up
from climate.manager.leases.create import LeaseRequest
from climate.manager.leases.delete import delete_lease
from climate.manager.leases.read import find_all_leases, get_lease
from climate.manager.leases.reservation_changes import LeaseChange, ReservationChange
from climate.manager.leases.update import update_lease
from climate.manager.wait_list.displacing import create_before_promises


def index(call: Call) -> tuple[Any, int]:
    """List the leases of the caller's project, or those of all projects if the caller is an admin.

    Without the query parameter ``limit``, the answer lists all leases, because Blazar's clients do
    not request pages.
    """
    project_id = None if call.may("leases:get_all") else call.caller.project_id
    page = PAGE.load(request.args.to_dict())
    leases = find_all_leases(call.runtime, project_id, page["limit"], page["marker"])
    return {"leases": [blazar_wire.lease_body(lease) for lease in leases]}, 200


def create(call: Call) -> tuple[Any, int]:
    """Create a lease."""
    data = LEASE_CREATE.load(call.body())
    request = LeaseRequest(
        asked_at=call.asked_at,
        name=data["name"],
        start=_moment(call, data["start_date"]),
        end=_moment(call, data["end_date"]),
        before_end=data["before_end_date"],
        reservations=tuple(
            _reservation(call, body, number) for number, body in enumerate(data["reservations"])
        ),
        user_events=tuple(data["events"]),
    )
    lease = create_before_promises(call.runtime, call.owner, request)
    return {"lease": blazar_wire.lease_body(lease)}, 201


def show(call: Call, lease_id: str) -> tuple[Any, int]:
    """Show a lease."""
    return {"lease": blazar_wire.lease_body(_visible(call, lease_id))}, 200


def update(call: Call, lease_id: str) -> tuple[Any, int]:
    """Change a lease."""
    call.require("leases:put", _visible(call, lease_id).project_id)
    data = LEASE_UPDATE.load(call.body())
    change = LeaseChange(
        name=data.get("name"),
        dates=Change(
            start=_moment(call, data["start_date"]),
            end=_moment(call, data["end_date"]),
            before_end=data["before_end_date"],
            asked_at=call.asked_at,
        ),
        reservations=tuple(
            _reservation_change(body, number) for number, body in enumerate(data["reservations"])
        ),
    )
    lease = update_lease(call.runtime, lease_id, change, call.owner)
    return {"lease": blazar_wire.lease_body(lease)}, 200


def delete(call: Call, lease_id: str) -> tuple[Any, int]:
    """Delete a lease. If it has started, a manager ends it first."""
    call.require("leases:delete", _visible(call, lease_id).project_id)
    delete_lease(call.runtime, lease_id, call.api.conf.api.delete_wait)
    return None, 204


def plugins(call: Call) -> tuple[Any, int]:
    """List the names of the resource types that can be reserved, such as ``physical:host``."""
    return {"plugins": sorted(call.runtime.plugins)}, 200


def _visible(call: Call, lease_id: str) -> Lease:
    """Return the lease. Raises NotFound if it does not exist or the caller may not see it.

    v1 does not know leases in the wait list.
    """
    absent = f"Object with {{'lease_id': '{lease_id}'}} not found"
    lease = call.visible(get_lease, lease_id, "leases:get", absent)
    if lease.status is LeaseStatus.WAITING:
        raise NotFound(absent)
    return lease


def _moment(call: Call, date: datetime | str | None) -> Any:  # noqa: ANN401 - None stays None
    """Return ``date``; for the text ``now``, return when the request arrived, to the minute."""
    return minute_of(call.asked_at) if date == NOW else date


def _reservation(call: Call, body: dict[str, Any], number: int) -> ReservationRequest:
    resource_type = _load(RESERVATION_TYPE, body, number)["resource_type"]
    params = _load(_instance(call.runtime.plugin(resource_type).schema), body, number)
    return look_up(call.runtime.catalog, resource_type, params, call.caller.requester)


def _reservation_change(body: dict[str, Any], number: int) -> ReservationChange:
    data = _load(RESERVATION_ID, body, number)
    return ReservationChange(id=data["id"], resource_type=data["resource_type"], params=body)


@cache
def _instance(schema: type[Schema]) -> Schema:
    """Return a cached instance of the schema, because creating it takes longer than using it."""
    return schema()


def _load(schema: Schema, body: dict[str, Any], number: int) -> Any:  # noqa: ANN401
    """Validate ``body``, a reservation in a request, with ``schema``; return the loaded values.

    ``number`` is the index of the reservation in the request, from 0. Raises ValidationError, which
    names the index, such as ``reservations[1]``, except for the first reservation.
    """
    try:
        return schema.load(body)
    except ValidationError as error:
        if number == 0:
            raise
        messages = error.normalized_messages()  # type: ignore[no-untyped-call]
        raise ValidationError({f"reservations[{number}]": messages}) from None
