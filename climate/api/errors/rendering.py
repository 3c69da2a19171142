"""Renders errors as HTTP responses.

v1 uses Blazar's two body formats: one for Blazar's own errors, another for errors of its web
framework, such as an unknown URL. v2 uses problem documents (RFC 9457).

In v2, the body has climate's error code, and ``type`` is the path of a page about the code. In v1,
only a header has the error code, because v1 clients expect exactly the fields of Blazar's body.
"""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, jsonify, request
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException

from climate.api.errors.catalogue import CODES
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
# Errors of paths that start with these are problem documents (RFC 9457).
_WITH_PROBLEMS = ("/v2", "/console")
_REQUIRED = "Missing data for required field."
# Errors that replace the framework's: its error names change between releases.
_BY_STATUS = {error.status: error for error in (NotFound, MethodNotAllowed, ContentTooLarge)}


def register(app: Flask) -> None:
    """Register handlers that render every error in the format of the called API version."""
    app.register_error_handler(ClimateError, answer)
    app.register_error_handler(ValidationError, lambda error: answer(from_validation(error)))
    app.register_error_handler(HTTPException, _framework)
    app.register_error_handler(Exception, _unexpected)


def answer(error: ClimateError) -> Response:
    """Return the response for an error of climate, in the format of the called API version."""
    if request.path.startswith(_WITH_PROBLEMS):
        return _problem(error)
    if isinstance(error, UnsupportedVersion):
        return _framework_body(error.status, error.message, error.code)
    response = jsonify(
        error_code=error.status, error_message=error.message, error_name=error.status
    )
    return _with_status(response, error.status, error.code)


def from_validation(error: ValidationError) -> InvalidInput:
    """Return the InvalidInput that reports marshmallow's validation errors in v1.

    Its message names all missing parameters. If no parameter is missing, it names the first
    malformed parameter.
    """
    messages = error.normalized_messages()  # type: ignore[no-untyped-call]
    flat = list(_flatten(messages, ""))
    missing = [where for where, text in flat if text == _REQUIRED]
    if missing:
        return MissingParameter(f"Missing parameter {', '.join(missing)}")
    where, text = flat[0]
    return InvalidInput(text if where == "" else f"Malformed parameter {where}: {text}")


def _flatten(messages: Mapping[Any, Any], prefix: str) -> list[tuple[str, str]]:
    flat: list[tuple[str, str]] = []
    for key, value in messages.items():
        name = "" if key == "_schema" else str(key)
        where = f"{prefix}.{name}" if prefix and name else prefix or name
        if isinstance(value, Mapping):
            flat += _flatten(value, where)
        else:
            flat += [(where, str(text)) for text in value]
    return flat


def _framework(error: HTTPException) -> Response:
    if error.response is not None:  # for example a redirect
        return Response(error.get_body(), error.code)
    status = error.code or HTTPStatus.INTERNAL_SERVER_ERROR
    text = error.description or HTTPStatus(status).phrase
    if request.path.startswith(_WITH_PROBLEMS):
        text = _no_such_path() if status == HTTPStatus.NOT_FOUND else text
        response = _problem(_climate_error(status, text), status)
    else:
        response = _framework_body(status, text, None)
    valid_methods = getattr(error, "valid_methods", None)
    if valid_methods:
        response.headers["Allow"] = ", ".join(sorted(valid_methods))
    return response


def _no_such_path() -> str:
    if request.path.endswith("/"):
        return f"There is no path {request.path}: paths have no slash at the end"
    return f"There is no path {request.path}: /v2/docs lists all paths"


def _climate_error(status: int, text: str) -> ClimateError:
    default = InvalidInput if status < HTTPStatus.INTERNAL_SERVER_ERROR else ClimateError
    return _BY_STATUS.get(status, default)(text)


def _unexpected(error: Exception) -> Response:
    """Return the response for an exception for which no other handler is registered.

    If the database is unavailable, the status is 503. Any other exception is a bug in climate: the
    status is 500, the traceback is logged, and the response shows no details.
    """
    if is_unavailable(error):
        LOG.error("the database does not answer: %s", error)
        return answer(
            BackendUnavailable(
                "The database does not answer: before you try again, check whether your change was"
                " made"
            )
        )
    LOG.error("a request failed because of a defect in climate, report it", exc_info=error)
    return answer(ClimateError("Internal Server Error"))


def _problem(error: ClimateError, status: int | None = None) -> Response:
    """Return the error as a problem document (RFC 9457).

    ``status`` is the HTTP status; None means the status of ``error``. The entries of
    ``error.details`` become additional members of the document.
    """
    status = status or error.status
    # A plug-in may raise an error of its own, which has no page.
    entry = CODES.get(error.code)
    standard = {
        "type": f"{request.root_path}/v2/errors/{error.code}" if entry else "about:blank",
        "title": entry.title if entry else HTTPStatus(status).phrase,
        "status": status,
        "detail": error.message,
        "code": error.code,
    }
    response = jsonify({**standard, **error.details, **standard})
    response.mimetype = "application/problem+json"
    if "retry_after" in error.details:
        response.headers["Retry-After"] = str(error.details["retry_after"])
    return _with_status(response, status, error.code)


def _framework_body(status: int, text: str, code: str | None) -> Response:
    return _with_status(jsonify(error=status, error_message=text), status, code)


def _with_status(response: Response, status: int, code: str | None) -> Response:
    response.status_code = status
    if code is not None:
        response.headers[CODE_HEADER] = code
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response.headers["Retry-After"] = _RETRY_AFTER
    return response
