"""The options that describe reservations: ``--host min=1,max=2`` and one for each other type."""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from climate.client.reservations import (
    FLAVOR,
    FLOATINGIP,
    HOST,
    INSTANCE,
    NETWORK,
    STACK,
    VOLUME,
    reservation,
)

# Parameters that are text even if they look like a number.
_TEXTS = {
    *(
        "before_end",
        "flavor_id",
        "match",
        "name",
        "network_description",
        "network_id",
        "network_name",
    ),
    *("on_end", "on_start", "ready_text", "stack_id", "stack_name", "volume_type"),
}
_EXPRESSIONS = frozenset({"hypervisor_properties", "network_properties", "resource_properties"})
# The parameter that the text without a key sets.
_FIRST = {NETWORK: "network_name", STACK: "template"}

_PAIR = re.compile(r"\s*([A-Za-z_][\w.:-]*)\s*=(.*)", re.DOTALL)
_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?")
_CONDITION = re.compile(r"\s*([\w.:-]+?)\s*(==|!=|<=|>=|=|<|>)\s*(.+?)\s*", re.DOTALL)
# Operators of other languages, and what is meant.
_SWAPPED = {"=>": ">=", "=<": "<=", "<>": "!="}
_BRACKETS = {"[": 1, "{": 1, "]": -1, "}": -1}

_OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "--host": (HOST, "N[-MAX][,KEY=VALUE...]", "whole hosts, such as 2, 1-4 or min=1,max=4"),
    "--instance": (
        INSTANCE,
        "N,vcpus=N,memory_mb=MIB,disk_gb=GIB[,KEY=VALUE...]",
        "room for instances of a size",
    ),
    "--flavor": (FLAVOR, "N,flavor_id=ID[,KEY=VALUE...]", "room for instances of a flavor"),
    "--volume": (
        VOLUME,
        "N,volume_type=TYPE,size=GIB[,KEY=VALUE...]",
        "volumes of a type that can be reserved",
    ),
    "--floatingip": (
        FLOATINGIP,
        "N,network_id=ID[,KEY=VALUE...]",
        "floating IPs of an external network",
    ),
    "--network": (NETWORK, "NAME[,KEY=VALUE...]", "a network on a segment of its own"),
    "--stack": (
        STACK,
        "TEMPLATE[,KEY=VALUE...]",
        "a Heat stack: a template file, and keys such as stack_name, or environment (a file)",
    ),
}
EPILOG = (
    "KEY is a parameter of the resource type; `climate resource type list` names the types."
    " where=CONDITION selects resources, such as where='vcpus>=64 and rack=r1'."
)


def add_reservation_options(parser: argparse.ArgumentParser) -> None:
    """Add the options. All of them append to ``reservations``, in the order of the arguments."""
    group = parser.add_argument_group("reservations", EPILOG)
    for option, (resource_type, form, text) in _OPTIONS.items():
        group.add_argument(
            option,
            dest="reservations",
            action="append",
            default=[],
            metavar=form,
            type=_parser_of(resource_type),
            help=f"{text} (repeatable)",
        )
    group.add_argument(
        "--reservation",
        dest="reservations",
        action="append",
        metavar="JSON",
        type=of_json,
        help='any type, as the API reads it: {"resource_type": ..., "params": {...}}, or @FILE'
        " (repeatable)",
    )


def of_text(resource_type: str, text: str) -> dict[str, Any]:
    """Return the request for a reservation that an option describes. Raises ArgumentTypeError."""
    is_host = resource_type == HOST
    params = parameters(text, _FIRST.get(resource_type), is_range=is_host)
    if is_host:
        params = {"min": 1, "max": params.get("min", 1), **params}
        if 0 in (params["min"], params["max"]):
            raise argparse.ArgumentTypeError(f"{text!r} reserves no host; write at least 1")
    elif resource_type == STACK:
        params = _with_files(params)
    return reservation(resource_type, **params)


def parameters(text: str, first: str | None = None, *, is_range: bool = False) -> dict[str, Any]:
    """Return parameters in the form ``KEY=VALUE,...``. Raises ArgumentTypeError.

    A value is JSON if it can be read so, else text. What has no key is the parameter ``first``, or
    else the number of units: the parameter ``amount``, or ``min`` and ``max`` of a range.
    """
    params: dict[str, Any] = {}
    for part in _parts(text):
        pair = _PAIR.fullmatch(part)
        if pair is None:
            named = {first: part.strip()} if first else _count(part, params, is_range=is_range)
        elif pair[1] == "where":
            named = {"resource_properties": condition(pair[2])}
        else:
            named = {pair[1]: _value(pair[1], pair[2].strip())}
        if twice := named.keys() & params.keys():
            raise argparse.ArgumentTypeError(f"{min(twice)} is given twice in {text!r}")
        params.update(named)
    return params


def condition(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return the property expression that a condition means. Raises ArgumentTypeError.

    ``vcpus>=64 and rack=r1`` means ``["and", [">=", "$vcpus", 64], ["==", "$rack", "r1"]]``. Text
    that begins with ``[`` is an expression already.
    """
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    parsed = []
    for part in re.split(r"\s+and\s+|\s*&&\s*", text.strip()):
        found = _CONDITION.fullmatch(part)
        if found is None or found[3].startswith(("=", "<", ">")):
            raise argparse.ArgumentTypeError(f"{part!r} is no condition; {_advice(part)}")
        operator = "==" if found[2] == "=" else found[2]
        parsed.append([operator, f"${found[1]}", _scalar(found[3])])
    return parsed[0] if len(parsed) == 1 else ["and", *parsed]


def _advice(part: str) -> str:
    """Return how to correct what is no condition."""
    for wrong, right in _SWAPPED.items():
        if wrong in part:
            return f"did you mean {right}?"
    return "write for example vcpus>=64 or rack=r1, and join conditions with 'and'"


def of_json(text: str) -> dict[str, Any]:
    """Return the reservation that is given as JSON, or in a file. Raises ArgumentTypeError."""
    if text.startswith("@"):
        text = _read(text[1:])
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"this is not JSON: {error}") from None
    if not isinstance(value, dict) or "resource_type" not in value:
        raise argparse.ArgumentTypeError(
            'this needs the form {"resource_type": "physical:host", "params": {"min": 1, "max": 1}}'
        )
    if "params" in value:
        return value
    params = {name: given for name, given in value.items() if name != "resource_type"}
    return {"resource_type": value["resource_type"], "params": params}


def _parser_of(resource_type: str) -> Callable[[str], dict[str, Any]]:
    return lambda text: of_text(resource_type, text)


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text between commas that are not in brackets or quotes."""
    part, depth, quote = "", 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign == '"':
            quote = sign
        else:
            depth += _BRACKETS.get(sign, 0)
        if sign == "," and depth == 0 and not quote:
            yield part
            part = ""
        else:
            part += sign
    yield part


def _count(part: str, before: Mapping[str, Any], *, is_range: bool) -> dict[str, Any]:
    """Return the number of units; ``before`` are the parameters to the left of it."""
    count = _RANGE.fullmatch(part.strip())
    if count is None and is_range and not before:
        raise argparse.ArgumentTypeError(
            f"{part!r} is no number of hosts; write 2, 1-4 or min=1,max=4"
        )
    if count is None or (count[2] and not is_range):
        raise argparse.ArgumentTypeError(f"{part!r} has no key; write KEY=VALUE")
    low = int(count[1])
    return {"min": low, "max": int(count[2] or low)} if is_range else {"amount": low}


def _value(name: str, text: str) -> Any:  # noqa: ANN401 - JSON
    if name in _TEXTS:
        return text
    if name in _EXPRESSIONS:
        return condition(text) if text else ""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _scalar(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | str) else text


def _with_files(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a stack with the contents of its files, as Heat's client reads them.

    The template, the environment, and all files that they name are read from this machine.
    """
    from heatclient.common import template_utils  # noqa: PLC0415 - takes long
    from heatclient.exc import CommandError  # noqa: PLC0415

    template, environment = params.get("template"), params.get("environment")
    rest = {
        name: value for name, value in params.items() if name not in {"template", "environment"}
    }
    files: dict[str, Any] = {}
    try:
        if isinstance(template, str):
            files, rest["template"] = template_utils.get_template_contents(_path(template))
        if isinstance(environment, str):
            more, rest["environment"] = template_utils.process_environment_and_files(
                _path(environment)
            )
            files.update(more)
    except (CommandError, OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if files:
        rest["files"] = {name: _decoded(content) for name, content in files.items()}
    return rest


def _decoded(content: bytes | str) -> str:
    return content.decode() if isinstance(content, bytes) else content


def _path(name: str) -> str:
    _read(name)
    return name


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"cannot read {name}: {error}") from None
