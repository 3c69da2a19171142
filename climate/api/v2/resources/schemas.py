"""Schemas of resources in the v2 API."""

from marshmallow import Schema, fields, validate

from climate.api.v2.http.fields import Moment, Strict
from climate.api.v2.http.schemas import PageQuery, described, page_of, sorted_by
from climate.core.page import RESOURCE_SORTS


class ResourceRequest(Strict):
    """A request to make a resource of the cloud reservable."""

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


RESOURCE_REQUEST = ResourceRequest()


class Resource(Schema):
    """A reservable resource."""

    id = fields.String()
    resource_type = fields.String(attribute="type")
    name = fields.String(attribute="external_id")
    reservable = fields.Boolean(metadata=described("Whether the resource works and can be booked."))
    properties = fields.Dict(keys=fields.String(), values=fields.String())
    created_at = Moment()
    updated_at = Moment(allow_none=True)


ResourcePage = page_of("resources", Resource)


class ResourceQuery(PageQuery):
    """Filter and order of resources."""

    sort = sorted_by(RESOURCE_SORTS, "id")
    resource_type = fields.String()
    properties = fields.String(
        metadata=described('A property expression as JSON, such as ["==", "$vcpus", 64].')
    )


RESOURCE, RESOURCE_PAGE, RESOURCE_QUERY = Resource(), ResourcePage(), ResourceQuery()
