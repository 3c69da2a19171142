"""Schemas of offers."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import Moment, Strict, flag
from climate.api.v2.http.schemas import PageQuery, described, page_of
from climate.api.v2.leases.schemas import LeaseRequest, Reservation
from climate.core.lease.model import StartWhen


class OfferRequest(LeaseRequest):
    """The body of a request to create an offer: the body of a lease, and how long to hold it."""

    class Meta:
        """An offer cannot wait in the wait list."""

        exclude = ("wait",)

    hold = fields.Integer(
        strict=True,
        validate=validate.Range(min=1),
        metadata=described(
            "Seconds for which the offer holds capacity. Default and maximum: [offers] longest."
        ),
    )


class Acceptance(Strict):
    """The body of a request to accept an offer; it may be empty."""

    name = fields.String(
        validate=validate.Length(1, 80), metadata=described("Name of the lease; default: as is.")
    )


class Offer(Schema):
    """An offer: it holds capacity until it expires, or a user accepts it.

    The lease that it becomes has the same id.
    """

    id = fields.String()
    name = fields.String()
    user_id = fields.String()
    project_id = fields.String()
    expires_at = Moment(attribute="offered_until")
    start = Moment(attribute="window.start")
    end = Moment(attribute="window.end")
    start_when = fields.Enum(StartWhen, by_value=True, attribute="start.when")
    reservations = fields.List(fields.Nested(Reservation))
    created_at = Moment()


OfferPage = page_of("offers", Offer)


class OfferQuery(PageQuery):
    """The query parameters of the list of open offers."""

    all_projects = flag(
        load_default=False,
        metadata=described("Offers of all projects. Requires the policy climate:leases:get_all."),
    )


# Created once, because creating a schema takes longer than using it.
OFFER, OFFER_REQUEST, ACCEPTANCE, OFFER_QUERY = Offer(), OfferRequest(), Acceptance(), OfferQuery()
