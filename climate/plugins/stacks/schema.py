"""The parameters of a reservation of a stack."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, fields, post_load, validate, validates_schema

from climate.core.lease.model import CREATE, MANUAL, NOTHING
from climate.plugins.base import DELETE, KEEP
from climate.plugins.request_fields import RequestSchema, titled
from climate.plugins.stacks.document import InvalidTemplate, parse_environment, parse_template
from climate.plugins.stacks.template import Source

SUSPEND = "suspend"
# Heat's default limit for template, files and environment together, in bytes.
LARGEST = 512 * 1024
# The keys of a stack's source. All of them may contain secrets.
SOURCE = ("template", "files", "parameters", "environment")
# Heat's rule, but shorter: nested stacks have longer names.
_NAME = validate.Regexp(
    r"\A[a-zA-Z][a-zA-Z0-9_.-]{0,127}\Z",
    error="Must begin with a letter and have up to 128 letters, digits, and any of _.-",
)


class _Document(fields.Field[dict[str, Any]]):
    """A field for a document: a JSON object, or YAML text that describes an object."""

    def __init__(self, **kwargs: Any) -> None:
        form = {"type": ["object", "string"], "format": "yaml"}
        super().__init__(**{**kwargs, "metadata": {**form, **kwargs.get("metadata", {})}})

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> dict[str, Any]:  # noqa: ANN401
        if isinstance(value, Mapping):
            return dict(value)
        if not isinstance(value, str) or len(value) > LARGEST:
            raise ValidationError("Must be an object, or its YAML as text")
        try:
            return self._read(value)
        except InvalidTemplate as error:
            raise ValidationError(f"Cannot be read: {error.message}") from None

    def _read(self, text: str) -> dict[str, Any]:
        return parse_environment(text)


class _Template(_Document):
    """A field for a Heat template, which must name its version."""

    def _read(self, text: str) -> dict[str, Any]:
        return parse_template(text)


class StackSchema(RequestSchema):
    """The parameters of a reservation of a stack.

    ``look_up`` sets ``reserves``. If ``stack_id`` names an existing stack, ``look_up`` also copies
    the source of this stack to ``template``, ``files``, ``parameters`` and ``environment``.
    """

    template = _Template(
        load_default=None,
        allow_none=True,
        metadata=titled(
            "Template",
            "A Heat template. Required, unless stack_id names an existing stack.",
            writeOnly=True,
        ),
    )
    files = fields.Dict(
        keys=fields.String(),
        values=fields.String(),
        load_default=dict,
        metadata=titled("Files", "The files that the template uses, by name.", writeOnly=True),
    )
    parameters = fields.Dict(
        keys=fields.String(),
        load_default=dict,
        metadata=titled("Parameters", "Values of the template's parameters.", writeOnly=True),
    )
    environment = _Document(
        load_default=dict, metadata=titled("Environment", "A Heat environment.", writeOnly=True)
    )
    stack_name = fields.String(
        load_default=None,
        allow_none=True,
        validate=_NAME,
        metadata=titled("Name of the stack", "Not allowed with stack_id."),
    )
    stack_id = fields.String(
        load_default=None,
        allow_none=True,
        validate=validate.Length(1, 64),
        metadata=titled("Existing stack", "Id of a stack of your project, instead of a template."),
    )
    volume_type = fields.String(
        load_default=None,
        allow_none=True,
        validate=validate.Length(1, 255),
        metadata=titled("Volume type", "For volumes whose type the template does not name."),
    )
    on_start = fields.String(
        load_default=CREATE,
        validate=validate.OneOf([CREATE, NOTHING, MANUAL]),
        metadata=titled(
            "At the start",
            "nothing: you create the stack yourself; manual: climate deploys it when you start the"
            " reservation.",
        ),
    )
    on_end = fields.String(
        load_default=None,
        allow_none=True,
        validate=validate.OneOf([DELETE, SUSPEND, KEEP]),
        metadata=titled(
            "At the end", "Default: delete a stack that climate created, suspend any other."
        ),
    )
    reserves = fields.Dict(
        keys=fields.String(),
        load_default=None,
        allow_none=True,
        metadata=titled("Contents of the stack", readOnly=True),
    )

    @validates_schema
    def _which(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if data["template"] is None and data["stack_id"] is None:
            raise ValidationError("Required, unless stack_id names an existing stack", "template")
        if data["stack_id"] is not None and data["stack_name"] is not None:
            raise ValidationError(
                "Not allowed with stack_id: an existing stack has a name", "stack_name"
            )
        if data["on_end"] == SUSPEND and data["on_start"] == NOTHING and data["stack_id"] is None:
            raise ValidationError(
                "Not possible with on_start nothing: you create the stack yourself, and climate"
                " cannot know it. Use delete or keep, and suspend the stack yourself",
                "on_end",
            )
        source = source_of(data)
        if source is not None and source.size > LARGEST:
            raise ValidationError(
                f"Template, files, parameters and environment have more than {LARGEST} bytes",
                "template",
            )

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Set the default of ``on_end``; move the environment's parameters to ``parameters``.

        By default, climate deletes the stacks that it created, and suspends all others.
        """
        default = DELETE if data["stack_id"] is None else SUSPEND
        data = {**data, "on_end": data["on_end"] or default}
        inner = data["environment"].get("parameters")
        if not isinstance(inner, dict):
            return data
        environment = {
            name: value for name, value in data["environment"].items() if name != "parameters"
        }
        return {
            **data,
            "environment": environment,
            "parameters": {**inner, **data["parameters"]},
        }


def source_of(params: Mapping[str, Any]) -> Source | None:
    """Return the source of a stack from the parameters of its reservation.

    Returns None if the parameters name an existing stack and ``look_up`` has not added its template
    yet.
    """
    if params["template"] is None:
        return None
    return Source(*(params[name] for name in SOURCE))


def stored(source: Source) -> dict[str, Any]:
    """Return the source of a stack as parameters, with the keys that ``source_of`` reads."""
    return {name: getattr(source, name) for name in SOURCE}
