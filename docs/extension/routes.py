"""The reference of routes, from the OpenAPI document and the route tables."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from datetime import date
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from climate.api.app import OPEN, ROUTES
from climate.api.route import Route
from climate.api.v2 import routes as v2
from climate.api.v2.documentation.examples import examples
from climate.api.v2.http import openapi
from climate.clock import SystemClock
from climate.config import registry
from climate.plugins import loader
from climate.plugins.base import ResourcePlugin
from docs.extension.markdown import code, section, table

# Examples have dates relative to this one, so that the pages do not change from day to day.
_TODAY = date(2030, 1, 15)
_REFERENCE = "#/components/schemas/"
Json = dict[str, Any]


def v1_markdown() -> str:
    """Return tables of the routes of v1, and of those that belong to no version."""
    listed = [*OPEN, *ROUTES]
    v1 = [route for route in listed if re.match(r"/v1(/|$)", route.path)]
    others = [route for route in listed if not re.match(r"/v[12](/|$)", route.path)]
    return "\n".join(
        [
            section(3, "v1", _route_table(v1)),
            section(3, "Routes without a version", _route_table(others)),
        ]
    )


def _route_table(routes: Iterable[Route]) -> str:
    head = ["Method and path", "Policy", "Summary"]
    return table(head, ([code(f"{r.method} {r.template}"), _rule(r), r.summary] for r in routes))


def _rule(route: Route) -> str:
    return "none" if route.rule is None else code(route.rule)


@cache
def document() -> Json:
    """Return the OpenAPI document of a service with all plug-ins."""
    schemas = {name: plugin.schema for name, plugin in sorted(_plugins().items())}
    return openapi.document(v2.ROUTES, schemas, examples(_TODAY), "")


def v2_markdown() -> str:
    """Return a section for each group of routes."""
    return "\n".join(
        section(2, tag["name"], tag["description"], *_operations(tag["name"]))
        for tag in document()["tags"]
    )


def objects_markdown() -> str:
    """Return a section for each object in bodies of v2."""
    return "\n".join(_objects())


def _plugins() -> Mapping[str, ResourcePlugin]:
    conf = registry.new()
    conf([], project="climate", default_config_files=[])
    names = sorted({entry.name for entry in entry_points(group=loader.PLUGINS)})
    return loader.load_plugins(conf, names, lambda _: nullcontext(), SystemClock())


def _operations(tag: str) -> Iterator[str]:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            if tag in operation["tags"]:
                yield _operation(f"{method.upper()} {path}", operation)


def _operation(title: str, operation: Json) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return section(
        3,
        code(title),
        f"{operation['summary']}. {operation.get('description', 'Needs no token.')}".replace(
            "Policy: ", "Policy: `"
        )
        + ("`." if "description" in operation else ""),
        _parameters(operation["parameters"]),
        f"Body: {_type(body['schema'])}." if body else "",
        _examples(body.get("examples", {}) if body else {}),
        _answers(operation["responses"]),
    )


def _parameters(parameters: list[Json]) -> str:
    rows = [
        [code(item["name"]), item["in"], _full_type(item["schema"]), item.get("description", "")]
        for item in parameters
    ]
    return table(["Parameter", "In", "Type", "Meaning"], rows) if rows else ""


def _examples(named: Json) -> str:
    """Return the first example of a body."""
    for example in named.values():
        body = json.dumps(example["value"], indent=2)
        return f"{example['summary']}:\n\n```json\n{body}\n```"
    return ""


def _answers(responses: Mapping[str, Json]) -> str:
    rows = []
    for status, response in responses.items():
        content = response.get("content", {})
        codes = response["description"].removeprefix("Codes: ")
        if codes != response["description"]:
            unique = dict.fromkeys(codes.split(", "))
            rows.append([status, "Problem: " + ", ".join(map(code, unique))])
            continue
        headers = ", ".join(map(code, response.get("headers", {})))
        bodies = [_body(media, item) for media, item in content.items()] or ["no body"]
        rows.append([status, ", ".join(bodies) + (f"; headers {headers}" if headers else "")])
    return table(["Status", "Answer"], rows)


def _body(media: str, content: Json) -> str:
    if "schema" in content:
        return _type(content["schema"])
    return "any media type" if media == "*/*" else code(media)


def _objects() -> Iterator[str]:
    for name, schema in sorted(document()["components"]["schemas"].items()):
        yield _object(name, schema)


def params_markdown(resource_type: str) -> str:
    """Return a table of the parameters of a resource type."""
    name = "params." + resource_type.replace(":", "-")
    return _keys(document()["components"]["schemas"][name])


def _object(name: str, schema: Json) -> str:
    return section(2, name, schema.get("description", ""), _keys(schema))


def _keys(schema: Json) -> str:
    required = schema.get("required", ())
    rows = [
        [
            code(key) + (" (required)" if key in required else ""),
            _full_type(value),
            ". ".join(filter(None, [value.get("title"), value.get("description")])),
        ]
        for key, value in schema.get("properties", {}).items()
    ]
    return table(["Key", "Type", "Meaning"], rows)


def _full_type(schema: Json) -> str:
    default = schema.get("default")
    return _type(schema) + ("" if default is None else f"; default {code(json.dumps(default))}")


def _type(schema: Json) -> str:
    """Return a JSON Schema in words, with links to the objects that it names."""
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(_type(item) for item in schema[word])
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return f"[{name}](api-objects.md#{_slug(name)})"
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    types = schema.get("type", "any value")
    listed = types if isinstance(types, list) else [types]
    return " or ".join(_simple(type_, schema) for type_ in listed)


def _simple(type_: str, schema: Json) -> str:
    if type_ == "array":
        return f"list of {_type(schema.get('items', {}))}{_bounds(schema, 'Items', ' items')}"
    if type_ == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object with values of: {_type(schema['additionalProperties'])}"
    if type_ == "string":
        word = "time" if schema.get("format") == "date-time" else "text"
        return word + _bounds(schema, "Length", " characters")
    if type_ in {"integer", "number"}:
        return type_ + _range(schema)
    return type_


def _bounds(schema: Json, noun: str, unit: str) -> str:
    low, high = schema.get(f"min{noun}"), schema.get(f"max{noun}")
    if high is None:
        return "" if low is None else f" ({low} or more{unit})"
    return f" (at most {high:,}{unit})" if low is None else f" ({low:,} to {high:,}{unit})"


def _range(schema: Json) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return ""
    if high is None:
        return f", {low} or more"
    return f", at most {high:,}" if low is None else f", {low:,} to {high:,}"


def _slug(name: str) -> str:
    """Return the anchor of the heading ``name``."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")
