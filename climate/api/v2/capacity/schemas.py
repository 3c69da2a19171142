"""Schemas of availability and of the search for windows that fit a request."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import NOW, Count, Moment, Strict
from climate.api.v2.http.schemas import described
from climate.api.v2.leases.schemas import ReservationRequest
from climate.core.window import MAX_SPAN
from climate.manager.admission.window_search import MAX_REQUIREMENTS


class FreeStep(Schema):
    """A window, and how many of the requested units, such as hosts, are free during all of it."""

    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    free = fields.Integer()


class Availability(Schema):
    """The number of free units, such as hosts, over time, in consecutive windows without gaps.

    If the query has a ``resolution``, the window is divided into buckets of that many seconds, and
    the smallest number of free units in each bucket is shown. Consecutive buckets with the same
    number are shown as one step.
    """

    steps = fields.List(fields.Nested(FreeStep))
    resolution = fields.Integer(metadata=described("Seconds of a bucket, as requested."))
    units = fields.Integer(
        metadata=described("Units that match, booked or not; only with a resolution.")
    )


class WindowSearch(Strict):
    """The body of a search for windows in which climate would admit a lease now."""

    reservations = fields.List(
        fields.Nested(ReservationRequest),
        required=True,
        validate=validate.Length(1, MAX_REQUIREMENTS),
    )
    duration = fields.Integer(
        required=True,
        strict=True,
        validate=validate.Range(min=1, max=int(MAX_SPAN.total_seconds())),
        metadata=described("Length of the lease in seconds."),
    )
    start_after = Moment(words=(NOW,), metadata=described("Earliest start; default: now."))
    end_by = Moment(required=True, metadata=described("Latest end."))
    limit = fields.Integer(load_default=5, strict=True, validate=validate.Range(1, 20))


class FreeWindow(Schema):
    """A window in which climate would admit the lease now.

    The lease may also start later than ``start``, until ``latest_start``, with the same duration.
    """

    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    latest_start = Moment()


class ForbiddenWindow(Schema):
    """A window in which the lease would fit now, but that one of your limits forbids."""

    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    detail = fields.String(
        attribute="reason", metadata=described("Which limit forbids it, and by how much.")
    )


class FreeWindows(Schema):
    """Windows in which climate would admit the lease now, the earliest first.

    They are not reserved: another request can book the resources first. ``POST /v2/offers`` holds
    the resources for some minutes.
    """

    windows = fields.List(fields.Nested(FreeWindow))
    forbidden = fields.List(
        fields.Nested(ForbiddenWindow),
        metadata=described("Windows that are free, but that your limits forbid."),
    )


# Created once, because creating a schema takes longer than using it.
AVAILABILITY, WINDOW_SEARCH, FREE_WINDOWS = Availability(), WindowSearch(), FreeWindows()


class AvailabilityQuery(Strict):
    """The query parameters of availability: resource type, window and kind of unit.

    ``params`` describes the units to count, such as hosts with certain properties.
    """

    resource_type = fields.String(required=True)
    params = fields.String(metadata=described("Parameters of a reservation of one unit, as JSON."))
    start = Moment(words=(NOW,))
    end = Moment(required=True)
    resolution = Count(
        minimum=300,
        maximum=86_400,
        metadata=described("Seconds of a bucket: shows the least free units in each."),
    )


AVAILABILITY_QUERY = AvailabilityQuery()
