"""The routes of ``/v2/availability``: free capacity over time, without naming any lease."""

import json
from datetime import timedelta
from typing import Any, TypedDict

from climate.api.call import Answer, Call
from climate.api.v2.capacity import schemas as capacity_schemas
from climate.api.v2.http import spans, validation
from climate.api.v2.http.fields import NOW
from climate.api.v2.leases import reservations
from climate.core.errors import InvalidInput, InvalidQuery, UnsupportedResourceType
from climate.core.matching.quoting import check_storable
from climate.manager.admission import availability
from climate.manager.admission.requirements import ReservationRequest, look_up
from climate.manager.admission.window_search import Seeker, search_allowed

# Limits the response: each booking in the window can add a step.
_MAX_STEPS = 10_000


class _Viewer(TypedDict):
    project_id: str
    private: bool


def show(call: Call) -> Answer:
    """Show how many units, such as hosts, are free at each moment of a window of time."""
    query = validation.query(capacity_schemas.AVAILABILITY_QUERY)
    request = _request(call, query["resource_type"], query.get("params"))
    span = spans.in_query(reservations.moment(call, query.get("start", NOW)), query["end"])
    resolution, owner = query.get("resolution"), call.owner
    viewer = _Viewer(project_id=owner.project_id, private=owner.sees_private)
    try:
        if resolution is not None:
            least = availability.least_free(call.runtime, request, span, resolution, **viewer)
            body = {"units": least.units, "resolution": resolution, "steps": least.steps}
            return capacity_schemas.AVAILABILITY.dump(body), 200
        steps = availability.free_over(call.runtime, request, span, **viewer)
    except InvalidQuery as error:
        raise validation.of_parameter(error, "params") from None
    if len(steps) > _MAX_STEPS:
        raise InvalidInput(f"The window has {len(steps)} changes: request a shorter window")
    return capacity_schemas.AVAILABILITY.dump({"steps": steps}), 200


def search(call: Call) -> Answer:
    """Find windows in which climate would admit a lease with all the given reservations."""
    data = validation.load(capacity_schemas.WINDOW_SEARCH, validation.body(call))
    owner = call.owner
    seeker = Seeker(
        project_id=owner.project_id,
        user_id=owner.user_id,
        roles=owner.roles,
        sees_private=owner.sees_private,
    )
    requests = reservations.requests(call, data["reservations"])
    duration = timedelta(seconds=data["duration"])
    start = reservations.moment(call, data.get("start_after", NOW))
    span = spans.in_body(start, data["end_by"], "end_by")
    with reservations.causes_placed(call, data):
        found = search_allowed(call.runtime, requests, duration, span, data["limit"], seeker)
    return capacity_schemas.FREE_WINDOWS.dump(found), 200


def _request(call: Call, resource_type: str, text: str | None) -> ReservationRequest:
    """Return a request for one unit, such as one host, of the resource type.

    ``text`` is a JSON object with additional parameters of the reservation, such as a filter of
    hosts; None if there are none. Raises InvalidInput.
    """
    try:
        plugin = call.runtime.plugin(resource_type)
    except UnsupportedResourceType as error:
        raise validation.of_parameter(error, "resource_type") from None
    part = reservations.params(call, resource_type, {**plugin.unit, **_json(text)}, ())
    params = validation.load_parameter(*part)
    try:
        return look_up(call.runtime.catalog, resource_type, params, call.caller.requester)
    except InvalidInput as error:
        raise validation.of_parameter(error, "params") from None


def _json(text: str | None) -> dict[str, Any]:
    try:
        params = json.loads(text or "{}")
        check_storable(params)
    except (ValueError, RecursionError) as error:
        invalid = InvalidInput(f"params: not JSON: {error}")
        raise validation.of_parameter(invalid, "params") from None
    if not isinstance(params, dict):
        invalid = InvalidInput('params: this must be a JSON object, such as {"min": 1}')
        raise validation.of_parameter(invalid, "params")
    return params
