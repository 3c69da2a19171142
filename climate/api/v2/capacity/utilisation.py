"""The route of ``/v2/utilisation``: which part of the capacity is occupied over time.

The window of a request is divided into periods, such as days. The answer has a value for each
period.
"""

from marshmallow import Schema, fields, validate

from climate.api.call import Answer, Call
from climate.api.v2.http import spans, validation
from climate.api.v2.http.fields import Moment, Strict, show
from climate.api.v2.http.schemas import described
from climate.core.errors import InvalidQuery, UnsupportedResourceType
from climate.manager.resources import utilisation
from climate.manager.resources.utilisation import By, Period, UtilisationQuery


class Query(Strict):
    """The query parameters of the utilisation: resources, window, length of periods, and grouping.

    ``by`` groups the result by resource type, project or property.
    """

    resource_type = fields.String(
        metadata=described("Required except with by=type, which shows all types without it.")
    )
    start = Moment(required=True)
    end = Moment(required=True)
    period = fields.Enum(Period, by_value=True, load_default=Period.DAY)
    by = fields.Enum(By, by_value=True, load_default=By.TYPE)
    property = fields.String(
        validate=validate.Length(1, 64), metadata=described("The property, with by=property.")
    )


class Series(Schema):
    """The utilisation of one group, such as a project: a value from 0 to 1 for each period.

    A value is the occupied part of ``capacity``, the number of resources in the group. For a
    project, ``capacity`` is the number of all resources of the type. Example: 0.5 means that half
    of the resources were occupied, or all of them for half of the period.
    """

    name = fields.String()
    capacity = fields.Integer()
    values = fields.List(fields.Float())


class Utilisation(Schema):
    """The part of the capacity that leases occupy, including cleaning time, in each period."""

    start = Moment()
    end = Moment()
    period = fields.String()
    series = fields.List(fields.Nested(Series))


_QUERY = Query()


def index(call: Call) -> Answer:
    """Show which part of the capacity leases occupy, by resource type, project or property."""
    query = validation.query(_QUERY)
    wanted = UtilisationQuery(
        resource_type=query.get("resource_type"),
        window=spans.in_query(query["start"], query["end"]),
        period=query["period"],
        by=query["by"],
        prop=query.get("property"),
        private=call.may("resources:get_private"),
    )
    try:
        series = utilisation.show(call.runtime, wanted)
    except UnsupportedResourceType as error:
        raise validation.of_parameter(error, "resource_type") from None
    except InvalidQuery as error:
        raise validation.of_parameter(error, "property") from None
    return {
        "start": show(wanted.window.start),
        "end": show(wanted.window.end),
        "period": wanted.period.value,
        "series": [
            {"name": item.name, "capacity": item.capacity, "values": list(item.values)}
            for item in series
        ],
    }, 200
