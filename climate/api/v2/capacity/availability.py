"""``/v2/availability``: what is free when, without a word about who has the rest."""

import json
from datetime import timedelta
from typing import Any

from climate.api.call import Answer, Call
from climate.api.v2.capacity import schemas as capacity_schemas
from climate.api.v2.http import queries, validation
from climate.api.v2.http.fields import NOW
from climate.api.v2.leases import reservations
from climate.core.errors import InvalidInput, InvalidQuery, UnsupportedResourceType
from climate.core.matching.quoting import check_storable
from climate.core.window import Window
from climate.manager import availability
from climate.manager.requests import ReservationRequest, looked_up

# More would be a large answer that nobody reads: steps begin and end with bookings.
_MOST_STEPS = 10_000


def show(call: Call) -> Answer:
    """Tell how many units are free at each instant of a span."""
    asked = validation.query(queries.AVAILABILITY_QUERY)
    request = _request(call, asked["resource_type"], asked.get("params"))
    span = Window(reservations.moment(call, asked.get("start", NOW)), asked["end"])
    try:
        steps = availability.free_over(call.runtime, request, span)
    except InvalidQuery as error:
        raise validation.of_parameter(error, "params") from None
    if len(steps) > _MOST_STEPS:
        raise InvalidInput(f"There are {len(steps)} changes in that time: ask for less of it")
    return capacity_schemas.AVAILABILITY.dump({"steps": steps}), 200


def search(call: Call) -> Answer:
    """Find windows in which all of the reservations would be admitted."""
    data = validation.load(capacity_schemas.WINDOW_SEARCH, validation.body(call))
    found = availability.search(
        call.runtime,
        reservations.requests(call, data["reservations"]),
        timedelta(seconds=data["duration"]),
        Window(reservations.moment(call, data.get("start_after", NOW)), data["end_by"]),
        data["limit"],
    )
    return capacity_schemas.OFFERS.dump({"windows": found}), 200


def _request(call: Call, resource_type: str, text: str | None) -> ReservationRequest:
    """Return what one unit is, and what else it must be."""
    try:
        plugin = call.runtime.plugin(resource_type)
    except UnsupportedResourceType as error:
        raise validation.of_parameter(error, "resource_type") from None
    part = reservations.params(call, resource_type, {**plugin.unit, **_json(text)}, ())
    params = validation.load_parameter(*part)
    try:
        return looked_up(call.runtime, resource_type, params, call.owner.requester)
    except InvalidInput as error:
        raise validation.of_parameter(error, "params") from None


def _json(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
        check_storable(found)
    except (ValueError, RecursionError) as error:
        refusal = InvalidInput(f"params: not JSON: {error}")
        raise validation.of_parameter(refusal, "params") from None
    if not isinstance(found, dict):
        refusal = InvalidInput('params: this must be a JSON object, such as {"min": 1}')
        raise validation.of_parameter(refusal, "params")
    return found
