"""What v2 takes to register a resource."""

from typing import Any

from marshmallow import ValidationError, fields, validate

from climate.api.v1.schemas import Capabilities
from climate.api.v2.fields import Strict
from climate.api.v2.schemas import says
from climate.core.errors import InvalidInput


class _Properties(fields.Dict):
    """Properties of the operator's own; numbers and booleans are kept as text."""

    def _deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        loaded = super()._deserialize(value, *args, **kwargs)
        try:
            return Capabilities.load(loaded)
        except InvalidInput as error:
            raise ValidationError(error.message) from None


class ResourceRequest(Strict):
    """Something that the cloud has, to be made reservable."""

    resource_type = fields.String(required=True, validate=validate.Length(1, 64))
    name = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=says("What the cloud knows it by: that of a host, of a volume type, an address."),
    )
    properties = _Properties(
        keys=fields.String(),
        load_default=dict,
        metadata=says("For expressions to ask about; of some types also how much there is."),
    )


RESOURCE_REQUEST = ResourceRequest()
