"""Parameters for servers that climate starts, and for images that it saves at the end.

By default, climate starts no servers. If ``on_start`` is ``create`` or ``manual``, climate starts
one server per reserved instance, and the lease's user owns these servers. The parameter ``server``
describes them, with some of the fields of Nova's request to create a server. At the end, climate
deletes all servers in the reservation.
"""

import base64
import binascii
from typing import Any

from marshmallow import (
    RAISE,
    Schema,
    ValidationError,
    fields,
    validate,
    validates_schema,
)

from climate.core.lease.model import CREATE, MANUAL, NOTHING
from climate.core.lease.on_start import creates
from climate.plugins.base import DELETE
from climate.plugins.request_fields import DefaultingSchema, WholeNumber, match_field, titled

SNAPSHOT = "snapshot"
# Limits the start of a reservation: each server requires a request to Nova. Users can boot more
# servers themselves, or with Heat.
MAX_SERVERS = 100
# The metadata keys of servers that climate boots.
MARK = "climate:reservation"
NUMBER = "climate:number"
_RESERVED_PREFIX = "climate:"
_LONGEST = 255
_TEXT = validate.Length(1, _LONGEST)
# The limits of Nova's API.
_MOST_USER_DATA = 65_535
_MOST_NETWORKS = 16
_KEEP = (
    "keep is not possible: after the end other leases use the hosts. Use snapshot, which saves an"
    " image of each server, or extend the lease"
)


class Networks(fields.Field[Any]):
    """A field for networks: ``auto``, ``none``, or a list such as ``[{"uuid": "..."}]``."""

    def __init__(self, **kwargs: Any) -> None:
        network = {
            "type": "object",
            "properties": {"uuid": {"type": "string"}},
            "required": ["uuid"],
        }
        networks = {"type": "array", "minItems": 1, "maxItems": _MOST_NETWORKS, "items": network}
        form = titled("Networks", anyOf=[{"enum": ["auto", "none"]}, networks])
        super().__init__(**{**kwargs, "metadata": {**form, **kwargs.get("metadata", {})}})

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
        raise ValidationError("Must be base64, as in Nova's API") from None


def _own_metadata(metadata: dict[str, str]) -> None:
    texts = [*metadata, *metadata.values()]
    if "" in metadata or any(len(text) > _LONGEST for text in texts):
        raise ValidationError(
            f"Names must have 1 to {_LONGEST} characters, values at most {_LONGEST}"
        )
    if any(name.startswith(_RESERVED_PREFIX) for name in metadata):
        raise ValidationError(f"Names must not begin with {_RESERVED_PREFIX}: climate uses them")


class SecurityGroupSchema(Schema):
    """A security group of the project, identified by its name."""

    class Meta:
        """Reject all other keys."""

        unknown = RAISE

    name = fields.String(required=True, validate=_TEXT, metadata=titled("Name"))


class ServerSchema(Schema):
    """The parameters of a server except its flavor, with the same names as in Nova's API."""

    class Meta:
        """Reject unknown keys, so that climate never ignores a misspelled key."""

        unknown = RAISE

    name = fields.String(validate=validate.Length(1, 200), metadata=titled("Name"))
    imageRef = fields.String(  # noqa: N815 - Nova's name
        required=True, validate=_TEXT, metadata=titled("Image", "Id of an image.")
    )
    networks = Networks(load_default="auto")
    key_name = fields.String(
        validate=_TEXT, metadata=titled("Key pair", "Name of your SSH key pair.")
    )
    user_data = fields.String(
        validate=[validate.Length(max=_MOST_USER_DATA), _is_base64],
        metadata=titled("User data", "For cloud-init, in base64.", format="byte", writeOnly=True),
    )
    security_groups = fields.List(
        fields.Nested(SecurityGroupSchema),
        validate=validate.Length(1, 32),
        metadata=titled("Security groups"),
    )
    metadata = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        validate=[validate.Length(max=64), _own_metadata],
        metadata=titled("Metadata"),
    )
    config_drive = fields.Boolean(metadata=titled("Config drive"))


def _on_end(word: str) -> None:
    if word == "keep":
        raise ValidationError(_KEEP)
    if word not in {DELETE, SNAPSHOT}:
        raise ValidationError("Must be delete or snapshot")


class LifeCycleSchema(DefaultingSchema):
    """Parameters that say what climate does at the start and end of a reservation of instances."""

    match = match_field(
        "open: servers with ordinary flavors use the reservation first, and others of the project"
        " run elsewhere; targeted: only servers with the reservation's flavor use it. With open the"
        " reservation has its hosts alone, and the end deletes all servers on them."
    )
    on_start = fields.String(
        load_default=NOTHING,
        allow_none=True,
        validate=validate.OneOf([CREATE, NOTHING, MANUAL]),
        metadata=titled(
            "At the start",
            "create: climate boots a server in each instance; manual: it does so when you start the"
            " reservation.",
        ),
    )
    on_end = fields.String(
        load_default=DELETE,
        allow_none=True,
        validate=_on_end,
        metadata=titled(
            "At the end",
            "snapshot: climate saves an image of each server before it deletes the servers.",
            enum=[DELETE, SNAPSHOT, None],
        ),
    )
    server = fields.Nested(
        ServerSchema,
        load_default=None,
        allow_none=True,
        metadata=titled("Server", "Required with on_start create or manual; else not allowed."),
    )
    ready_text = fields.String(
        allow_none=True,
        validate=validate.Length(1, _LONGEST),
        metadata=titled(
            "Booted when the console shows",
            "Text such as login: that the console of each server shows when it has booted. climate"
            " waits for it before the lease is active.",
        ),
    )
    ready_port = WholeNumber(
        allow_none=True,
        validate=validate.Range(1, 65_535),
        metadata=titled(
            "Ready when this port is open",
            "TCP port, such as 22, on which each server accepts connections when it is ready, at an"
            " address that the operator lets climate check. climate waits for it before the lease"
            " is active.",
        ),
    )

    @validates_schema
    def _servers(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if not creates(data):
            if data["server"] is not None:
                raise ValidationError("Requires on_start create or manual", "server")
            for name in ("ready_text", "ready_port"):
                if data.get(name):
                    raise ValidationError("Requires on_start create or manual", name)
            return
        if data["server"] is None:
            raise ValidationError(
                'Required with on_start create or manual: {"imageRef": "..."}', "server"
            )
        if data["amount"] > MAX_SERVERS:
            raise ValidationError(f"At most {MAX_SERVERS} servers with on_start create", "amount")
        if data.get("ready_port") and data["server"]["networks"] == "none":
            raise ValidationError("Requires a server with networks, not none", "ready_port")
