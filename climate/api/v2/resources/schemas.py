"""Schemas of resources in the v2 API."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import Moment, Strict
from climate.api.v2.http.queries import PageQuery, sorted_by
from climate.api.v2.http.schemas import next_page, says
from climate.core.page import RESOURCE_SORTS


class ResourceRequest(Strict):
    """Something that the cloud has, to be made reservable."""

    resource_type = fields.String(required=True, validate=validate.Length(1, 64))
    name = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=says("What the cloud knows it by: that of a host, of a volume type, an address."),
    )
    properties = fields.Dict(
        keys=fields.String(),
        load_default=dict,
        metadata=says("For expressions to ask about; of some types also how much there is."),
    )


RESOURCE_REQUEST = ResourceRequest()


class Resource(Schema):
    """Something that can be reserved."""

    id = fields.String()
    resource_type = fields.String(attribute="type")
    name = fields.String(attribute="external_id")
    reservable = fields.Boolean(metadata=says("Whether it works and can be booked."))
    properties = fields.Dict(keys=fields.String(), values=fields.String())
    created_at = Moment()
    updated_at = Moment(allow_none=True)


class ResourcePage(Schema):
    """A page of resources."""

    resources = fields.List(fields.Nested(Resource))
    next = next_page()


class ResourceQuery(PageQuery):
    """Which resources, in which order."""

    sort = sorted_by(RESOURCE_SORTS, "id")
    resource_type = fields.String()
    properties = fields.String(
        metadata=says('A property expression as JSON, such as ["==", "$vcpus", 64].')
    )


RESOURCE, RESOURCE_PAGE, RESOURCE_QUERY = Resource(), ResourcePage(), ResourceQuery()
