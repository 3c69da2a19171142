"""Parser of property expressions, by which users select resources.

An expression is ``[op, "$name", value]``, such as ``[">=", "$vcpus", 16]``, or ``["in", "$name",
value, ...]``, or ``["contains", "$name", value]``. ``and``, ``or`` and ``not`` combine expressions.
If an expression is malformed, the error names the position of the mistake, such as ``[2][1]``.
"""

import json
import re
from collections.abc import Mapping

from climate.core.errors import InvalidQuery
from climate.core.matching.query import (
    COMPARE,
    And,
    Compare,
    Contains,
    Everything,
    In,
    Not,
    Op,
    Operand,
    Or,
    Query,
    as_number,
    size,
)
from climate.core.matching.quoting import check_storable, quoted, show

# An expression becomes part of one SQL statement. SQLite's parser fails at about 25 nested levels,
# and planning takes about a millisecond per condition or value of "in".
MAX_DEPTH = 16
MAX_CONDITIONS = 200

_EXAMPLE = '["==", "$vcpus", "4"]'
_OPS: Mapping[str, Op] = {"=": "==", **{op: op for op in COMPARE}}
_WORDS = ("and", "or", "not", "in", "contains")
# A comparison as in most languages, such as ``vcpus >= 16``.
_INFIX = re.compile(
    r"""\s*\$?(?P<name>[\w.:-]+)\s*(?P<op>[=!<>]=|[=<>])\s*(?P<quote>['"]?)"""
    r"""(?P<value>[\w.:-]+)(?P=quote)\s*"""
)
_Path = tuple[int, ...]


class Malformed(Exception):
    """Raised if a part of an expression or extra spec is invalid; the message names the part."""


def parse(source: object) -> Query:
    """Return the query that an expression means. ``source`` is JSON text or decoded JSON.

    None, ``""`` and ``[]`` match every resource. If the expression is malformed, raises
    InvalidQuery, whose message quotes it and names the position of the mistake.
    """
    if source is None or source == "":
        return Everything()
    try:
        query = _query(_decode(source), ())
        _check_size(query)
    except Malformed as error:
        raise InvalidQuery(f"Malformed requirements {quoted(source)}: {error}") from None
    return query


def _decode(source: object) -> object:
    if not isinstance(source, str):
        return source
    try:
        value = json.loads(source)
        check_storable(value)
    except RecursionError:
        raise Malformed(f"nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        # Python's message has advice for programmers after a semicolon.
        reason = str(error).partition(";")[0]
        raise Malformed(f"not JSON: {reason}; write it as {_as_list(source)}") from None
    return value


def _as_list(text: str) -> str:
    """Return the expression that ``text`` probably means, or an example of an expression.

    For example, for ``vcpus > 3`` the result is ``[">", "$vcpus", "3"]``.
    """
    if infix := _INFIX.fullmatch(text):
        return json.dumps([_OPS[infix["op"]], f"${infix['name']}", infix["value"]])
    return _EXAMPLE


def _query(value: object, path: _Path) -> Query:
    if value in ("", []):
        return Everything()
    if not isinstance(value, list):
        raise Malformed(f"expected a list such as {_EXAMPLE} {_at(path)}, not {show(value)}")
    if len(path) >= MAX_DEPTH:
        raise Malformed(f"nested more than {MAX_DEPTH} levels deep {_at(path)}")
    op = value[0]
    if isinstance(op, str) and op in _OPS:
        return _comparison(_OPS[op], value, path)
    if op == "contains":
        return _containment(value, path)
    if op in _WORDS:
        return _membership(value, path) if op == "in" else _combination(op, value, path)
    usable = ", ".join([*_OPS, *_WORDS])
    raise Malformed(f"unknown operator {show(op)} {_at((*path, 0))}; use one of {usable}")


def _combination(op: str, value: list[object], path: _Path) -> Query:
    count, need = len(value) - 1, "exactly" if op == "not" else "at least"
    if count < 1 or (op == "not" and count > 1):
        raise Malformed(f'"{op}" needs {need} one expression {_at(path)}, got {count}')
    parts = tuple(_query(part, (*path, at)) for at, part in enumerate(value[1:], start=1))
    if op == "not":
        return Not(parts[0])
    return And(parts) if op == "and" else Or(parts)


def _comparison(op: Op, value: list[object], path: _Path) -> Compare:
    if len(value) != 3:  # noqa: PLR2004 - operator, name, value
        raise Malformed(f"expected three items as in {_EXAMPLE} {_at(path)}, got {len(value)}")
    operand = _operand(value[2], (*path, 2))
    if operand.is_null and op not in ("==", "!="):
        raise Malformed(f"null has no order {_at((*path, 2))}; compare it with == or !=")
    return Compare(op, _name(value[1], (*path, 1)), operand, at=_at((*path, 1)))


def _containment(value: list[object], path: _Path) -> Contains:
    if len(value) != 3:  # noqa: PLR2004 - operator, name, value
        example = '["contains", "$cpu_flags", "avx2"]'
        raise Malformed(f"expected three items as in {example} {_at(path)}, got {len(value)}")
    operand = _operand(value[2], (*path, 2))
    return Contains(_name(value[1], (*path, 1)), operand.text, _at((*path, 1)))


def _membership(value: list[object], path: _Path) -> In:
    items, base, start = value[2:], path, 2
    if len(items) == 1 and isinstance(items[0], list):
        items, base, start = items[0], (*path, 2), 0
    if not items:
        raise Malformed(f'"in" needs a name and at least one value {_at(path)}')
    operands = tuple(_operand(item, (*base, at)) for at, item in enumerate(items, start))
    return In(_name(value[1], (*path, 1)), operands, _at((*path, 1)))


def _name(value: object, path: _Path) -> str:
    if isinstance(value, str) and value.startswith("$") and value != "$":
        return value[1:]
    raise Malformed(f'expected a property such as "$vcpus" {_at(path)}, not {show(value)}')


def _operand(value: object, path: _Path) -> Operand:
    if isinstance(value, str | bool) and value != "":
        return Operand(str(value))  # clouds also write flags as "True" and "False"
    if isinstance(value, int | float) and as_number(repr(value)) is not None:
        return Operand(repr(value))
    wanted = 'a text ("null" if the property shall be absent), a finite number, true or false'
    raise Malformed(f"expected {wanted} {_at(path)}, not {show(value)}")


def _check_size(query: Query) -> None:
    if (count := size(query)) > MAX_CONDITIONS:
        raise Malformed(f"{count} conditions {_at(())}; at most {MAX_CONDITIONS} are allowed")


def _at(path: _Path) -> str:
    return f"at {''.join(f'[{index}]' for index in path)}" if path else "at the top level"
