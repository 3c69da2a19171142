"""Types of properties: which values a property accepts, and how queries compare them.

The operator declares types in the configuration. A property without a type is text: its values
compare as numbers if both are numbers, else as text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from climate.core.errors import InvalidInput
from climate.core.matching.query import (
    ITEM_SEPARATOR,
    And,
    Compare,
    Contains,
    Everything,
    In,
    Misfit,
    Not,
    Operand,
    Or,
    Query,
    as_number,
    check_values,
    version_key,
)
from climate.core.matching.quoting import cut

#: The property with the projects that may book a resource. Without it, all projects may.
ALLOWED_PROJECTS = "allowed_projects"
_DECLARATION = re.compile(r"\s*(?P<name>[^=\s][^=]*?)\s*=\s*(?P<kind>\w+)(?:\s+(?P<unit>\S+))?\s*")
_LONGEST_NAME = 64
_LONGEST_ITEM = 64


class Kind(StrEnum):
    """The kinds of values that a property can have."""

    NUMBER = "number"
    VERSION = "version"
    BOOLEAN = "boolean"
    TEXT = "text"
    SET = "set"


# Of each kind: what a value is, for errors.
_MEANINGS = {
    Kind.NUMBER: "a number such as 1.5",
    Kind.VERSION: "a version such as 1.10-rc2",
    Kind.BOOLEAN: "true or false",
    Kind.TEXT: "a text",
    Kind.SET: f"a list of items of up to {_LONGEST_ITEM} characters, without commas",
}
# The comparisons that kinds without an order have.
_EQUALITY = ("==", "!=")
_UNORDERED = {Kind.BOOLEAN, Kind.SET}


@dataclass(frozen=True, slots=True)
class PropertyType:
    """The type of a property; ``unit`` is the unit of a number, such as ``GiB``."""

    kind: Kind
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value} in {self.unit}" if self.unit else self.kind.value


#: The declared types by the name of the property.
Types = Mapping[str, PropertyType]


def declared(declarations: Iterable[str]) -> dict[str, PropertyType]:
    """Parse declarations such as ``ram_gib = number GiB``. Raises ValueError."""
    types: dict[str, PropertyType] = {}
    for text in declarations:
        found = _DECLARATION.fullmatch(text)
        kinds = [kind.value for kind in Kind]
        if found is None or found["kind"] not in kinds or len(found["name"]) > _LONGEST_NAME:
            raise ValueError(
                f"'{text}' declares no property: write NAME = TYPE, where TYPE is one of"
                f" {', '.join(kinds)}, and after number a unit may follow"
            )
        name, kind, unit = found["name"], Kind(found["kind"]), found["unit"] or ""
        if unit and kind is not Kind.NUMBER:
            raise ValueError(f"'{text}': only numbers have a unit")
        if name in types:
            raise ValueError(f"the property {name} is declared twice")
        if name == ALLOWED_PROJECTS:
            raise ValueError(f"the property {name} has its type from project_restrictions")
        types[name] = PropertyType(kind, unit)
    return types


def permitted(types: Types, project_id: str) -> Query:
    """Return the condition that a project may book a resource.

    Only if the operator restricts resources to projects, ``types`` has the property.
    """
    if ALLOWED_PROJECTS not in types:
        return Everything()
    is_free = Compare("==", ALLOWED_PROJECTS, Operand("null"))
    return Or((is_free, Contains(ALLOWED_PROJECTS, project_id, is_item=True)))


def canonical(types: Types, properties: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return properties with their values in the form that climate stores.

    Values of undeclared properties and None stay as they are. Raises InvalidInput, which names the
    property, its type and the value, if a value does not fit.
    """
    stored: dict[str, str | None] = {}
    for name, value in properties.items():
        if name == ALLOWED_PROJECTS and name not in types:
            raise InvalidInput(
                f"{name}: this service does not restrict resources to projects; the option is"
                " [resources] project_restrictions"
            )
        if value is None or name not in types:
            stored[name] = value
            continue
        stored[name] = text = _CANONICAL[types[name].kind](value)
        if text is None:
            raise InvalidInput(
                f"{name}: the property is declared as {types[name]}, and {_quoted(value)} is not"
                f" {_MEANINGS[types[name].kind]}"
            )
    return stored


def reported(types: Types, properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties that the cloud reports, with booleans in the form that climate stores.

    Other values, and those that do not fit, stay as they are.
    """
    booleans = {name for name, type_ in types.items() if type_.kind is Kind.BOOLEAN}
    return {
        name: (_boolean(value) or value) if name in booleans else value
        for name, value in properties.items()
    }


def typed(query: Query, types: Types) -> Query:
    """Return the query of a request, which compares values by the types of their properties.

    Raises InvalidQuery if a value in the query does not fit.
    """
    result = bind(query, types)
    check_values(result)
    return result


def bind(query: Query, types: Types) -> Query:
    """Return the query, which compares values by the types of their properties.

    A condition whose value does not fit becomes a Misfit, because a stored expression can be older
    than the declaration of a type. Conditions that name a way to compare themselves, such as those
    of extra specs, stay.
    """
    match query:
        case And() | Or():
            return replace(query, parts=tuple(bind(part, types) for part in query.parts))
        case Not():
            return Not(bind(query.part, types))
        case Compare(kind="either") if query.name in types and not query.value.is_null:
            return _compare(query, types[query.name])
        case In() if query.name in types and types[query.name].kind is not Kind.NUMBER:
            conditions = (Compare("==", query.name, value, at=query.at) for value in query.values)
            return Or(tuple(bind(condition, types) for condition in conditions))
        case Contains() if query.name in types and types[query.name].kind is Kind.SET:
            return _contains(query)
        case _:
            return query


def _compare(query: Compare, type_: PropertyType) -> Query:
    kind = type_.kind
    if kind in _UNORDERED and query.op not in _EQUALITY:
        return Misfit(
            query.name,
            f"{query.name} is a {type_} {query.at}: it has no order, so {query.op} cannot compare"
            f" it; use == or !={' or contains' if kind is Kind.SET else ''}",
            query.at,
        )
    text = _CANONICAL[kind](query.value.text)
    if text is None:
        return Misfit(
            query.name,
            f"{query.name} is a {type_} {query.at}, and {_quoted(query.value.text)} is not"
            f" {_MEANINGS[kind]}",
            query.at,
        )
    if kind is Kind.NUMBER:
        return replace(query, kind="number")
    if kind is Kind.VERSION:
        return replace(query, kind="version")
    return replace(query, value=Operand(text), kind="text")


def _contains(query: Contains) -> Query:
    if ITEM_SEPARATOR not in query.text:
        return replace(query, is_item=True)
    reason = (
        f"{query.name} is a set {query.at}, and {_quoted(query.text)} is not one item: join several"
        " conditions by and"
    )
    return Misfit(query.name, reason, query.at)


def _number(text: str) -> str | None:
    return None if as_number(text) is None else text


def _version(text: str) -> str | None:
    return None if version_key(text) is None else text


def _boolean(text: str) -> str | None:
    return {"true": "True", "false": "False"}.get(text.lower())


def _text(text: str) -> str:
    return text


def _set(text: str) -> str | None:
    """Return the items sorted and without repetitions. The empty text is the empty set."""
    items = sorted({item.strip() for item in text.split(ITEM_SEPARATOR)} - {""})
    return None if any(len(item) > _LONGEST_ITEM for item in items) else ITEM_SEPARATOR.join(items)


_CANONICAL: Mapping[Kind, Callable[[str], str | None]] = {
    Kind.NUMBER: _number,
    Kind.VERSION: _version,
    Kind.BOOLEAN: _boolean,
    Kind.TEXT: _text,
    Kind.SET: _set,
}


def _quoted(value: str) -> str:
    return f'"{cut(value)}"'
