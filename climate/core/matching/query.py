"""Queries: which resources a reservation accepts, as a tree of conditions on properties.

Users write queries as expressions (``climate.core.matching.expression``). ``matches`` evaluates a
query in Python, and ``climate.db.resources.properties.conditions`` evaluates it in SQL. Both give
the same result, on every database.
"""

import difflib
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from climate.core.errors import InvalidQuery, UnknownProperty
from climate.core.matching.quoting import cut

_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_VERSION = re.compile(r"[vV]?([0-9][0-9A-Za-z._+~-]{0,62})")
_VERSION_PART = re.compile(r"[0-9]+|[A-Za-z]+")

#: What separates the items of a set in the text of a property.
ITEM_SEPARATOR = ","
Op = Literal["==", "!=", ">=", "<=", ">", "<"]
# How values compare: "either" as numbers if both are numbers, else as text.
Kind = Literal["either", "text", "number", "version"]

# Also applied to SQL columns, so that both ways to evaluate an expression share one table.
COMPARE: Mapping[Op, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Operand:
    """The value with which a condition compares a property. ``null`` can mean "no value"."""

    text: str

    @property
    def number(self) -> float | None:
        """The value as a number; None if the value is not a number."""
        return as_number(self.text)

    @property
    def is_null(self) -> bool:
        """Whether the value is ``null``, which stands for an absent property."""
        return self.text == "null"


@dataclass(frozen=True, slots=True)
class Everything:
    """A query that matches every resource."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition that compares a property with a value, such as ``vcpus >= 16``.

    ``at`` is the position in the user's expression, for error messages. ``kind`` is how to compare:

    - "text": as text, even if both values are numbers.
    - "number": as numbers. ``value`` must be a number. A property that is no number does not match.
    - "version": as versions (see ``version_key``). ``value`` must be a version. A property that is
      no version does not match.
    - "either": as numbers if both are numbers, otherwise as text. The value ``null`` means that the
      property is absent.
    """

    op: Op
    name: str
    value: Operand
    kind: Kind = "either"
    at: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class In:
    """A condition that matches if the property equals (``==``) one of ``values``."""

    name: str
    values: tuple[Operand, ...]
    at: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Contains:
    """A condition that matches if the property exists and contains ``text``, which is not empty.

    If ``is_item`` is set, the property is a set: items that commas separate. Then ``text`` must be
    one of the items.
    """

    name: str
    text: str
    at: str = field(default="", compare=False, repr=False)
    is_item: bool = False


@dataclass(frozen=True, slots=True)
class Misfit:
    """A condition that never matches, because its value does not fit the type of the property.

    ``reason`` is the message for the user who wrote the condition.
    """

    name: str
    reason: str
    at: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class And:
    """A query that matches if all ``parts`` match."""

    parts: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """A query that matches if at least one of ``parts`` matches."""

    parts: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """A query that matches if ``part`` does not match."""

    part: "Query"


Leaf = Everything | Compare | In | Contains | Misfit
Query = Leaf | And | Or | Not


def matches(query: Query, properties: Mapping[str, str]) -> bool:
    """Return whether a resource with these properties matches the query."""
    match query:
        case Everything() | Misfit():
            return isinstance(query, Everything)
        case Compare():
            return _holds(query, properties.get(query.name))
        case In():
            value = properties.get(query.name)
            return any(_holds(Compare("==", query.name, v), value) for v in query.values)
        case Contains():
            value = properties.get(query.name, "")
            return query.text in (value.split(ITEM_SEPARATOR) if query.is_item else value)
        case And() | Or():
            verdicts = (matches(part, properties) for part in query.parts)
            return all(verdicts) if isinstance(query, And) else any(verdicts)
        case Not():
            return not matches(query.part, properties)


def names(query: Query) -> frozenset[str]:
    """Return the names of the properties in the query."""
    return frozenset(leaf.name for leaf in _leaves(query) if not isinstance(leaf, Everything))


def size(query: Query) -> int:
    """Return the number of conditions in the query; ``in`` counts once for each of its values."""
    return sum(len(leaf.values) if isinstance(leaf, In) else 1 for leaf in _leaves(query))


def written(query: Query) -> int:
    """Return the number of conditions in the query that the user wrote.

    The result does not include conditions that plug-ins have added to the user's query.
    """
    return size(And(tuple(leaf for leaf in _leaves(query) if getattr(leaf, "at", ""))))


def check_names(query: Query, known: Collection[str]) -> None:
    """Raise UnknownProperty if the query names a property that is not in ``known``."""
    for leaf in _leaves(query):
        if not isinstance(leaf, Everything) and leaf.name not in known:
            hint = _suggestion(leaf.name, known)
            error = UnknownProperty(f"Unknown property {cut(leaf.name)} {leaf.at}{hint}")
            error.name = leaf.name
            raise error


def has_misfits(query: Query) -> bool:
    """Return whether a value in the query does not fit the type of its property."""
    return any(isinstance(leaf, Misfit) for leaf in _leaves(query))


def check_values(query: Query) -> None:
    """Raise InvalidQuery if a value in the query does not fit the type of its property."""
    for leaf in _leaves(query):
        if isinstance(leaf, Misfit):
            raise InvalidQuery(leaf.reason)


def both(a: Query, b: Query) -> Query:
    """Return the query that matches if both queries match."""
    if isinstance(a, Everything):
        return b
    return a if isinstance(b, Everything) else And((a, b))


def as_number(text: str) -> float | None:
    """Return ``text`` as a number; None if it is not a finite number.

    The function accepts less than ``float``: no spaces, no underscores, no digits outside ASCII, no
    ``.5`` and no ``5.``.
    """
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def version_key(text: str) -> str | None:
    """Return a text by which versions sort in their order; None if ``text`` is no version.

    A version begins with a digit, or with ``v`` and a digit, and has up to 63 characters: letters,
    digits and ``. - _ + ~``. Its parts are numbers and words (1.10-rc2: 1, 10, rc, 2). Numbers
    compare as numbers, words as text in lower case. A word sorts before the end of the version, and
    a number after it: 1.9 < 1.10-rc1 < 1.10 < 1.10.1. Zeros before a word or the end do not count:
    1.0 equals 1.
    """
    version = _VERSION.fullmatch(text)
    if version is None:
        return None
    key, zeros = "", ""
    for part in _VERSION_PART.findall(version[1]):
        if not part.isdecimal():
            key, zeros = f"{key}a{part.lower()} ", ""
            continue
        digits = part.lstrip("0")
        number = f"c{len(digits):02}{digits}"
        key, zeros = (f"{key}{zeros}{number}", "") if digits else (key, f"{zeros}{number}")
    return f"{key}b"


def _holds(query: Compare, value: str | None) -> bool:
    compare, operand = COMPARE[query.op], query.value
    if operand.is_null and query.kind == "either":
        return (value is None) == (query.op == "==")
    if value is None:
        return False
    if query.kind == "version":
        versions = version_key(value), version_key(operand.text)
        return None not in versions and bool(compare(*versions))
    left, right = as_number(value), operand.number
    if query.kind != "text" and left is not None and right is not None:
        return bool(compare(left, right))
    return query.kind != "number" and bool(compare(value, operand.text))


def _leaves(query: Query) -> Iterator[Leaf]:
    if isinstance(query, Leaf):
        yield query
        return
    for part in (query.part,) if isinstance(query, Not) else query.parts:
        yield from _leaves(part)


def _suggestion(name: str, known: Collection[str]) -> str:
    folded = {known_name.casefold(): known_name for known_name in sorted(known)}
    close = difflib.get_close_matches(name.casefold(), folded)
    return f"; did you mean {' or '.join(folded[match] for match in close)}?" if close else ""
