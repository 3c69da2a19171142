"""``/v1/leases``."""

from datetime import datetime
from functools import cache
from typing import Any

from marshmallow import Schema, ValidationError

from climate.api.call import Call
from climate.api.v1.schemas import (
    LEASE_CREATE,
    LEASE_UPDATE,
    NOW,
    RESERVATION_ID,
    RESERVATION_TYPE,
)
from climate.core.errors import NotFound
from climate.core.lease import blazar_wire
from climate.core.lease.change import Change
from climate.core.lease.model import Lease
from climate.core.window import minute_of
from climate.manager import leases, updates
from climate.manager.composition import ReservationChange
from climate.manager.drafts import LeaseRequest
from climate.manager.requests import ReservationRequest, looked_up
from climate.manager.updates import LeaseChange


def index(call: Call) -> tuple[Any, int]:
    """List the project's leases; an admin sees all."""
    project_id = None if call.may("leases:get_all") else call.caller.project_id
    found = leases.find_all(call.runtime, project_id)
    return {"leases": [blazar_wire.lease_body(lease) for lease in found]}, 200


def create(call: Call) -> tuple[Any, int]:
    """Make a lease."""
    data = LEASE_CREATE.load(call.body())
    request = LeaseRequest(
        asked_at=call.asked_at,
        name=data["name"],
        start=_moment(call, data["start_date"]),
        end=_moment(call, data["end_date"]),
        before_end=data["before_end_date"],
        reservations=tuple(
            _reservation(call, asked, number) for number, asked in enumerate(data["reservations"])
        ),
        user_events=tuple(data["events"]),
    )
    return {"lease": blazar_wire.lease_body(leases.create(call.runtime, call.owner, request))}, 201


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
            _reservation_change(asked, number) for number, asked in enumerate(data["reservations"])
        ),
    )
    changed = updates.update(call.runtime, lease_id, change, call.owner)
    return {"lease": blazar_wire.lease_body(changed)}, 200


def delete(call: Call, lease_id: str) -> tuple[Any, int]:
    """Remove a lease, ending it first if it has started."""
    call.require("leases:delete", _visible(call, lease_id).project_id)
    leases.delete(call.runtime, lease_id, call.api.conf.api.delete_wait)
    return None, 204


def plugins(call: Call) -> tuple[Any, int]:
    """List the resource types that can be reserved."""
    return {"plugins": sorted(call.runtime.plugins)}, 200


def _visible(call: Call, lease_id: str) -> Lease:
    """Return the lease; one that the caller may not see does not exist for it."""
    lease = leases.get(call.runtime, lease_id)
    if not call.may("leases:get", lease.project_id):
        raise NotFound(f"Object with {{'lease_id': '{lease_id}'}} not found")
    return lease


def _moment(call: Call, date: datetime | str | None) -> Any:  # noqa: ANN401 - None stays None
    """Return a date; ``now`` is the minute in which the request came."""
    return minute_of(call.asked_at) if date == NOW else date


def _reservation(call: Call, asked: dict[str, Any], number: int) -> ReservationRequest:
    """Have the plugin of its type check a reservation."""
    resource_type = _load(RESERVATION_TYPE, asked, number)["resource_type"]
    params = _load(_made(call.runtime.plugin(resource_type).schema), asked, number)
    return looked_up(call.runtime, resource_type, params, call.owner.requester)


def _reservation_change(asked: dict[str, Any], number: int) -> ReservationChange:
    data = _load(RESERVATION_ID, asked, number)
    return ReservationChange(id=data["id"], resource_type=data["resource_type"], params=asked)


@cache
def _made(schema: type[Schema]) -> Schema:
    """Return the plugin's schema: to make one takes longer than to use it."""
    return schema()


def _load(schema: Schema, asked: dict[str, Any], number: int) -> Any:  # noqa: ANN401
    """Check one reservation; errors say which of them it was if that is not obvious."""
    try:
        return schema.load(asked)
    except ValidationError as error:
        if number == 0:
            raise
        messages = error.normalized_messages()  # type: ignore[no-untyped-call]
        raise ValidationError({f"reservations[{number}]": messages}) from None
