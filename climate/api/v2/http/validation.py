"""Validation of requests. An error lists every invalid value, and where it is in the request."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flask import request
from marshmallow import Schema, ValidationError, fields

from climate.api.call import Call, json_object
from climate.api.v2.http.fields import UNKNOWN, Strict
from climate.core.errors import InvalidDate, InvalidInput, MissingParameter, UnsupportedMediaType

_REQUIRED = fields.Field.default_error_messages["required"]
_MISSING = "This is required."
# Plug-ins' schemas have marshmallow's own message for an unknown key.
_UNKNOWN = {"Unknown field.", UNKNOWN}
_BY_CODE: dict[str, type[InvalidInput]] = {e.code: e for e in (InvalidDate, MissingParameter)}
# A client needs no longer list of errors.
_MAX_ERRORS = 100

_NO_PARAMETERS = Strict()

Place = tuple[str | int, ...]
Finding = tuple[Place, str]


def body(call: Call) -> dict[str, Any]:
    """Return the JSON object in the request body, on a route that allows no query parameters.

    Raises UnsupportedMediaType. Raises InvalidInput if the body is invalid or there is a query.
    """
    no_query()
    return json_body(call)


def json_body(call: Call) -> dict[str, Any]:
    """Return the JSON object in the request body, on a route that allows query parameters.

    Raises UnsupportedMediaType, InvalidInput.
    """
    # A body without a Content-Type is accepted as JSON.
    if request.mimetype:
        _require_json()
    return call.body(unique_keys=True)


def anonymous_body() -> dict[str, Any]:
    """Return the JSON object in the body of a request whose caller is not identified.

    The header Content-Type must name JSON: a form on another site cannot send that type.
    Raises UnsupportedMediaType. Raises InvalidInput if the body is invalid or there is a query.
    """
    no_query()
    _require_json()
    return json_object(unique_keys=True)


def _require_json() -> None:
    if not request.is_json:
        raise UnsupportedMediaType(
            f"The Content-Type of the body is {request.mimetype or 'absent'}: send JSON with"
            " 'Content-Type: application/json'"
        )


def load(schema: Schema, data: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Validate ``data``, the request body, with ``schema``; return the loaded values.

    If the body has errors, raises one InvalidInput that lists them all.
    """
    [loaded] = load_all([(schema, data, ())])
    return loaded


def load_all(parts: Sequence[tuple[Schema, Mapping[str, Any], Place]]) -> list[Any]:
    """Validate parts of the request body, each with its own schema; return the loaded parts.

    Each item of ``parts`` is a tuple: the schema of the part, its data, and its place in the body,
    such as ``("reservations", 0)``. If parts have errors, raises one InvalidInput that lists them
    all.
    """
    checked = [check(*part) for part in parts]
    findings = [finding for part_findings, _ in checked for finding in part_findings]
    if findings:
        shown = findings[:_MAX_ERRORS]
        raise _error([_in_body(place, text) for place, text in shown], findings)
    return [loaded for _, loaded in checked]


def no_query() -> None:
    """Raise InvalidInput if the request has a query parameter; for routes that allow none."""
    query(_NO_PARAMETERS)


def query(schema: Schema) -> dict[str, Any]:
    """Validate the query string with ``schema``; return the loaded values. Raises InvalidInput."""
    repeatable = {name for name, field in schema.fields.items() if isinstance(field, fields.List)}
    data: dict[str, Any] = {}
    for name, values in request.args.lists():
        if name not in repeatable and len(values) > 1:
            text = "This was given more than once."
            raise _error([{"parameter": name, "detail": text}], [((name,), text)])
        data[name] = values if name in repeatable else values[0]
    return dict(_parameters(*check(schema, data, ())))


def load_parameter(schema: Schema, data: Mapping[str, Any], at: Place) -> Any:  # noqa: ANN401
    """Validate ``data``, the parsed JSON of a query parameter, with ``schema``; return the values.

    ``at`` is the place of ``data``, which errors name. Its first item is the name of the parameter.
    Raises InvalidInput.
    """
    try:
        findings, loaded = check(schema, data, at)
    except InvalidInput as error:
        raise of_parameter(error, str(at[0])) from None
    return _parameters(findings, loaded)


def of_parameter(error: InvalidInput, name: str) -> InvalidInput:
    """Return a copy of ``error`` that names the query parameter ``name`` as its cause."""
    errors = [{"parameter": name, "detail": error.message}]
    return type(error)(error.message, {**error.details, "errors": errors})


def _parameters(findings: Sequence[Finding], loaded: Any) -> Any:  # noqa: ANN401 - any schema's
    if findings:
        errors = [{"parameter": str(place[0]), "detail": text} for place, text in findings]
        raise _error(errors, findings)
    return loaded


def placed(error: InvalidInput, place: Place) -> InvalidInput:
    """Return a copy of ``error`` that names ``place`` in the request body as its cause.

    Example of a place: ``("reservations", 0, "params")``.
    """
    return type(error)(error.message, {**error.details, "errors": [_in_body(place, error.message)]})


def check(schema: Schema, data: Mapping[str, Any], at: Place) -> tuple[list[Finding], Any]:
    """Load ``data`` with ``schema``; return a list of errors, and the loaded data.

    If there are errors, the loaded data is None. ``at`` is the place of ``data`` in the body, such
    as ``("reservations", 0)``. If a field of a plug-in's schema raises InvalidInput, raise a copy
    of this error that names the place of the value.
    """
    try:
        return [], schema.load(data)
    except ValidationError as error:
        messages = error.normalized_messages()  # type: ignore[no-untyped-call]
        found = enumerate(_findings(messages, at, schema))
        # To find a similar key takes 0.1 ms, and a body has room for 60,000 unknown keys.
        return [
            (place, _reworded(text, key, within if number < _MAX_ERRORS else None))
            for number, (place, text, key, within) in found
        ], None
    except InvalidInput as error:
        # A plug-in's field raises an error of climate, which ends the validation at once.
        raise placed(error, (*at, *error.place)) from None


def _findings(
    messages: Mapping[Any, Any], at: Place, schema: Schema | None = None
) -> Iterator[tuple[Place, str, object, Schema | None]]:
    """Yield place, text, key, and schema of the key, for each error in marshmallow's ``messages``.

    ``messages`` are about the object or list at the place ``at``. ``schema`` describes this object
    or list, as in ``_schema_of``; None if its schema is unknown.
    """
    for key, value in messages.items():
        place = at if key == "_schema" else (*at, key)
        if isinstance(value, Mapping):
            yield from _findings(value, place, _schema_of(schema, key))
        else:
            yield from ((place, text, key, schema) for text in value)


def _schema_of(schema: Schema | None, key: Any) -> Any:  # noqa: ANN401 - a Schema or a field
    """Return the schema of the value at ``key`` in an object or list; None if it is unknown.

    ``schema`` describes the object or list: it is the schema of the object, or the marshmallow
    field of the list. Likewise, the result is a marshmallow field if the value is a list.
    """
    if isinstance(schema, fields.List):
        return getattr(schema.inner, "schema", None)
    field = schema.fields.get(key) if schema is not None else None
    return field if isinstance(field, fields.List) else getattr(field, "schema", None)


def _reworded(text: str, key: object, schema: Schema | None) -> str:
    """Return an error text of marshmallow in climate's words; other texts as they are."""
    if text in _UNKNOWN:
        return _unknown(key, schema)
    return _MISSING if text == _REQUIRED else text


def _unknown(key: object, schema: Schema | None) -> str:
    """Return the error text for an unknown key, with a similar known key if there is one."""
    if schema is None:
        return UNKNOWN
    similar = difflib.get_close_matches(str(key), [*schema.fields], n=1)
    return f"{UNKNOWN} Did you mean {similar[0]}?" if similar else UNKNOWN


def _in_body(place: Place, text: str) -> dict[str, str]:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in place)
    return {"pointer": "#" + "".join(f"/{step}" for step in steps), "detail": str(text)}


def _error(errors: list[dict[str, str]], findings: Sequence[Finding]) -> InvalidInput:
    """Return one error that reports all ``findings``, the invalid values of a request.

    ``errors`` contains the same findings in the format of the answer. If all findings have the same
    error class, such as InvalidDate, the result is an error of this class. Otherwise it is an
    InvalidInput.
    """
    kinds = {_kind(text) for _, text in findings}
    kind = kinds.pop() if len(kinds) == 1 else InvalidInput
    place, text = findings[0]
    where = ".".join(str(step) for step in place)
    sentence = f"{where}: {text}" if where else str(text)
    others = f" ({len(findings) - 1} more in errors)" if len(findings) > 1 else ""
    return kind(sentence + others, {"errors": errors[:_MAX_ERRORS]})


def _kind(text: str) -> type[InvalidInput]:
    if text == _MISSING:
        return MissingParameter
    return _BY_CODE.get(getattr(text, "code", ""), InvalidInput)
