"""What v2 takes to register a resource."""

from marshmallow import fields, validate

from climate.api.v2.http.fields import Strict
from climate.api.v2.leases.schemas import says


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
