"""From errors to answers, in one place.

v1 speaks Blazar's two shapes (the application's and the framework's), v2 speaks RFC 9457. The
stable code of an application error is in the body of v2 and in a header of v1, whose body is
fixed by its clients.
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, jsonify, request
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException

from climate.core.errors import (
    BackendUnavailable,
    ClimateError,
    ContentTooLarge,
    InvalidInput,
    MethodNotAllowed,
    MissingParameter,
    NotFound,
    UnsupportedVersion,
)
from climate.db.engine.database import is_unavailable

LOG = logging.getLogger(__name__)
CODE_HEADER = "Climate-Error-Code"
_RETRY_AFTER = "1"
_REQUIRED = "Missing data for required field."
# What the framework refuses, in our words: its own names change with its releases.
_OURS = {error.status: error for error in (NotFound, MethodNotAllowed, ContentTooLarge)}


def register(app: Flask) -> None:
    """Have ``app`` answer every error in the shape of the API that was called."""
    app.register_error_handler(ClimateError, answer)
    app.register_error_handler(ValidationError, lambda error: answer(from_validation(error)))
    app.register_error_handler(HTTPException, _framework)
    app.register_error_handler(Exception, _unexpected)


def answer(error: ClimateError) -> Response:
    """Return the answer for a refusal."""
    if request.path.startswith("/v2"):
        return _problem(error)
    if isinstance(error, UnsupportedVersion):
        return _framework_body(error.status, error.message, error.code)
    response = jsonify(
        error_code=error.status, error_message=error.message, error_name=error.status
    )
    return _finished(response, error.status, error.code)


def from_validation(error: ValidationError) -> InvalidInput:
    """Return marshmallow's findings as one sentence, missing parameters first."""
    messages = error.normalized_messages()  # type: ignore[no-untyped-call]
    flat = list(_flatten(messages, ""))
    missing = [where for where, text in flat if text == _REQUIRED]
    if missing:
        return MissingParameter(f"Missing parameter {', '.join(missing)}")
    where, text = flat[0]
    return InvalidInput(text if where == "" else f"Malformed parameter {where}: {text}")


def _flatten(messages: Mapping[Any, Any], prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in messages.items():
        name = "" if key == "_schema" else str(key)
        where = f"{prefix}.{name}" if prefix and name else prefix or name
        if isinstance(value, Mapping):
            found += _flatten(value, where)
        else:
            found += [(where, str(text)) for text in value]
    return found


def _framework(error: HTTPException) -> Response:
    if error.response is not None:  # a redirect and the like
        return Response(error.get_body(), error.code)
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    text = error.description or HTTPStatus(status).phrase
    if request.path.startswith("/v2"):
        response = _problem(_as_ours(status, text), status)
    else:
        response = _framework_body(status, text, None)
    valid_methods = getattr(error, "valid_methods", None)
    if valid_methods:
        response.headers["Allow"] = ", ".join(sorted(valid_methods))
    return response


def _as_ours(status: int, text: str) -> ClimateError:
    other = InvalidInput if status < HTTPStatus.INTERNAL_SERVER_ERROR else ClimateError
    return _OURS.get(status, other)(text)


def _unexpected(error: Exception) -> Response:
    """Answer for a database that is away (503), or for a defect of ours (500, no details)."""
    if is_unavailable(error):
        LOG.error("the database does not answer: %s", error)
        return answer(
            BackendUnavailable(
                "The database does not answer: if this was to change something, look whether it"
                " did before you try again"
            )
        )
    LOG.error("unhandled error", exc_info=error)
    return answer(ClimateError("Internal Server Error"))


def _problem(error: ClimateError, status: int | None = None) -> Response:
    """Return an RFC 9457 problem; the error's details are its extension members."""
    status = status or error.status
    standard = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": error.code,
    }
    response = jsonify({**standard, **error.details, **standard})
    response.mimetype = "application/problem+json"
    return _finished(response, status, error.code)


def _framework_body(status: int, text: str, code: str | None) -> Response:
    return _finished(jsonify(error=status, error_message=text), status, code)


def _finished(response: Response, status: int, code: str | None) -> Response:
    response.status_code = status
    if code is not None:
        response.headers[CODE_HEADER] = code
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = _RETRY_AFTER
    return response
