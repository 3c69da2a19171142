"""JSON Schemas of the parameters of resource types, from which clients generate forms."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from marshmallow import RAISE, Schema

from climate.api.v2.http.fields import nullable_params

_NAME = "params"
_PREFIX = "#/components/schemas/"
# Python's anchors, and those of JSON Schema (ECMA 262).
_ANCHORS = {r"\A": "^", r"\Z": "$"}


@lru_cache
def of_params(schema: type[Schema]) -> dict[str, Any]:
    """Return a JSON Schema, without references, of the parameters of a resource type.

    ``schema`` is the marshmallow schema of the plug-in. In the result, required parameters come
    before optional parameters. In both groups, the parameters that ``schema`` inherits come last.
    If a schema contains itself, a plain object replaces the inner schema. The result is cached, so
    callers must not change it.
    """
    spec = APISpec("", "2", openapi_version="3.1.0", plugins=[MarshmallowPlugin()])
    strict = schema(unknown=RAISE, partial=nullable_params(schema()))
    spec.components.schema(_NAME, schema=strict)
    components = spec.to_dict()["components"]["schemas"]
    inlined: dict[str, Any] = _inlined(components[_NAME], components, ())
    properties, required = inlined.get("properties", {}), set(inlined.get("required", ()))
    own = set(schema().fields)
    for base in schema.__bases__:
        own -= set(getattr(base, "_declared_fields", ()))
    names = sorted(properties, key=lambda name: (name not in required, name not in own))
    return {**inlined, "properties": {name: properties[name] for name in names}}


def _inlined(node: Any, components: Mapping[str, Any], within: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON Schema ``node`` with each ``$ref`` replaced by the component that it names.

    ``within`` contains the names of the components around ``node``. A ``$ref`` to one of these
    components is recursive, and its replacement would never end. So a plain object replaces it.
    """
    if isinstance(node, list):
        return [_inlined(item, components, within) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        name = str(node["$ref"]).removeprefix(_PREFIX)
        if name in within:
            return {"type": "object"}
        return _inlined(components[name], components, (*within, name))
    return {
        key: _ecma(value)
        if key == "pattern" and isinstance(value, str)
        else _inlined(value, components, within)
        for key, value in node.items()
    }


def _ecma(pattern: str) -> str:
    for python, ecma in _ANCHORS.items():
        pattern = pattern.replace(python, ecma)
    return pattern
