"""The OpenAPI 3.1 document of v2, generated from the route table and its schemas."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow import RAISE, Schema

from climate.api.route import Route
from climate.api.v2.http import schemas
from climate.api.v2.http.fields import nullable_params
from climate.core.errors import ClimateError

_DESCRIPTION = (
    "Lease resources for a time window. Bodies are JSON. Times are ISO 8601 with a time zone and a"
    " precision of one second. Errors are problem documents (RFC 9457) with a stable code."
)
_REQUEST_HEADERS = {
    "Idempotency-Key": "A unique key for this request. Repeating the request with the same key"
    " returns the first response and creates no second lease.",
    "If-Match": "The ETag of the lease version that you read. If the lease has changed since, the"
    " request fails with 412.",
    "Last-Event-ID": "The id of the last event that you received; same as the parameter after.",
    "If-None-Match": "The ETag that you have. If the lease has not changed, the response is 304.",
}
_RESPONSE_HEADERS = {
    "ETag": "The version of the lease, for If-Match.",
    "Location": "The URL of the new resource.",
}
_TEXT = {"type": "string"}


def document(
    routes: Iterable[Route], params: Mapping[str, type[Schema]], root: str
) -> dict[str, Any]:
    """Return the OpenAPI document as a dict to render as JSON.

    ``params`` maps resource types to schemas of their parameters. ``root`` is the path at which
    the application is mounted.
    """
    spec = APISpec(
        title="climate",
        version="2",
        openapi_version="3.1.0",
        plugins=[MarshmallowPlugin()],
        info={"description": _DESCRIPTION},
        servers=[{"url": root or "/"}],
    )
    spec.components.security_scheme(
        "token", {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
    )
    for route in routes:
        spec.path(route.template, operations={route.method.lower(): _operation(route)})
    references = [_add_params(spec, type_, schema) for type_, schema in params.items()]
    result = spec.to_dict()
    reservation = result["components"]["schemas"]["ReservationRequest"]["properties"]
    reservation["resource_type"]["examples"] = list(params)
    reservation["params"] = {"anyOf": references} if references else {"type": "object"}
    return result


def _add_params(spec: APISpec, resource_type: str, schema: type[Schema]) -> dict[str, str]:
    name = "params." + re.sub(r"[^\w.-]", "-", resource_type, flags=re.ASCII)
    optional = nullable_params(schema())
    spec.components.schema(name, schema=schema(unknown=RAISE, partial=optional))
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(route: Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"in": "path", "name": name, "required": True, "schema": _TEXT}
        for name in re.findall(r"<(\w+)>", route.path)
    ]
    parameters += [
        {"in": "header", "name": name, "description": _REQUEST_HEADERS[name], "schema": _TEXT}
        for name in route.request_headers
    ]
    if route.query is not None:
        parameters.append({"in": "query", "schema": route.query})
    operation = {
        "operationId": re.sub(r"\W+", "_", f"{route.method} {route.path}".lower()),
        "summary": route.summary,
        "parameters": parameters,
        "responses": {**_responses(route), **_error_responses(route.errors)},
        "security": [] if route.rule is None else [{"token": []}],
    }
    if route.rule is not None:
        operation["description"] = f"Policy: climate:{route.rule}"
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.body)}
    return operation


def _responses(route: Route) -> dict[str, Any]:
    headers = {
        name: {"description": _RESPONSE_HEADERS[name], "schema": _TEXT}
        for name in route.response_headers
    }
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            **({"headers": headers} if headers else {}),
            **({} if body is None else {"content": _content(body)}),
        }
        for status, body in route.answers.items()
    }


def _content(body: type[Schema] | str) -> dict[str, Any]:
    return {body: {}} if isinstance(body, str) else {"application/json": {"schema": body}}


def _error_responses(errors: Iterable[type[ClimateError]]) -> dict[str, Any]:
    codes: dict[int, list[str]] = {}
    for listed in errors:
        for error in (listed, *listed.__subclasses__()):
            if error.status == listed.status and error.__module__ == ClimateError.__module__:
                codes.setdefault(error.status, []).append(error.code)
    content = {"application/problem+json": {"schema": schemas.Problem}}
    return {
        str(status): {"description": f"Codes: {', '.join(names)}", "content": content}
        for status, names in sorted(codes.items())
    }
