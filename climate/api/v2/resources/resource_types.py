"""The routes of ``/v2/resource-types``: resource types, their parameters and their properties."""

from typing import Any

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.v2.http import json_schema, validation
from climate.api.v2.http.schemas import described
from climate.core.errors import NotFound
from climate.core.matching.property_type import Kind
from climate.manager.resources import property_values
from climate.plugins.base import ResourcePlugin

# Parameters that say how many units a reservation has.
_AMOUNTS = ("min", "max", "amount")


class ResourceType(Schema):
    """A resource type that can be reserved, such as ``physical:host``."""

    name = fields.String()
    title = fields.String(metadata=described("Name for people, in the plural."))
    description = fields.String()
    countable = fields.Boolean(
        metadata=described("Whether GET /v2/availability knows how many units are free.")
    )
    amounts = fields.List(
        fields.String(), metadata=described("Parameters that say how many units to reserve.")
    )
    booked_type = fields.String(
        allow_none=True,
        metadata=described(
            "Type of the resources that reservations book; null: only the members of a stack do."
        ),
    )
    unit = fields.Dict(
        keys=fields.String(), metadata=described("Parameters of a reservation of one unit.")
    )
    fixed = fields.List(
        fields.String(), metadata=described("Parameters that cannot change after the request.")
    )
    schema = fields.Dict(
        keys=fields.String(), metadata=described("JSON Schema of the parameters, params.")
    )


class PropertyValues(Schema):
    """A property of resources, such as ``vcpus``, and some of its values."""

    name = fields.String()
    values = fields.List(fields.String(), metadata=described("Up to 20 values, sorted."))
    numeric = fields.Boolean(metadata=described("Whether all these values are numbers."))
    private = fields.Boolean(metadata=described("Whether only operators see the property."))
    type = fields.Enum(
        Kind,
        by_value=True,
        allow_none=True,
        metadata=described("The declared type; null: none, so values compare as text or numbers."),
    )
    unit = fields.String(
        allow_none=True,
        metadata=described('The unit of a number, such as "GiB"; null: none.'),
    )


class Properties(Schema):
    """The properties that the resources of a type have."""

    properties = fields.List(fields.Nested(PropertyValues))


_TYPE, _PROPERTIES = ResourceType(), Properties()


def index(call: Call) -> Answer:
    """List the enabled resource types, with the JSON Schemas of their parameters."""
    validation.no_query()
    plugins = call.runtime.plugins
    return [_TYPE.dump(_described(name, plugins[name])) for name in sorted(plugins)], 200


def properties(call: Call, name: str) -> Answer:
    """List the properties that filter expressions for a resource type can name, with some values.

    ``name`` is the name of the resource type. Raises NotFound if there is no such type.
    """
    validation.no_query()
    plugin = call.runtime.plugins.get(name)
    if plugin is None:
        raise NotFound(f"There is no resource type {name}")
    private = call.may("resources:get_private")
    found = property_values.find(call.runtime, _booked_type(plugin), private=private)
    return _PROPERTIES.dump({"properties": found}), 200


def _described(name: str, plugin: ResourcePlugin) -> dict[str, Any]:
    schema = json_schema.of_params(plugin.schema)
    return {
        "name": name,
        "title": plugin.title or name,
        "description": plugin.description,
        "countable": bool(plugin.unit),
        "amounts": [amount for amount in _AMOUNTS if amount in schema["properties"]],
        "booked_type": _booked_type(plugin) or None,
        "unit": plugin.unit,
        "fixed": sorted(plugin.fixed),
        "schema": schema,
    }


def _booked_type(plugin: ResourcePlugin) -> str:
    """Return the type of the resources that reservations of the plug-in's type occupy.

    For example, reservations of instances occupy hosts. For stacks, return an empty text: a stack
    occupies nothing itself, because it only contains other reservations.
    """
    return plugin.resource_type if plugin.booked_type is None else plugin.booked_type
