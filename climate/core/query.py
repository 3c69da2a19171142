"""Property expressions: which resources a reservation accepts.

An expression is ``[op, "$name", value]``, or others combined by ``and``, ``or``, ``not``, ``in``.
Whatever is malformed is refused with its place, never half obeyed, and an accepted expression
means the same here as in SQL (``climate.db.property_filter``), on every database.
"""

import difflib
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from climate.core.errors import InvalidQuery

# An expression comes from outside and becomes part of one SQL statement: SQLite's parser gives up
# at about 25 nested levels, and planning takes a millisecond for each condition or value of "in".
MAX_DEPTH = 16
MAX_CONDITIONS = 200

_ECHO = 200
_EXAMPLE = '["==", "$vcpus", "4"]'
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")

Op = Literal["==", "!=", ">=", "<=", ">", "<"]
_Path = tuple[int, ...]

# Also applied to SQL columns, so that both ways to evaluate an expression share one table.
COMPARE: Mapping[Op, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_OPS: Mapping[str, Op] = {"=": "==", **{op: op for op in COMPARE}}
_WORDS = ("and", "or", "not", "in")


@dataclass(frozen=True, slots=True)
class Operand:
    """What a property is compared with."""

    text: str

    @property
    def number(self) -> float | None:
        """The number it is, if it is one."""
        return as_number(self.text)

    @property
    def is_null(self) -> bool:
        """Whether it stands for the absence of the property."""
        return self.text == "null"


@dataclass(frozen=True, slots=True)
class Everything:
    """Matches every resource."""


@dataclass(frozen=True, slots=True)
class Compare:
    """One comparison; ``at`` says where in the expression the name stood."""

    op: Op
    name: str
    value: Operand
    at: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class In:
    """The same as ``==`` with any of ``values``."""

    name: str
    values: tuple[Operand, ...]
    at: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class And:
    """Matches what all of ``parts`` match."""

    parts: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Matches what any of ``parts`` matches."""

    parts: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Matches what ``part`` does not."""

    part: "Query"


Query = Everything | Compare | In | And | Or | Not


class _Malformed(Exception):
    pass


def parse(source: object) -> Query:
    """Read an expression, as JSON text or decoded; None, ``""`` and ``[]`` match everything.

    Raises InvalidQuery, which quotes the input and says where it is wrong.
    """
    if source is None or source == "":
        return Everything()
    try:
        query = _query(_decode(source), ())
        _check_size(query)
    except _Malformed as error:
        echo = _cut(source) if isinstance(source, str) else _show(source)
        raise InvalidQuery(f"Malformed requirements {echo}: {error}") from None
    return query


def matches(query: Query, properties: Mapping[str, str]) -> bool:
    """Return whether a resource with these properties is accepted."""
    match query:
        case Everything():
            return True
        case Compare():
            return _holds(query.op, properties.get(query.name), query.value)
        case In():
            found = properties.get(query.name)
            return any(_holds("==", found, value) for value in query.values)
        case And():
            return all(matches(part, properties) for part in query.parts)
        case Or():
            return any(matches(part, properties) for part in query.parts)
        case Not():
            return not matches(query.part, properties)


def names(query: Query) -> frozenset[str]:
    """Return the names of the properties that the expression asks about."""
    return frozenset(leaf.name for leaf in _leaves(query) if not isinstance(leaf, Everything))


def check_names(query: Query, known: Collection[str]) -> None:
    """Raise InvalidQuery if the expression asks about a property that is not ``known``."""
    for leaf in _leaves(query):
        if not isinstance(leaf, Everything) and leaf.name not in known:
            hint = _suggestion(leaf.name, known)
            raise InvalidQuery(f"Unknown property {_cut(leaf.name)} {leaf.at}{hint}")


def both(a: Query, b: Query) -> Query:
    """Return the expression that matches what ``a`` and ``b`` both match."""
    if isinstance(a, Everything):
        return b
    return a if isinstance(b, Everything) else And((a, b))


def as_number(text: str) -> float | None:
    """Return the number that ``text`` is, None if it is none or not a finite double.

    Stricter than ``float``: no spaces, no underscores, no foreign digits, no ``.5`` and no ``5.``.
    """
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _holds(op: Op, found: str | None, wanted: Operand) -> bool:
    if wanted.is_null:
        return (found is None) == (op == "==")
    if found is None:
        return False
    here, there = as_number(found), wanted.number
    if here is None or there is None:
        return bool(COMPARE[op](found, wanted.text))
    return bool(COMPARE[op](here, there))


def _leaves(query: Query) -> Iterator[Everything | Compare | In]:
    if isinstance(query, Everything | Compare | In):
        yield query
        return
    for part in (query.part,) if isinstance(query, Not) else query.parts:
        yield from _leaves(part)


def _suggestion(name: str, known: Collection[str]) -> str:
    folded = {one.casefold(): one for one in sorted(known)}
    close = difflib.get_close_matches(name.casefold(), folded)
    return f"; did you mean {' or '.join(folded[one] for one in close)}?" if close else ""


def _decode(source: object) -> object:
    if not isinstance(source, str):
        return source
    try:
        return json.loads(source)
    except RecursionError:
        raise _Malformed(f"nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        # What follows a semicolon is advice for Python programmers.
        raise _Malformed(f"not JSON: {str(error).partition(';')[0]}") from None


def _query(value: object, path: _Path) -> Query:
    if value in ("", []):
        return Everything()
    if not isinstance(value, list):
        raise _Malformed(f"expected a list such as {_EXAMPLE} {_at(path)}, not {_show(value)}")
    if len(path) >= MAX_DEPTH:
        raise _Malformed(f"nested more than {MAX_DEPTH} levels deep {_at(path)}")
    op = value[0]
    if isinstance(op, str) and op in _OPS:
        return _comparison(_OPS[op], value, path)
    if op in _WORDS:
        return _membership(value, path) if op == "in" else _combination(op, value, path)
    usable = ", ".join([*_OPS, *_WORDS])
    raise _Malformed(f"unknown operator {_show(op)} {_at((*path, 0))}; use one of {usable}")


def _combination(op: str, value: list[object], path: _Path) -> Query:
    count, need = len(value) - 1, "exactly" if op == "not" else "at least"
    if count < 1 or (op == "not" and count > 1):
        raise _Malformed(f'"{op}" needs {need} one expression {_at(path)}, got {count}')
    parts = tuple(_query(part, (*path, at)) for at, part in enumerate(value[1:], start=1))
    if op == "not":
        return Not(parts[0])
    return And(parts) if op == "and" else Or(parts)


def _comparison(op: Op, value: list[object], path: _Path) -> Compare:
    if len(value) != 3:  # noqa: PLR2004 - operator, name, value
        raise _Malformed(f"expected three items as in {_EXAMPLE} {_at(path)}, got {len(value)}")
    operand = _operand(value[2], (*path, 2))
    if operand.is_null and op not in ("==", "!="):
        raise _Malformed(f"null has no order {_at((*path, 2))}; compare it with == or !=")
    return Compare(op, _name(value[1], (*path, 1)), operand, _at((*path, 1)))


def _membership(value: list[object], path: _Path) -> In:
    items, base, start = value[2:], path, 2
    if len(items) == 1 and isinstance(items[0], list):
        items, base, start = items[0], (*path, 2), 0
    if not items:
        raise _Malformed(f'"in" needs a name and at least one value {_at(path)}')
    operands = tuple(_operand(item, (*base, at)) for at, item in enumerate(items, start))
    return In(_name(value[1], (*path, 1)), operands, _at((*path, 1)))


def _name(value: object, path: _Path) -> str:
    if isinstance(value, str) and value.startswith("$") and value != "$":
        return value[1:]
    raise _Malformed(f'expected a property such as "$vcpus" {_at(path)}, not {_show(value)}')


def _operand(value: object, path: _Path) -> Operand:
    if isinstance(value, str | bool) and value != "":
        return Operand(str(value))  # clouds write flags as "True" and "False", too
    if isinstance(value, int | float) and as_number(repr(value)) is not None:
        return Operand(repr(value))
    wanted = 'a text ("null" if the property shall be absent), a finite number, true or false'
    raise _Malformed(f"expected {wanted} {_at(path)}, not {_show(value)}")


def _check_size(query: Query) -> None:
    size = sum(len(leaf.values) if isinstance(leaf, In) else 1 for leaf in _leaves(query))
    if size > MAX_CONDITIONS:
        raise _Malformed(f"{size} conditions {_at(())}; at most {MAX_CONDITIONS} are allowed")


def _at(path: _Path) -> str:
    return f"at {''.join(f'[{index}]' for index in path)}" if path else "at the top level"


def _show(value: object) -> str:
    # It may be huge and deep: no more is encoded than can be shown (no piece is empty).
    pieces = json.JSONEncoder(ensure_ascii=False, default=repr).iterencode(value)
    return _cut("".join(itertools.islice(pieces, _ECHO + 1)))


def _cut(text: str) -> str:
    return text if len(text) <= _ECHO else f"{text[:_ECHO]}..."
