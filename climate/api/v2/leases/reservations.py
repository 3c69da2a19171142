"""What is asked for, from a body: reservations checked by the plugins of their types, moments."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from marshmallow import Schema

from climate.api.call import Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import NOW
from climate.api.v2.http.validation import Place
from climate.api.v2.leases import schemas
from climate.core.errors import UnsupportedResourceType
from climate.manager.requests import ReservationRequest, looked_up

Part = tuple[Schema, Mapping[str, Any], Place]


def requests(
    call: Call, asked: Sequence[Mapping[str, Any]], key: str = "reservations"
) -> tuple[ReservationRequest, ...]:
    """Return the reservations asked for; raises InvalidInput for all that is wrong with them."""
    parts = [
        params(call, one["resource_type"], one["params"], (key, number))
        for number, one in enumerate(asked)
    ]
    return tuple(
        looked_up(call.runtime, one["resource_type"], loaded, call.owner.requester)
        for one, loaded in zip(asked, validation.load_all(parts), strict=True)
    )


def params(call: Call, resource_type: str, params: Mapping[str, Any], at: Place) -> Part:
    """Return what the plugin of a type has to check."""
    try:
        schema = schemas.params(call.runtime.plugin(resource_type).schema)
    except UnsupportedResourceType as error:
        raise validation.placed(error, (*at, "resource_type")) from None
    given = {**dict.fromkeys(schemas.may_be_left_out(schema)), **params}
    return schema, given, (*at, "params")


def moment(call: Call, asked: datetime | str | None) -> Any:  # noqa: ANN401 - None stays None
    """Return a moment; ``now`` is the second in which the request came."""
    return call.asked_at.replace(microsecond=0) if asked == NOW else asked
