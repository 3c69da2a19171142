"""Parses dates and reservations in request bodies, with the plug-ins of the resource types."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from marshmallow import Schema

from climate.api.call import Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import NOW, nullable_params
from climate.api.v2.http.validation import Place
from climate.api.v2.leases.schemas import params as params_schema
from climate.core.errors import UnsupportedResourceType
from climate.manager.admission.requirements import ReservationRequest, look_up

Part = tuple[Schema, Mapping[str, Any], Place]


def requests(
    call: Call, bodies: Sequence[Mapping[str, Any]], key: str = "reservations"
) -> tuple[ReservationRequest, ...]:
    """Validate the reservations in a request body; return them as ``ReservationRequest`` objects.

    ``key`` is the key of the list in the body; errors contain it. Raises InvalidInput.
    """
    parts = [
        params(call, body["resource_type"], body["params"], (key, number))
        for number, body in enumerate(bodies)
    ]
    return tuple(
        look_up(call.runtime.catalog, body["resource_type"], loaded, call.caller.requester)
        for body, loaded in zip(bodies, validation.load_all(parts), strict=True)
    )


def params(call: Call, resource_type: str, params: Mapping[str, Any], at: Place) -> Part:
    """Return what ``validation.load_all`` needs to validate the parameters of a reservation.

    The result is a tuple: the plug-in's schema, the parameters, and their place in the body. Absent
    parameters that may be null are null in the result. ``at`` is the place of the reservation, such
    as ``("reservations", 0)``. Raises InvalidInput.
    """
    try:
        schema = params_schema(call.runtime.plugin(resource_type).schema)
    except UnsupportedResourceType as error:
        raise validation.placed(error, (*at, "resource_type")) from None
    complete = {**dict.fromkeys(nullable_params(schema)), **params}
    return schema, complete, (*at, "params")


def moment(call: Call, date: datetime | str | None) -> Any:  # noqa: ANN401 - None stays None
    """Return ``date``; for the text ``now``, return when the request arrived, to the second."""
    return call.asked_at.replace(microsecond=0) if date == NOW else date
