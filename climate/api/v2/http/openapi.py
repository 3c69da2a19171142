"""The OpenAPI 3.1 document of v2, generated from the route table and its schemas."""

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow import RAISE, Schema

from climate.api.route import Body, Route
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
    "If-Match": "The ETag of the version that you read. If the object has changed since, the"
    " request fails with 412.",
    "Last-Event-ID": "The id of the last event that you received; same as the parameter after.",
    "If-None-Match": "The ETag that you have. If the object has not changed, the response is 304.",
}
_RESPONSE_HEADERS = {
    "ETag": "The version of the object, for If-Match.",
    "Location": "The URL of the new resource.",
}
_TEXT = {"type": "string"}
# Examples of a route: each body by its summary. AllExamples: the examples of each route, by its
# method and path.
Examples = Mapping[str, Mapping[str, Any]]
AllExamples = Mapping[str, Examples]
# Groups of operations, in the order of the page: for each group its description, and the first
# segments of the paths in the group.
_GROUPS = {
    "Leases": (
        "Windows of time with reserved resources, and offers that hold capacity for minutes.",
        {"leases", "offers", "past-leases", "wait-list"},
    ),
    "Capacity": (
        "Free and booked resources over time, and limits.",
        {"availability", "calendar", "utilisation", "limits"},
    ),
    "Resources": ("Resources that can be reserved.", {"resources", "resource-types"}),
    "Notifications": ("The log of changes, and webhooks.", {"notifications", "subscriptions"}),
    "Feeds": ("Calendar feeds (iCalendar) at secret addresses.", {"feeds"}),
    "Provisioning": (
        "Hosts that provisioners prepare and switch off.",
        {"preparations", "shutdowns", "readiness"},
    ),
    "Operations": (
        "Managers and overdue work, for operators.",
        {"managers", "overdue-events"},
    ),
    "Service": (
        "The caller, the version, the error codes, and this document.",
        {"", "openapi.json", "docs", "errors", "me"},
    ),
}


def document(
    routes: Sequence[Route], params: Mapping[str, type[Schema]], examples: AllExamples, root: str
) -> dict[str, Any]:
    """Return the OpenAPI document as a dict to render as JSON.

    ``params`` maps each resource type to the schema of its parameters. ``examples`` maps each
    route, such as ``POST /v2/leases``, to a dict that maps the summary of each example to its body.
    ``root`` is the path at which the application is mounted.
    """
    spec = APISpec(
        title="climate",
        version="2",
        openapi_version="3.1.0",
        plugins=[MarshmallowPlugin()],
        info={"description": _DESCRIPTION},
        servers=[{"url": root or "/"}],
    )
    used = {_group(route.path) for route in routes}
    for name, (text, _) in _GROUPS.items():
        if name in used:
            spec.tag({"name": name, "description": text})
    spec.components.security_scheme(
        "token", {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
    )
    for route in routes:
        operation = _operation(route, examples.get(f"{route.method} {route.path}", {}))
        spec.path(route.template, operations={route.method.lower(): operation})
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


def _group(path: str) -> str:
    """Return the name of the group, such as ``Leases``, in which the document lists the path.

    The first segment of the path after ``/v2``, such as ``leases``, determines the group. If the
    segment belongs to no group, return the segment itself.
    """
    noun = path.removeprefix("/v2").strip("/").partition("/")[0]
    return next((name for name, (_, nouns) in _GROUPS.items() if noun in nouns), noun)


def _operation(route: Route, examples: Examples) -> dict[str, Any]:
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
        "tags": [_group(route.path)],
        "parameters": parameters,
        "responses": {**_responses(route), **_error_responses(route.errors)},
        "security": [] if route.rule is None else [{"token": []}],
    }
    if route.rule is not None:
        operation["description"] = f"Policy: climate:{route.rule}"
    if route.body is not None:
        content = _content(route.body)
        if examples:
            content["application/json"]["examples"] = _named(examples)
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _named(examples: Examples) -> dict[str, Any]:
    """Return the examples in the form of OpenAPI: each has a short key, a summary and a value."""
    listed = enumerate(examples.items(), 1)
    return {f"example-{n}": {"summary": text, "value": body} for n, (text, body) in listed}


def _responses(route: Route) -> dict[str, Any]:
    """Return the successful answers. If one of them is 201 (created), only it has the headers."""
    headers = {
        name: {"description": _RESPONSE_HEADERS[name], "schema": _TEXT}
        for name in route.response_headers
    }
    created = route.answers.keys() & {HTTPStatus.CREATED}
    described = created or route.answers.keys()
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            **({"headers": headers} if headers and status in described else {}),
            **({} if body is None else {"content": _content(body)}),
        }
        for status, body in route.answers.items()
    }


def _content(body: Body) -> dict[str, Any]:
    if isinstance(body, str):
        return {body: {}}
    if isinstance(body, list):
        return {"application/json": {"schema": {"type": "array", "items": body[0]}}}
    # No oneOf: an answer can match several of the schemas, as their keys are optional.
    schema = {"anyOf": list(body)} if isinstance(body, tuple) else body
    return {"application/json": {"schema": schema}}


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
