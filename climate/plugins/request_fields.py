"""Schemas and fields for request parameters, and their metadata for generated forms."""

import json
from collections.abc import Mapping
from typing import Any

from marshmallow import EXCLUDE, Schema, fields, missing, post_load, validate

from climate.core.errors import InvalidQuery
from climate.core.matching.extra_specs import read


def titled(title: str, description: str = "", **more: Any) -> dict[str, Any]:
    """Return field metadata with a title and a description, from which clients generate forms.

    Further arguments (``more``) are keywords of JSON Schema. Pass ``minimum``, ``maximum`` or
    ``enum`` only if no validator of the field states this rule. Pass ``readOnly=True`` if
    ``look_up`` sets the value, and ``writeOnly=True`` if answers omit the value because it may be
    secret.
    """
    return {"title": title, **({"description": description} if description else {}), **more}


#: Values of the parameter ``match``: which servers of the project use what is reserved.
OPEN, TARGETED = "open", "targeted"


def match_field(description: str) -> fields.String:
    """Return the field ``match``; ``description`` says what ``open`` means for the type."""
    return fields.String(
        load_default=TARGETED,
        allow_none=True,
        validate=validate.OneOf([TARGETED, OPEN]),
        metadata=titled("Match", description),
    )


def is_open(params: Mapping[str, Any]) -> bool:
    """Return whether ``match`` is ``open`` in the parameters of a reservation."""
    return params.get("match") == OPEN


class RequestSchema(Schema):
    """The base class of schemas for the parameters of a reservation; it ignores unknown keys."""

    class Meta:
        """Ignore unknown keys, because a request also has keys that the plug-in does not need."""

        unknown = EXCLUDE

    def defaults(self) -> dict[str, Any]:
        """Return the defaults of the optional parameters."""
        defaults = {name: each.load_default for name, each in self.fields.items()}
        return {name: value for name, value in defaults.items() if value is not missing}


class DefaultingSchema(RequestSchema):
    """A RequestSchema in which null for an optional parameter means the parameter's default.

    Null for a parameter without a default means that the parameter is absent.
    """

    @post_load
    def _replace_null(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        loaded = {
            name: value if value is not None or each.required else each.deserialize(missing)
            for name, value in data.items()
            for each in (self.fields[name],)
        }
        return {name: value for name, value in loaded.items() if value is not missing}


class WholeNumber(fields.Integer):
    """A field for an integer, as a JSON number or as text with digits only, such as ``"1"``.

    Rejects ``1.5`` and booleans.
    """

    default_error_messages = {  # noqa: RUF012 - marshmallow's attribute, which it only reads
        "invalid": "{input!r:.40} is not a whole number."
    }

    def _validated(self, value: Any) -> int:  # noqa: ANN401 - marshmallow's signature
        if isinstance(value, bool | float):
            raise self.make_error("invalid", input=value)
        if isinstance(value, str) and not value.strip().isdecimal():
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


#: Bytes of the text of an expression: climate stores it with the lease.
MAX_EXPRESSION = 64 * 1024


class Expression(fields.Field[str]):
    """A field for a property expression or extra specs, as text or JSON.

    The field converts its input to text, and null to an empty text.
    """

    def __init__(self, **kwargs: Any) -> None:
        form = {"type": ["string", "array", "object"], "format": "property-expression"}
        super().__init__(**{**kwargs, "metadata": {**form, **kwargs.get("metadata", {})}})

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> str:  # noqa: ANN401
        if value is None:
            return ""
        text = value if isinstance(value, str) else json.dumps(value)
        try:
            _check_length(text)
            read(value)
        except InvalidQuery as error:
            located = InvalidQuery(f"{error.message} (in {self.name})")
            located.place = (str(self.name),)
            raise located from None
        return text


def _check_length(text: str) -> None:
    if (length := len(text.encode())) > MAX_EXPRESSION:
        raise InvalidQuery(
            f"An expression has at most {MAX_EXPRESSION} bytes, this one has {length}"
        )
