"""What v2 takes and gives about what is free, and about what one may have."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import NOW, Moment, Strict
from climate.api.v2.http.schemas import says
from climate.api.v2.leases.schemas import MOST, ReservationRequest


class FreeStep(Schema):
    """How many units of what was asked for are free at any instant of a window."""

    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    free = fields.Integer()


class Availability(Schema):
    """What is free when, without gaps."""

    steps = fields.List(fields.Nested(FreeStep))


class WindowSearch(Strict):
    """A lease that may begin whenever there is enough for it."""

    reservations = fields.List(
        fields.Nested(ReservationRequest), required=True, validate=validate.Length(1, MOST)
    )
    duration = fields.Integer(
        required=True,
        strict=True,
        validate=validate.Range(min=1, max=366 * 86400),
        metadata=says("Seconds."),
    )
    start_after = Moment(words=(NOW,))
    end_by = Moment(required=True)
    limit = fields.Integer(load_default=5, strict=True, validate=validate.Range(1, 20))


class Offer(Schema):
    """A window that would be admitted now; it may be moved to begin at ``latest_start``."""

    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    latest_start = Moment()


class Offers(Schema):
    """Windows that would be admitted now, the soonest first. Nothing is held."""

    windows = fields.List(fields.Nested(Offer))


class LimitValues(Schema):
    """What one may have; null is as much as there is. Times are in seconds."""

    leases = fields.Integer(allow_none=True)
    hosts = fields.Integer(allow_none=True)
    vcpus = fields.Integer(allow_none=True)
    host_hours = fields.Integer(allow_none=True)
    duration = fields.Integer(allow_none=True)
    horizon = fields.Integer(allow_none=True)
    extension_window = fields.Integer(allow_none=True)
    extension = fields.Integer(allow_none=True)


class Used(Schema):
    """What one has: leases now, hosts and vcpus at most at once, host-hours in a period."""

    leases = fields.Integer()
    hosts = fields.Integer()
    vcpus = fields.Integer()
    host_hours = fields.Float()


class LimitedParty(Schema):
    """A project or a user, and what it may have and has."""

    scope = fields.String()
    id = fields.String(attribute="owner_id")
    limits = fields.Nested(LimitValues)
    used = fields.Nested(Used, attribute="usage")


class Limits(Schema):
    """Whether limits apply to the caller, the rolling period in seconds, and the limits."""

    apply = fields.Boolean()
    period = fields.Integer()
    parties = fields.List(fields.Nested(LimitedParty))


# Made once: making a schema takes longer than using it.
AVAILABILITY, LIMITS = Availability(), Limits()
WINDOW_SEARCH, OFFERS = WindowSearch(), Offers()


class AvailabilityQuery(Strict):
    """What shall be free, and between when one wants to know."""

    resource_type = fields.String(required=True)
    params = fields.String(metadata=says("What is asked for, as JSON; one unit of it counts."))
    start = Moment(words=(NOW,))
    end = Moment(required=True)


AVAILABILITY_QUERY = AvailabilityQuery()
