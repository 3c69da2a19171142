"""Schemas of resources in the v2 API."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import Moment, Strict, flag
from climate.api.v2.http.schemas import PageQuery, described, page_of, sorted_by
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.page import BOOKING_SORTS, RESOURCE_SORTS
from climate.core.provisioning.host_state import HostState
from climate.core.provisioning.preparation import PreparationState
from climate.core.provisioning.shutdown import ShutdownState


class ResourceRequest(Strict):
    """The body of a request to make a resource of the cloud reservable."""

    resource_type = fields.String(required=True, validate=validate.Length(1, 64))
    name = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=described("Name in the cloud: of a host or a volume type, or an address."),
    )
    properties = fields.Dict(
        keys=fields.String(),
        load_default=dict,
        metadata=described("For property expressions; for some types, they also set the capacity."),
    )


class ResourceChange(Strict):
    """The body of a request to change a resource. Properties that it omits keep their values."""

    properties = fields.Dict(
        keys=fields.String(),
        required=True,
        metadata=described(
            "Properties to add, change or remove (null). A capacity applies after the next look at"
            " the cloud."
        ),
    )


RESOURCE_REQUEST, RESOURCE_CHANGE = ResourceRequest(), ResourceChange()


class Power(Schema):
    """What climate knows about the power, the preparation and the quarantine of a host."""

    up = fields.Boolean(
        allow_none=True, attribute="facts.up", metadata=described("According to the cloud.")
    )
    seen_at = Moment(
        allow_none=True,
        metadata=described(
            "When the cloud was queried; for a host that is up, its last heartbeat."
        ),
    )
    shutdown = fields.Enum(
        ShutdownState,
        by_value=True,
        allow_none=True,
        attribute="facts.shutdown",
        metadata=described("State of the shutdown that is not over."),
    )
    off_at = Moment(allow_none=True, metadata=described("Since when the host is off."))
    preparation = fields.Enum(
        PreparationState,
        by_value=True,
        allow_none=True,
        attribute="facts.preparation",
        metadata=described("State of the earliest preparation that is not over."),
    )
    needed_at = Moment(allow_none=True, metadata=described("When the preparation must be done."))
    ready_at = Moment(allow_none=True, metadata=described("When the preparation was done."))
    set_aside = fields.String(
        allow_none=True, metadata=described("Reason of the quarantine; null: there is none.")
    )
    set_aside_at = Moment(allow_none=True)


class Resource(Schema):
    """A reservable resource."""

    id = fields.String(attribute="resource.id")
    resource_type = fields.String(attribute="resource.type")
    name = fields.String(attribute="resource.external_id")
    reservable = fields.Boolean(
        attribute="resource.reservable",
        metadata=described("Whether the resource works and can be booked."),
    )
    state = fields.Enum(
        HostState,
        by_value=True,
        metadata=described("ready, preparing and off are bookable; set_aside: in quarantine."),
    )
    power = fields.Nested(
        Power,
        allow_none=True,
        attribute="report",
        metadata=described(
            "Of a host. Requires the policy climate:readiness:get; null without it."
        ),
    )
    properties = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        attribute="resource.properties",
        metadata=described("As texts; the items of a set have commas between them."),
    )
    created_at = Moment(attribute="resource.created_at")
    updated_at = Moment(allow_none=True, attribute="resource.updated_at")


class Holder(Schema):
    """A lease that has a resource from ``start`` to ``end``, with its project and user."""

    lease_id = fields.String()
    lease_name = fields.String()
    project_id = fields.String()
    user_id = fields.String()
    start = Moment()
    end = Moment()


class BookedResource(Resource):
    """A reservable resource, with its present lease (``now``) and its next lease; null: none."""

    now = fields.Nested(Holder, allow_none=True)
    next = fields.Nested(Holder, allow_none=True)


class Booking(Holder):
    """A booking: a lease has a resource from ``start`` to ``end``.

    After ``end``, the resource is cleaned. It stays occupied until ``busy_until``, when the
    cleaning is finished.
    """

    busy_until = Moment()
    status = fields.Enum(LeaseStatus, by_value=True, metadata=described("Status of the lease."))
    reservation_id = fields.String()
    amounts = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        metadata=described("Amounts by resource class; empty: the whole resource."),
    )


ResourcePage = page_of("resources", Resource)
BookedResourcePage = page_of("resources", BookedResource)
BookingPage = page_of("bookings", Booking)


class ResourceQuery(PageQuery):
    """The query parameters of the list of resources: filter, order and page."""

    sort = sorted_by(RESOURCE_SORTS, "id")
    resource_type = fields.String()
    properties = fields.String(
        metadata=described('A property expression as JSON, such as ["==", "$vcpus", 64].')
    )
    q = fields.String(
        load_default="",
        validate=validate.Length(max=255),
        metadata=described("A part of the name, in upper or lower case."),
    )
    state = fields.List(
        fields.Enum(HostState, by_value=True),
        load_default=list,
        validate=validate.Length(max=len(HostState)),
    )
    bookings = flag(
        load_default=False,
        metadata=described(
            "Add the present and the next booking. Requires the policy"
            " climate:resources:get_bookings."
        ),
    )


class BookingQuery(PageQuery):
    """The query parameters of the list of a resource's bookings: window of time, order and page."""

    sort = sorted_by(BOOKING_SORTS, "start")
    start = Moment(metadata=described("Bookings that end later; the default is now."))
    end = Moment(metadata=described("Bookings that start earlier; by default, all."))


RESOURCE, RESOURCE_PAGE, RESOURCE_QUERY = Resource(), ResourcePage(), ResourceQuery()
BOOKED_RESOURCE_PAGE = BookedResourcePage()
BOOKING_PAGE, BOOKING_QUERY = BookingPage(), BookingQuery()
