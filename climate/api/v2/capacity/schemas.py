"""Schemas of availability, of the search for windows, and of limits."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import NOW, Moment, Strict
from climate.api.v2.http.schemas import described
from climate.api.v2.leases.schemas import ReservationRequest
from climate.manager.admission.availability import MAX_REQUIREMENTS


class FreeStep(Schema):
    """A window, and the number of requested units that are free during all of it."""

    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    free = fields.Integer()


class Availability(Schema):
    """The free units over time, in consecutive windows without gaps."""

    steps = fields.List(fields.Nested(FreeStep))


class WindowSearch(Strict):
    """A search for windows in which climate would admit a lease."""

    reservations = fields.List(
        fields.Nested(ReservationRequest),
        required=True,
        validate=validate.Length(1, MAX_REQUIREMENTS),
    )
    duration = fields.Integer(
        required=True,
        strict=True,
        validate=validate.Range(min=1, max=366 * 86400),
        metadata=described("Length of the lease in seconds."),
    )
    start_after = Moment(words=(NOW,), metadata=described("Earliest start; default: now."))
    end_by = Moment(required=True, metadata=described("Latest end."))
    limit = fields.Integer(load_default=5, strict=True, validate=validate.Range(1, 20))


class Offer(Schema):
    """A window that climate would admit now; a lease may start as late as ``latest_start``."""

    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    latest_start = Moment()


class Offers(Schema):
    """Windows that climate would admit now, the earliest first. The search reserves nothing."""

    windows = fields.List(fields.Nested(Offer))


class LimitValues(Schema):
    """The limits of a project or a user; null: unlimited. Times are in seconds."""

    leases = fields.Integer(allow_none=True)
    hosts = fields.Integer(allow_none=True)
    vcpus = fields.Integer(allow_none=True)
    host_hours = fields.Integer(allow_none=True)
    duration = fields.Integer(allow_none=True)
    horizon = fields.Integer(allow_none=True)
    extension_window = fields.Integer(allow_none=True)
    extension = fields.Integer(allow_none=True)


class Used(Schema):
    """Usage: current leases, the peaks of hosts and vcpus, and host-hours in a period."""

    leases = fields.Integer()
    hosts = fields.Integer()
    vcpus = fields.Integer()
    host_hours = fields.Float()


class LimitedParty(Schema):
    """A project or a user, with its limits and its usage."""

    scope = fields.String()
    id = fields.String(attribute="owner_id")
    limits = fields.Nested(LimitValues)
    used = fields.Nested(Used, attribute="usage")


class Limits(Schema):
    """Whether limits apply to the caller, the rolling period in seconds, and limits and usage."""

    apply = fields.Boolean()
    period = fields.Integer()
    parties = fields.List(fields.Nested(LimitedParty))


# Created once, because creating a schema takes longer than using it.
AVAILABILITY, LIMITS = Availability(), Limits()
WINDOW_SEARCH, OFFERS = WindowSearch(), Offers()


class AvailabilityQuery(Strict):
    """The resources, and the window in which to show the free units."""

    resource_type = fields.String(required=True)
    params = fields.String(metadata=described("Parameters of a reservation of one unit, as JSON."))
    start = Moment(words=(NOW,))
    end = Moment(required=True)


AVAILABILITY_QUERY = AvailabilityQuery()
