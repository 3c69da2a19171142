"""Fields of v2 schemas: times with a zone, counts and flags. They reject ambiguous values."""

import re
from datetime import UTC, datetime
from typing import Any, Self

from marshmallow import RAISE, Schema, ValidationError, fields

from climate.core.errors import InvalidDate

NOW = "now"
ASAP = "asap"
UNKNOWN = "This key is unknown."
_FORM = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(?P<fraction>[.,]\d+)?)?(?P<zone>[Zz]|[+-]\d\d:?[0-5]\d)?",
    re.ASCII,
)
# A query string turns the ``+`` of a zone into a space.
_SPOILED = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d\S* \d\d:?\d\d", re.ASCII)
_EXAMPLE = "2030-01-15T12:00:00Z or 2030-01-15T13:00:00+01:00"


class CodedMessage(str):
    """The text of a validation error, with a stable error code."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, text: str, code: str) -> Self:
        """Create a message with the text ``text`` and the error code ``code``."""
        message = super().__new__(cls, text)
        message.code = code
        return message


class Strict(Schema):
    """The base class of schemas that reject unknown keys."""

    class Meta:
        """Reject unknown keys, so that a typo never passes silently."""

        unknown = RAISE

    error_messages = {  # noqa: RUF012 - marshmallow's own declarative setting
        "unknown": UNKNOWN,
        "type": "This must be a JSON object.",
    }


class Moment(fields.Field[Any]):
    """A schema field for a time in ISO 8601, to the second, with a time zone; rendered in UTC.

    The field also accepts the texts in ``words``, such as ``now``, and loads them unchanged.
    """

    def __init__(self, *, words: tuple[str, ...] = (), **kwargs: Any) -> None:
        text = {"type": "string", "format": "date-time", "examples": ["2030-01-15T12:00:00Z"]}
        form = {"anyOf": [text, {"enum": [*words]}]} if words else text
        super().__init__(**{**kwargs, "metadata": {**form, **kwargs.get("metadata", {})}})
        self._words = words

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> datetime | str:  # noqa: ANN401
        return str(value) if value in self._words else moment(value)

    def _serialize(self, value: Any, *_args: Any, **_kwargs: Any) -> str | None:  # noqa: ANN401
        return None if value is None else show(value)


def moment(value: object) -> datetime:
    """Parse an ISO 8601 time with a zone, and return it in UTC. Raises ValidationError."""
    form = _FORM.fullmatch(value) if isinstance(value, str) else None
    if form is None and _SPOILED.fullmatch(str(value)):
        raise _invalid("In a query string, write the + of the zone as %2B.")
    if form is None:
        raise _invalid(f"This is not a date and time such as {_EXAMPLE}.")
    if form["zone"] is None:
        raise _invalid(
            "This has no zone: end it with Z for UTC, or with your distance from it, as in"
            f" {_EXAMPLE}."
        )
    if form["fraction"] and form["fraction"].strip(".,0"):
        raise _invalid("This has fractions of a second: leases are kept to the second.")
    try:
        return datetime.fromisoformat(form[0].upper()).replace(microsecond=0).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _invalid("There is no such date and time.") from None


def _invalid(text: str) -> ValidationError:
    return ValidationError(CodedMessage(text, InvalidDate.code))


def show(instant: datetime) -> str:
    """Format an instant as ISO 8601 in UTC, such as ``2030-01-15T12:00:00Z``."""
    utc = instant.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='seconds')}Z"


class Count(fields.Integer):
    """A field for a whole number in a query string, from ``minimum`` to ``maximum``."""

    def __init__(self, *, minimum: int, maximum: int, **kwargs: Any) -> None:
        bounds = {"minimum": minimum, "maximum": maximum}
        super().__init__(**{**kwargs, "metadata": {**bounds, **kwargs.get("metadata", {})}})
        self._range = range(minimum, maximum + 1)

    def _validated(self, value: Any) -> int:  # noqa: ANN401 - marshmallow's signature
        text = str(value)
        is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(self._range[-1]))
        if not (is_number and int(text) in self._range):
            raise ValidationError(
                f"This must be a whole number from {self._range[0]} to {self._range[-1]}."
            )
        return int(text)


def flag(**kwargs: Any) -> fields.Boolean:
    """Return a field for a boolean in a query string: true, True, 1, false, False or 0."""
    return fields.Boolean(truthy={"true", "True", "1"}, falsy={"false", "False", "0"}, **kwargs)


def nullable_params(schema: Schema) -> set[str]:
    """Return the names of the fields in ``schema`` that are required but may be null.

    v1 clients must send these fields. v2 clients may omit them: climate then uses null.
    """
    return {name for name, field in schema.fields.items() if field.required and field.allow_none}
