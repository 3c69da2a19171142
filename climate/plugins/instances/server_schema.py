"""What becomes of reserved instances by themselves: servers booted at the start, kept as images.

By default a reservation is room alone, and servers in it are deleted at the end. ``server`` is a
part of what Nova takes, in Nova's words, of servers that climate boots as the lease's user.
"""

import base64
import binascii
from typing import Any

from marshmallow import (
    RAISE,
    Schema,
    ValidationError,
    fields,
    post_load,
    validate,
    validates_schema,
)

from climate.plugins.base import RequestSchema

CREATE, NOTHING = "create", "nothing"
DELETE, SNAPSHOT = "delete", "snapshot"
# Bounds one start: each is a request to Nova. Who wants more has room, and a template for Heat.
MAX_SERVERS = 100
# What servers of ours are known by, in their metadata.
MARK = "climate:reservation"
NUMBER = "climate:number"
_OURS = "climate:"
_LONGEST = 255
_TEXT = validate.Length(1, _LONGEST)
# As Nova's API has it.
_MOST_USER_DATA = 65_535
_MOST_NETWORKS = 16
_KEEP = (
    "keep is not to be had: the room is somebody else's after the end. Use snapshot, which keeps an"
    " image of each server, or make the lease longer"
)


class Networks(fields.Field[Any]):
    """``auto``, ``none``, or a list of networks by uuid."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
        if value in ("auto", "none"):
            return value
        if (
            isinstance(value, list)
            and 0 < len(value) <= _MOST_NETWORKS
            and all(map(_is_network, value))
        ):
            return value
        raise ValidationError('Must be auto, none, or a list such as [{"uuid": "..."}]')


def _is_network(value: Any) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(value, dict) or set(value) != {"uuid"}:
        return False
    uuid = value["uuid"]
    return isinstance(uuid, str) and 0 < len(uuid) <= _LONGEST


def _is_base64(text: str) -> None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValidationError("Must be base64, as Nova wants it") from None


def _own_metadata(metadata: dict[str, str]) -> None:
    texts = [*metadata, *metadata.values()]
    if "" in metadata or any(len(text) > _LONGEST for text in texts):
        raise ValidationError(f"Names must have 1 to {_LONGEST} characters, values at most that")
    if any(name.startswith(_OURS) for name in metadata):
        raise ValidationError(f"Names that begin with {_OURS} are climate's own")


class SecurityGroupSchema(Schema):
    """A security group of the project's."""

    class Meta:
        """What Nova would take besides is not for servers that are booted later."""

        unknown = RAISE

    name = fields.String(required=True, validate=_TEXT)


class ServerSchema(Schema):
    """What a server is booted with, besides the reservation's flavor; names are Nova's."""

    class Meta:
        """A word that we do not know must not be lost."""

        unknown = RAISE

    name = fields.String(validate=validate.Length(1, 200))
    imageRef = fields.String(required=True, validate=_TEXT)  # noqa: N815 - Nova's name
    networks = Networks(load_default="auto")
    key_name = fields.String(validate=_TEXT)
    user_data = fields.String(validate=[validate.Length(max=_MOST_USER_DATA), _is_base64])
    security_groups = fields.List(
        fields.Nested(SecurityGroupSchema), validate=validate.Length(1, 32)
    )
    metadata = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        validate=[validate.Length(max=64), _own_metadata],
    )
    config_drive = fields.Boolean()


def _on_end(word: str) -> None:
    if word == "keep":
        raise ValidationError(_KEEP)
    if word not in {DELETE, SNAPSHOT}:
        raise ValidationError("Must be delete or snapshot")


class LifeCycleSchema(RequestSchema):
    """What happens at the start and at the end of reserved instances."""

    on_start = fields.String(
        load_default=NOTHING, allow_none=True, validate=validate.OneOf([CREATE, NOTHING])
    )
    on_end = fields.String(load_default=DELETE, allow_none=True, validate=_on_end)
    server = fields.Nested(ServerSchema, load_default=None, allow_none=True)

    @post_load
    def _life(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Read null as the default."""
        return {
            **data,
            "on_start": data["on_start"] or NOTHING,
            "on_end": data["on_end"] or DELETE,
        }

    @validates_schema
    def _servers(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if data["on_start"] != CREATE:
            if data["server"] is not None:
                raise ValidationError("This goes with on_start create", "server")
            return
        if data["server"] is None:
            raise ValidationError('on_start create needs it, such as {"imageRef": "..."}', "server")
        if data["amount"] > MAX_SERVERS:
            raise ValidationError(f"At most {MAX_SERVERS} servers with on_start create", "amount")
