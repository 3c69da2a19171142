"""The route of ``/v2/resources/stats``: agents push stats of many resources in a request."""

from typing import Any

from marshmallow import Schema, fields, validate

from climate.api.call import Answer, Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Strict
from climate.api.v2.http.schemas import described
from climate.api.v2.resources.properties import texts
from climate.core.errors import InvalidInput
from climate.manager.resources import stats
from climate.manager.resources.stats import Outcome, Push

MOST_ITEMS, MOST_STATS = 1_000, 100


class StatsItem(Strict):
    """The new stats of a resource."""

    resource = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=described("Name in the cloud, or id."),
    )
    resource_type = fields.String(
        load_default=None,
        validate=validate.Length(1, 64),
        metadata=described("Needed only if resources of several types have the name."),
    )
    generation = fields.Integer(
        required=True,
        strict=True,
        validate=validate.Range(0, 2**63 - 1),
        metadata=described(
            "A number that grows with each push for the resource, such as a time in milliseconds."
        ),
    )
    stats = fields.Dict(
        keys=fields.String(),
        required=True,
        validate=validate.Length(max=MOST_STATS),
        metadata=described("Properties to add, change or remove (null); others stay."),
    )


class StatsRequest(Strict):
    """The body of a request that pushes stats. If an item is invalid, nothing is stored."""

    items = fields.List(
        fields.Nested(StatsItem), required=True, validate=validate.Length(1, MOST_ITEMS)
    )


class StatsResult(Schema):
    """What became of an item."""

    resource = fields.String(metadata=described("As the item names it."))
    id = fields.String(allow_none=True, metadata=described("Id; null: there is no such resource."))
    result = fields.Enum(
        Outcome,
        by_value=True,
        attribute="outcome",
        metadata=described(
            "applied; unchanged: climate has this generation already; stale: it has a newer one;"
            " unknown: there is no such resource."
        ),
    )
    generation = fields.Integer(
        allow_none=True, metadata=described("The stored generation of the resource.")
    )


class StatsResults(Schema):
    """The results of a push, in the order of its items."""

    results = fields.List(fields.Nested(StatsResult))


_REQUEST, _RESULTS = StatsRequest(), StatsResults()


def push(call: Call) -> Answer:
    """Push stats, which are properties, of up to 1,000 resources."""
    data = validation.load(_REQUEST, validation.body(call))
    pushes = [_read(call, index, item) for index, item in enumerate(data["items"])]
    try:
        results = stats.push(call.runtime, pushes)
    except InvalidInput as error:
        raise validation.placed(error, ("items", *error.place)) from None
    return _RESULTS.dump({"results": results}), 200


def _read(call: Call, index: int, item: dict[str, Any]) -> Push:
    types = call.runtime.settings.property_types
    return Push(**{**item, "stats": texts(types, item["stats"], ("items", index, "stats"))})
