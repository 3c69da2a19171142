"""From what was sent to checked data. A refusal names every bad value and its place (RFC 9457)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flask import request
from marshmallow import Schema, ValidationError, fields

from climate.api.call import Call
from climate.api.v2.http.fields import UNKNOWN, Strict
from climate.core.errors import InvalidDate, InvalidInput, MissingParameter, UnsupportedMediaType

_REQUIRED = fields.Field.default_error_messages["required"]
# Plugins' schemas speak marshmallow's language.
_SAID = {"Unknown field.": UNKNOWN}
# A body that is wrong in a hundred places is not made better by naming more.
_MOST = 100

_NONE = Strict()

Place = tuple[str | int, ...]
Found = tuple[Place, str]


def body(call: Call) -> dict[str, Any]:
    """Return the JSON object that was sent; raises UnsupportedMediaType, InvalidInput."""
    no_query()
    # Nothing said is JSON: there is nothing else that it could be.
    if request.mimetype and not request.is_json:
        raise UnsupportedMediaType(
            f"The body is said to be {request.mimetype}: send JSON, and say so with"
            " 'Content-Type: application/json'"
        )
    return call.body()


def load(schema: Schema, data: Mapping[str, Any], at: Place = ()) -> Any:  # noqa: ANN401
    """Return what ``schema`` makes of a part of the body; raises InvalidInput."""
    found, loaded = check(schema, data, at)
    if found:
        raise _refusal([_in_body(place, text) for place, text in found], found)
    return loaded


def load_all(parts: Sequence[tuple[Schema, Mapping[str, Any], Place]]) -> list[Any]:
    """Return what schemas make of several parts of the body; raises InvalidInput for all."""
    checked = [check(*part) for part in parts]
    found = [one for findings, _ in checked for one in findings]
    if found:
        raise _refusal([_in_body(place, text) for place, text in found], found)
    return [loaded for _, loaded in checked]


def no_query() -> None:
    """Raise InvalidInput for parameters: who sends some to change something means something."""
    query(_NONE)


def query(schema: Schema) -> dict[str, Any]:
    """Return the checked parameters of the query string; raises InvalidInput."""
    repeatable = {name for name, one in schema.fields.items() if isinstance(one, fields.List)}
    data: dict[str, Any] = {}
    for name, values in request.args.lists():
        if name not in repeatable and len(values) > 1:
            text = "This was given more than once."
            raise _refusal([{"parameter": name, "detail": text}], [((name,), text)])
        data[name] = values if name in repeatable else values[0]
    return dict(_parameters(*check(schema, data, ())))


def load_parameter(schema: Schema, data: Mapping[str, Any], at: Place) -> Any:  # noqa: ANN401
    """Return what ``schema`` makes of a parameter that is JSON; raises InvalidInput."""
    try:
        found, loaded = check(schema, data, at)
    except InvalidInput as error:
        raise of_parameter(error, str(at[0])) from None
    return _parameters(found, loaded)


def of_parameter(error: InvalidInput, name: str) -> InvalidInput:
    """Return a refusal that also says which parameter of the query string its reason is."""
    errors = [{"parameter": name, "detail": error.message}]
    return type(error)(error.message, {**error.details, "errors": errors})


def _parameters(found: Sequence[Found], loaded: Any) -> Any:  # noqa: ANN401 - any schema's
    if found:
        errors = [{"parameter": str(place[0]), "detail": text} for place, text in found]
        raise _refusal(errors, found)
    return loaded


def placed(error: InvalidInput, place: Place) -> InvalidInput:
    """Return a refusal that also says where in the body its reason is."""
    return type(error)(error.message, {**error.details, "errors": [_in_body(place, error.message)]})


def check(schema: Schema, data: Mapping[str, Any], at: Place) -> tuple[list[Found], Any]:
    """Return what is wrong with ``data``, or what the schema makes of it."""
    try:
        return [], schema.load(data)
    except ValidationError as error:
        messages = error.normalized_messages()  # type: ignore[no-untyped-call]
        return list(_findings(messages, at)), None
    except InvalidInput as error:
        # A plugin's field knows better than marshmallow what is wrong, and says so at once.
        raise placed(error, at) from None


def _findings(messages: Mapping[Any, Any], at: Place) -> Iterator[Found]:
    for key, value in messages.items():
        place = at if key == "_schema" else (*at, key)
        if isinstance(value, Mapping):
            yield from _findings(value, place)
        else:
            yield from ((place, _SAID.get(text, text)) for text in value)


def _in_body(place: Place, text: str) -> dict[str, str]:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in place)
    return {"pointer": "#" + "".join(f"/{step}" for step in steps), "detail": str(text)}


def _refusal(errors: list[dict[str, str]], found: Sequence[Found]) -> InvalidInput:
    """Return the refusal for what was found: of one kind if all of it is, else the general one."""
    kinds = {_kind(text) for _, text in found}
    kind = kinds.pop() if len(kinds) == 1 else InvalidInput
    place, text = found[0]
    where = ".".join(str(step) for step in place)
    sentence = f"{where}: {text}" if where else str(text)
    others = f" ({len(found) - 1} more in errors)" if len(found) > 1 else ""
    return kind(sentence + others, {"errors": errors[:_MOST]})


def _kind(text: str) -> type[InvalidInput]:
    if text == _REQUIRED:
        return MissingParameter
    return InvalidDate if getattr(text, "code", None) == InvalidDate.code else InvalidInput
