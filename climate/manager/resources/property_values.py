"""Use case: list the properties of a resource type with some of their values.

Clients suggest these values to users who write filters.
"""

from dataclasses import dataclass

from climate.core.matching.property_type import Kind, PropertyType
from climate.core.matching.query import as_number
from climate.db.resources import resources
from climate.db.resources.properties import values as property_values
from climate.manager.process.runtime import Runtime

# Limits of the answer.
_MOST_NAMES, _MOST_VALUES = 500, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyValues:
    """A property of resources, with its declared type and some of its values, sorted.

    ``type`` is None if the property is not declared; only numbers have a ``unit``. If all values
    are numbers, ``numeric`` is set and the values are sorted as numbers. Otherwise they are sorted
    as texts.
    """

    name: str
    values: list[str]
    numeric: bool
    private: bool
    type: Kind | None
    unit: str | None


def find(runtime: Runtime, resource_type: str, *, private: bool) -> list[PropertyValues]:
    """Return the properties of a resource type, each with some of its values, sorted by name.

    If ``private`` is false, the result omits private properties (hidden from ordinary users).
    """
    with runtime.database.snapshot() as session:
        privacy = resources.privacy(session, resource_type)
        private_names = {name for name, is_private in privacy.items() if is_private}
        hidden = set() if private else private_names
        found = property_values.find(session, resource_type, hidden, _MOST_NAMES, _MOST_VALUES)
    types = runtime.settings.property_types
    return [
        _described(name, values, types.get(name), private=name in private_names)
        for name, values in sorted(found.items())
    ]


def _described(
    name: str, values: list[str], type_: PropertyType | None, *, private: bool
) -> PropertyValues:
    numbers = [number for number in map(as_number, values) if number is not None]
    numeric = bool(values) and len(numbers) == len(values)
    if numeric:
        values = [text for _, text in sorted(zip(numbers, values, strict=True))]
    return PropertyValues(
        name=name,
        values=values,
        numeric=numeric,
        private=private,
        type=None if type_ is None else type_.kind,
        unit=None if type_ is None else type_.unit or None,
    )
