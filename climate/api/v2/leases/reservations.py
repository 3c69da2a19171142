"""Parses dates and reservations in request bodies, with the plug-ins of the resource types."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from marshmallow import Schema

from climate.api.call import Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import NOW, nullable_params
from climate.api.v2.http.validation import Place
from climate.api.v2.leases.schemas import params as params_schema
from climate.core.errors import InvalidDate, UnknownProperty, UnsupportedResourceType
from climate.core.lease.model import Lease
from climate.core.matching.extra_specs import property_names
from climate.manager.admission.requirements import ReservationRequest, look_up
from climate.plugins.request_fields import Expression

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


@contextmanager
def causes_placed(
    call: Call, body: Mapping[str, Any], lease: Lease | None = None
) -> Iterator[None]:
    """Add to an error that the block raises the place of its cause in ``body``.

    This applies to an UnknownProperty, if an expression in the body names the property, and to an
    InvalidDate with a place. ``lease`` is the lease that the request changes; None if the request
    creates one or searches.
    """
    try:
        yield
    except InvalidDate as error:
        if not error.place:
            raise
        raise validation.placed(error, error.place) from None
    except UnknownProperty as error:
        for resource_type, params, at in _params_in(body, lease):
            names = _expressions_with(call, error.name, resource_type, params)
            if resource_type == error.resource_type and names:
                raise validation.placed(error, (*at, "params", names[0])) from None
        raise


def _params_in(
    body: Mapping[str, Any], lease: Lease | None
) -> Iterable[tuple[str, Mapping[str, Any], Place]]:
    """Yield the resource type, the parameters and the place of each reservation in a valid body."""
    types = {r.id: r.resource_type for r in lease.reservations} if lease else {}
    for key in ("reservations", "add_reservations"):
        for number, each in enumerate(body.get(key) or ()):
            resource_type = each.get("resource_type") or types[each["id"]]
            yield resource_type, each.get("params") or {}, (key, number)


def _expressions_with(
    call: Call, name: str, resource_type: str, params: Mapping[str, Any]
) -> list[str]:
    """Return the parameters in ``params`` that are expressions with the property ``name``."""
    fields = params_schema(call.runtime.plugin(resource_type).schema).fields
    return [
        key
        for key, value in params.items()
        if isinstance(fields.get(key), Expression) and name in property_names(value)
    ]


def moment(call: Call, date: datetime | str | None) -> Any:  # noqa: ANN401 - None stays None
    """Return ``date``; for the text ``now``, return when the request arrived, to the second."""
    return call.asked_at.replace(microsecond=0) if date == NOW else date
