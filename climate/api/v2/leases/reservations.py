"""Requests for reservations, checked by the plug-ins of their types, and moments."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from marshmallow import Schema

from climate.api.call import Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import NOW
from climate.api.v2.http.schemas import may_be_left_out
from climate.api.v2.http.validation import Place
from climate.api.v2.leases.schemas import params as params_schema
from climate.core.errors import UnsupportedResourceType
from climate.manager.admission.requirements import ReservationRequest, look_up

Part = tuple[Schema, Mapping[str, Any], Place]


def requests(
    call: Call, given: Sequence[Mapping[str, Any]], key: str = "reservations"
) -> tuple[ReservationRequest, ...]:
    """Return the requests for reservations; raises InvalidInput, which names all errors."""
    parts = [
        params(call, one["resource_type"], one["params"], (key, number))
        for number, one in enumerate(given)
    ]
    return tuple(
        look_up(call.runtime, one["resource_type"], loaded, call.owner.requester)
        for one, loaded in zip(given, validation.load_all(parts), strict=True)
    )


def params(call: Call, resource_type: str, params: Mapping[str, Any], at: Place) -> Part:
    """Return the parameters, and where they are, with the schema of the type's plug-in."""
    try:
        schema = params_schema(call.runtime.plugin(resource_type).schema)
    except UnsupportedResourceType as error:
        raise validation.placed(error, (*at, "resource_type")) from None
    given = {**dict.fromkeys(may_be_left_out(schema)), **params}
    return schema, given, (*at, "params")


def moment(call: Call, given: datetime | str | None) -> Any:  # noqa: ANN401 - None stays None
    """Return a moment; ``now`` is the second in which the request came."""
    return call.asked_at.replace(microsecond=0) if given == NOW else given
