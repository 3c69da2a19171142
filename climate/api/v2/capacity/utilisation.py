"""The route of ``/v2/utilisation``: how much of the capacity leases use over time."""

from marshmallow import Schema, fields, validate

from climate.api.call import Answer, Call
from climate.api.v2.http import validation
from climate.api.v2.http.fields import Moment, Strict, show
from climate.api.v2.http.schemas import described
from climate.core.errors import InvalidQuery, UnsupportedResourceType
from climate.core.window import Window
from climate.manager.resources import utilisation
from climate.manager.resources.utilisation import By, Period, UtilisationQuery


class Query(Strict):
    """The resources and the window of the utilisation, and how to divide it into series."""

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
    """In each period, the occupied part (0 to 1) of ``capacity``, a number of resources."""

    name = fields.String()
    capacity = fields.Integer()
    values = fields.List(fields.Float())


class Utilisation(Schema):
    """Which part of the capacity is occupied over time by leases and the cleaning after them."""

    start = Moment()
    end = Moment()
    period = fields.String()
    series = fields.List(fields.Nested(Series))


_QUERY = Query()


def index(call: Call) -> Answer:
    """Show how much of the capacity leases use, by resource type, project or property."""
    query = validation.query(_QUERY)
    wanted = UtilisationQuery(
        resource_type=query.get("resource_type"),
        window=Window(query["start"], query["end"]),
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
