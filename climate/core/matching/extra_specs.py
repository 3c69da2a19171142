"""Parser of the extra specs of a Nova flavor; returns conditions on the properties of hosts.

The keys and operators are those of Nova ("Extra Specs" in its documentation, and
nova/scheduler/filters/extra_specs_ops.py). Example: ``{"capabilities:vcpus": ">= 16"}``. Nova
ignores some mistakes, such as an operator without a value, and fails on others, such as a malformed
number; this parser rejects all of them. It ignores specs that do not concern the choice of hosts,
so callers can pass all extra specs of a flavor.
"""

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from climate.core.errors import InvalidQuery
from climate.core.matching import expression
from climate.core.matching.expression import MAX_CONDITIONS, Malformed
from climate.core.matching.query import (
    And,
    Compare,
    Contains,
    Everything,
    Not,
    Op,
    Operand,
    Or,
    Query,
    as_number,
    names,
    size,
)
from climate.core.matching.quoting import check_storable, quoted, show

# Prefixes of the properties with Placement's traits and the totals of its resource classes.
TRAIT = "trait:"
RESOURCES = "resources:"
# The value of a trait that a resource has: JSON's true in an expression.
PRESENT = "True"
# The longest name that a property can have.
LONGEST_NAME = 64
# The most devices that a host can have.
MOST_DEVICES = 999_999

_SCOPES = ("capabilities", "aggregate_instance_extra_specs", "trait", "resources")
# A request group of Placement has a number, or a name that begins with an underscore.
_GROUPED = re.compile(r"(trait|resources)([1-9][0-9]*|_[A-Za-z0-9_-]{1,63})?")
_CAPITALS = re.compile(r"[A-Z0-9_]+")
# Scopes that choose hosts by devices, which are not properties.
_DEVICES = ("pci_passthrough", "accel")
_ALIAS, _PROFILE = "pci_passthrough:alias", "accel:device_profile"
# Keys without a scope that are not capabilities.
_NO_CAPABILITY = ("group_policy", "hide_hypervisor_id")
# Names of properties in Nova's scheduler; a whole host has all its memory free.
_SYNONYMS = {
    "vcpus_total": "vcpus",
    "total_usable_ram_mb": "memory_mb",
    "free_ram_mb": "memory_mb",
    "total_usable_disk_gb": "local_gb",
}
_MOST = 2**31 - 1
# The longest text that is cached, in characters, and the number of cached texts.
_SHORT, _CACHED = 500, 256

_NUMERIC: Mapping[str, Op] = {"=": ">=", "==": "==", "!=": "!=", ">=": ">=", "<=": "<="}
_TEXTUAL: Mapping[str, Op] = {
    "s==": "==",
    "s!=": "!=",
    "s>=": ">=",
    "s>": ">",
    "s<=": "<=",
    "s<": "<",
}
_SETS = ("<in>", "<all-in>", "<or>")
_FORMS = {"<all-in>": "and one word or more", "<or>": "a <or> b, and so on"}
_OPERATORS = ", ".join((*_NUMERIC, *_TEXTUAL, *_SETS))
_LIKE_AN_OPERATOR = re.compile(r"s?(==|!=|<|>)|=")


@dataclass(frozen=True, slots=True)
class Selector:
    """Which hosts are allowed: a query on properties, and minimum amounts of resource classes.

    Example of ``amounts``: ``{"VCPU": 4}``. Each amount is at least 1. ``specs`` are the extra
    specs as texts; they are empty if the source is a property expression.
    """

    query: Query
    amounts: Mapping[str, int] = field(default_factory=dict)
    specs: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> Mapping[str, str]:
        """The extra specs that select hosts by devices, which are not properties."""
        return {key: value for key, value in self.specs.items() if _is_device(key)}


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that extra specs request.

    ``amounts`` is how many devices climate counts, by resource class. ``uncounted`` are the keys of
    the specs that request other devices, too.
    """

    amounts: Mapping[str, int]
    uncounted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CountedDevices:
    """The devices that climate counts, as the operator lists them.

    ``aliases`` maps PCI aliases of Nova to the resource class of their devices. ``profiles`` maps
    device profiles of Cyborg to the devices of one instance: how many, by resource class.
    """

    aliases: Mapping[str, str]
    profiles: Mapping[str, Mapping[str, int]]

    @property
    def classes(self) -> frozenset[str]:
        """The resource classes of all these devices."""
        return frozenset(self.aliases.values()).union(*self.profiles.values())

    def requested(self, specs: Mapping[str, str]) -> Devices:
        """Return the devices that the extra specs of one instance request.

        A value of ``pci_passthrough:alias`` is, for example, ``gpu:2,nic:1``; a value of
        ``accel:device_profile`` is the name of one profile. Malformed values are uncounted, not
        rejected: the operator may have listed the devices after a reservation was stored.
        """
        amounts: Counter[str] = Counter()
        uncounted: list[str] = []
        for key in sorted(filter(_is_device, specs)):
            counted, is_complete = self._count(key, specs[key])
            amounts.update(counted)
            uncounted += [] if is_complete else [key]
        return Devices({name: n for name, n in amounts.items() if n}, tuple(uncounted))

    def _count(self, key: str, value: str) -> tuple[Mapping[str, int], bool]:
        """Return the devices of one extra spec that are counted, and whether these are all."""
        if key == _ALIAS:
            return self._count_aliases(value)
        profile = self.profiles.get(value) if key == _PROFILE else None
        return profile or {}, profile is not None

    def _count_aliases(self, value: str) -> tuple[Mapping[str, int], bool]:
        amounts: Counter[str] = Counter()
        is_complete = True
        for item in value.split(","):
            name, _, count = (part.strip() for part in item.partition(":"))
            if name in self.aliases and _is_count(count):
                amounts[self.aliases[name]] += int(count)
            else:
                is_complete = False
        return amounts, is_complete


def read(source: object) -> Selector:
    """Parse requirements: extra specs (a JSON object) or a property expression (a list).

    ``source`` is JSON text or decoded JSON. If the input is malformed, raises InvalidQuery, whose
    message quotes it and names the position of the mistake.
    """
    # A request reads the same text in several steps, and many requests have equal texts.
    if isinstance(source, str) and len(source) <= _SHORT:
        return _read_text(source)
    return _read(source)


def _read(source: object) -> Selector:
    specs = _object(source)
    if specs is None:
        return Selector(expression.parse(source))
    try:
        texts = {key: _text(key, value) for key, value in specs.items()}
        return replace(_selector(texts), specs=texts)
    except Malformed as error:
        raise InvalidQuery(f"Malformed requirements {quoted(source)}: {error}") from None


_read_text = lru_cache(_CACHED)(_read)


def property_names(source: object) -> frozenset[str]:
    """Return the names of the properties in requirements, which have one of the forms of ``read``.

    Names of amounts have a prefix, as in ``resources:CUSTOM_GPU``. Raises InvalidQuery.
    """
    selector = read(source)
    return names(selector.query) | {f"{RESOURCES}{name}" for name in selector.amounts}


def _object(source: object) -> Mapping[str, object] | None:
    if isinstance(source, str) and source.lstrip().startswith("{"):
        try:
            source = json.loads(source)
            check_storable(source)
        except (ValueError, RecursionError):
            return None  # the parser of expressions reports the error
    return source if isinstance(source, dict) else None


def _text(key: str, value: object) -> str:
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int | float) and as_number(repr(value)) is not None:
        return repr(value)
    raise Malformed(f"expected a text {_at(key)}, not {show(value)}")


def _selector(specs: Mapping[str, str]) -> Selector:
    parts: list[Query] = []
    amounts: dict[str, int] = {}
    for key, value in specs.items():
        scope, _, name = key.partition(":")
        if (grouped := _GROUPED.fullmatch(scope)) and grouped[1] == "resources":
            if amount := _amount(key, name, value):
                amounts[name] = amounts.get(name, 0) + amount
        elif condition := _condition(key, value):
            parts.append(condition)
    query = _several(And, tuple(parts)) if parts else Everything()
    if (count := size(query) + len(amounts)) > MAX_CONDITIONS:
        raise Malformed(f"{count} conditions; at most {MAX_CONDITIONS} are allowed")
    return Selector(query, amounts)


def _condition(key: str, value: str) -> Query | None:
    """Return the condition on a host's properties that one extra spec means.

    Returns None if the spec does not concern the choice of hosts.
    """
    scope, scoped, name = key.partition(":")
    if not scoped:
        return None if key in _NO_CAPABILITY else _capability(key, key, value)
    if _GROUPED.fullmatch(scope):
        return _trait(key, name, value)
    if scope in _SCOPES:
        return _capability(key, name, value)
    if _is_device(key):
        return None  # admission rejects it, unless climate or filters of Nova check it
    if close := difflib.get_close_matches(scope.casefold(), _SCOPES, n=1, cutoff=0.75):
        raise Malformed(f"unknown scope {_at(key)}; did you mean {close[0]}?")
    return None


def _trait(key: str, name: str, value: str) -> Query:
    _check_name(key, TRAIT, name)
    if value not in ("required", "forbidden"):
        raise Malformed(f"expected required or forbidden {_at(key)}, not {show(value)}")
    has_trait = Compare("==", f"{TRAIT}{name}", Operand(PRESENT), "text", _at(key))
    return has_trait if value == "required" else Not(has_trait)


def _amount(key: str, name: str, value: str) -> int:
    _check_name(key, RESOURCES, name)
    if not _is_count(value):
        raise Malformed(f"expected a whole number {_at(key)}, not {show(value)}")
    if (amount := int(value)) > _MOST:
        raise Malformed(f"expected at most {_MOST} {_at(key)}, not {amount}")
    return amount


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST))


def _check_name(key: str, prefix: str, name: str) -> None:
    if not _CAPITALS.fullmatch(name) or len(prefix) + len(name) > LONGEST_NAME:
        longest = LONGEST_NAME - len(prefix)
        raise Malformed(f"expected up to {longest} of A-Z, 0-9 and _ after the colon {_at(key)}")


def _capability(key: str, name: str, value: str) -> Query:
    if not name:
        raise Malformed(f"the name of a property is missing {_at(key)}")
    name, at = _SYNONYMS.get(name, name), _at(key)
    op, *words = value.split() or [""]
    if op in _SETS:
        return _any_or_all(op, words, name, at)
    if op in _NUMERIC or op in _TEXTUAL:
        operand = Operand(_only(words, op, at))
        if op in _TEXTUAL:
            return Compare(_TEXTUAL[op], name, operand, "text", at)
        if operand.number is None:
            raise Malformed(f"{op} compares numbers, and {show(operand.text)} is none {at}")
        return Compare(_NUMERIC[op], name, operand, "number", at)
    if _LIKE_AN_OPERATOR.match(op):
        raise Malformed(f"unknown operator {show(op)} {at}; use {_OPERATORS}, and then a space")
    return Compare("==", name, Operand(value), "text", at)


def _any_or_all(op: str, words: list[str], name: str, at: str) -> Query:
    if op == "<in>":
        return Contains(name, _only(words, op, at), at)
    if op == "<all-in>" and words:
        return _several(And, tuple(Contains(name, word, at) for word in words))
    wanted, between = words[::2], words[1::2]
    if op == "<all-in>" or len(wanted) != len(between) + 1 or set(between) - {"<or>"}:
        raise Malformed(f"expected {op} {_FORMS[op]} {at}")
    return _several(Or, tuple(Compare("==", name, Operand(w), "text", at) for w in wanted))


def _several(combine: Callable[[tuple[Query, ...]], Query], parts: tuple[Query, ...]) -> Query:
    return combine(parts) if len(parts) > 1 else parts[0]


def _only(words: list[str], op: str, at: str) -> str:
    if len(words) != 1:
        raise Malformed(f"expected exactly one word after {op} {at}, got {len(words)}")
    return words[0]


def _is_device(key: str) -> bool:
    return key.partition(":")[0] in _DEVICES and ":" in key


def _at(key: str) -> str:
    return f"in {show(key)}"
