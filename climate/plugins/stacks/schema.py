"""What can be asked of a stack, and how it is kept."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from climate.plugins.base import RequestSchema
from climate.plugins.networking.base import CREATE, DELETE, KEEP, NOTHING
from climate.plugins.stacks.template import Source, Unreadable, parse, parse_environment

SUSPEND = "suspend"
# What Heat takes, by default, of template, files and environment together: bytes.
LARGEST = 512 * 1024
# The keys of what a stack is made from; all of it may hold secrets.
SOURCE = ("template", "files", "parameters", "environment")
# As Heat has it, and short enough for the names of what is nested in it.
_NAME = validate.Regexp(
    r"\A[a-zA-Z][a-zA-Z0-9_.-]{0,127}\Z",
    error="Must begin with a letter and have up to 128 letters, digits, and any of _.-",
)


class _Document(fields.Field[dict[str, Any]]):
    """An object, or the YAML text of one."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        if isinstance(value, Mapping):
            return dict(value)
        if not isinstance(value, str) or len(value) > LARGEST:
            raise ValidationError("Must be an object, or its YAML as text")
        try:
            return self._read(value)
        except Unreadable as error:
            raise ValidationError(f"Cannot be read: {error}") from None

    def _read(self, text: str) -> dict[str, Any]:
        return parse_environment(text)


class _Template(_Document):
    """A template, which says of which version it is."""

    def _read(self, text: str) -> dict[str, Any]:
        return parse(text)


class StackSchema(RequestSchema):
    """The part of a reservation request that is about a stack.

    What it ``reserves`` is told by Heat, whatever is asked for.
    """

    template = _Template(load_default=None, allow_none=True)
    files = fields.Dict(keys=fields.String(), values=fields.String(), load_default=dict)
    parameters = fields.Dict(keys=fields.String(), load_default=dict)
    environment = _Document(load_default=dict)
    stack_name = fields.String(load_default=None, allow_none=True, validate=_NAME)
    stack_id = fields.String(load_default=None, allow_none=True, validate=validate.Length(1, 64))
    volume_type = fields.String(
        load_default=None, allow_none=True, validate=validate.Length(1, 255)
    )
    on_start = fields.String(load_default=CREATE, validate=validate.OneOf([CREATE, NOTHING]))
    on_end = fields.String(
        load_default=None, allow_none=True, validate=validate.OneOf([DELETE, SUSPEND, KEEP])
    )
    reserves = fields.Dict(keys=fields.String(), load_default=None, allow_none=True)

    @validates_schema
    def _which(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if data["template"] is None and data["stack_id"] is None:
            raise ValidationError("Give this, or the stack_id of a stack that is there", "template")
        if data["stack_id"] is not None and data["stack_name"] is not None:
            raise ValidationError("A stack that is there has a name", "stack_name")
        if data["on_end"] == SUSPEND and data["on_start"] == NOTHING and data["stack_id"] is None:
            raise ValidationError(
                "With on_start nothing the stack is made by you, unknown to climate: delete or"
                " suspend it yourself",
                "on_end",
            )
        source = source_of(data)
        if source is not None and source.size > LARGEST:
            raise ValidationError(
                f"Template, files, parameters and environment are more than {LARGEST} bytes",
                "template",
            )

    @post_load
    def _no_doubts(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Say what null means, and keep all parameters in one place.

        What was there before the lease is still there after it, unless its user says else.
        """
        default = DELETE if data["stack_id"] is None else SUSPEND
        data = {**data, "on_end": data["on_end"] or default}
        inner = data["environment"].get("parameters")
        if not isinstance(inner, dict):
            return data
        environment = {
            name: one for name, one in data["environment"].items() if name != "parameters"
        }
        return {
            **data,
            "environment": environment,
            "parameters": {**inner, **data["parameters"]},
        }


def source_of(params: Mapping[str, Any]) -> Source | None:
    """Return what a stack is to be made from; None if that is what it is made from already."""
    if params["template"] is None:
        return None
    return Source(*(params[name] for name in SOURCE))


def stored(source: Source) -> dict[str, Any]:
    """Return the parameters that keep a source."""
    return {name: getattr(source, name) for name in SOURCE}
