"""OpenAPI 3.1 from the routes and their schemas, and what a page about it needs."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow import RAISE, Schema

from climate.api.call import Answer
from climate.api.v2.leases import schemas
from climate.core.errors import ClimateError

_ABOUT = (
    "Leases of resources in a window of time. Bodies are JSON, times are ISO 8601 with a zone, to"
    " the second; refusals are problems (RFC 9457) with a stable code."
)
_HEADERS = {
    "Idempotency-Key": "A name for this request: sent again, it makes no second lease but is"
    " answered as the first time.",
    "If-Match": "The ETag of the lease as you saw it: if it has changed since, nothing is done.",
    "Last-Event-ID": "The id of the last event that was seen, which after gives as well.",
    "If-None-Match": "The ETag that you have: if the lease has not changed, 304.",
}
_GIVEN = {
    "ETag": "What If-Match takes.",
    "Location": "Where it is.",
}
_TEXT = {"type": "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method on a path. Without a ``rule`` it is open to anyone, and its view gets the Api."""

    method: str
    path: str
    view: Callable[..., Answer]
    summary: str
    rule: str | None = None
    query: type[Schema] | None = None
    body: type[Schema] | None = None
    #: Headers that mean something in the request, and in the answer.
    headers: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    #: What is answered, by status: a schema, or a media type, or nothing.
    answers: Mapping[int, type[Schema] | str | None]
    refusals: tuple[type[ClimateError], ...] = ()


def document(
    routes: Iterable[Route], params: Mapping[str, type[Schema]], root: str
) -> dict[str, Any]:
    """Return the document; ``params`` are the schemas of what each resource type can be asked.

    ``root`` is the path that the service is mounted at.
    """
    spec = APISpec(
        title="climate",
        version="2",
        openapi_version="3.1.0",
        plugins=[MarshmallowPlugin()],
        info={"description": _ABOUT},
        servers=[{"url": root or "/"}],
    )
    spec.components.security_scheme(
        "token", {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
    )
    for route in routes:
        path = re.sub(r"<(\w+)>", r"{\1}", route.path)
        spec.path(path, operations={route.method.lower(): _operation(route)})
    choices = [_choice(spec, resource_type, schema) for resource_type, schema in params.items()]
    made = spec.to_dict()
    asked = made["components"]["schemas"]["ReservationRequest"]["properties"]
    asked["resource_type"]["examples"] = list(params)
    asked["params"] = {"anyOf": choices} if choices else {"type": "object"}
    return made


def _choice(spec: APISpec, resource_type: str, schema: type[Schema]) -> dict[str, str]:
    """Add what a resource type can be asked, and return a reference to it."""
    name = "params." + re.sub(r"[^\w.-]", "-", resource_type, flags=re.ASCII)
    optional = schemas.may_be_left_out(schema())
    spec.components.schema(name, schema=schema(unknown=RAISE, partial=optional))
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(route: Route) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"in": "path", "name": name, "required": True, "schema": _TEXT}
        for name in re.findall(r"<(\w+)>", route.path)
    ]
    parameters += [
        {"in": "header", "name": name, "description": _HEADERS[name], "schema": _TEXT}
        for name in route.headers
    ]
    if route.query is not None:
        parameters.append({"in": "query", "schema": route.query})
    operation = {
        "operationId": re.sub(r"\W+", "_", f"{route.method} {route.path}".lower()),
        "summary": route.summary,
        "parameters": parameters,
        "responses": {**_answers(route), **_refusals(route.refusals)},
        "security": [] if route.rule is None else [{"token": []}],
    }
    if route.rule is not None:
        operation["description"] = f"Policy: climate:{route.rule}"
    if route.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(route.body)}
    return operation


def _answers(route: Route) -> dict[str, Any]:
    headers = {name: {"description": _GIVEN[name], "schema": _TEXT} for name in route.gives}
    return {
        str(status): {
            "description": HTTPStatus(status).phrase,
            **({"headers": headers} if headers else {}),
            **({} if answer is None else {"content": _content(answer)}),
        }
        for status, answer in route.answers.items()
    }


def _content(answer: type[Schema] | str) -> dict[str, Any]:
    return {answer: {}} if isinstance(answer, str) else {"application/json": {"schema": answer}}


def _refusals(refusals: tuple[type[ClimateError], ...]) -> dict[str, Any]:
    """Return problems by status, each with the codes that it may have."""
    codes: dict[int, list[str]] = {}
    for refusal in refusals:
        for error in (refusal, *refusal.__subclasses__()):
            if error.status == refusal.status and error.__module__ == ClimateError.__module__:
                codes.setdefault(error.status, []).append(error.code)
    problem = {"application/problem+json": {"schema": schemas.Problem}}
    return {
        str(status): {"description": f"Codes: {', '.join(found)}", "content": problem}
        for status, found in sorted(codes.items())
    }
