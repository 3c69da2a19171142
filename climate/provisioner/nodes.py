"""The nodes that can be got ready: an operator's file says how each is reached.

The file is TOML: a table ``nodes`` with one table per node, of which all that is left out is as in
the table ``defaults``::

    [defaults]
    driver = "ipmi"
    username = "climate"
    password_file = "/etc/climate/bmc-password"

    [nodes.compute-17]
    address = "10.1.0.17"
    groups = ["rack-3", "pdu-7"]

A password is in a file or in an environment variable that is named, never here. It is read when it
is used: so it can be changed while we run, and is in none of our records.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from marshmallow import Schema, ValidationError, post_load, validate, validates_schema
from marshmallow import fields as shapes

#: What each kind of check needs; what they are is in ``checks``.
CHECKS: Mapping[str, Mapping[str, type]] = {
    "none": {},
    "tcp": {"host": str, "port": int},
    "http": {"url": str},
    "command": {"program": list},
    "service": {},
}
BOOT_DEVICES = ("disk", "pxe", "cdrom")


class InvalidNodeConfig(Exception):
    """The file is no such file; the text says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """How one node is reached.

    ``groups`` are what it shares a limit with (a rack, a PDU). ``check`` says when it can be used,
    ``options`` are the driver's own. With a ``boot_device``, it is set before it is switched on.
    """

    name: str
    driver: str
    address: str = ""
    port: int | None = None
    username: str = ""
    password_file: str = ""
    password_env: str = ""
    boot_device: str = ""
    groups: tuple[str, ...] = ()
    check: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def password(self) -> str:
        """Return the password. Raises BadNodes if it cannot be read."""
        if self.password_env:
            if self.password_env not in os.environ:
                raise InvalidNodeConfig(
                    f"{self.name}: {self.password_env} is not in the environment"
                )
            return os.environ[self.password_env]
        if not self.password_file:
            return ""
        try:
            return Path(self.password_file).read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidNodeConfig(f"{self.name}: its password cannot be read: {error}") from None


def _check(check: Mapping[str, Any]) -> None:
    """Raise ValidationError for what is no check."""
    kind = check.get("kind", "none")
    needs = CHECKS.get(kind) if isinstance(kind, str) else None
    if needs is None:
        raise ValidationError(f"kind must be one of {', '.join(CHECKS)}")
    if unknown := check.keys() - needs.keys() - {"kind"}:
        raise ValidationError(f"{kind} has no {', '.join(sorted(unknown))}")
    for name, shape in needs.items():
        if not isinstance(check.get(name), shape) or not check[name]:
            raise ValidationError(f"{kind} needs {name} ({shape.__name__})")


class _NodeSchema(Schema):
    driver = shapes.String(required=True, validate=validate.Length(1, 64))
    address = shapes.String(load_default="", validate=validate.Length(max=255))
    port = shapes.Integer(load_default=None, strict=True, validate=validate.Range(1, 65535))
    username = shapes.String(load_default="")
    password_file = shapes.String(load_default="")
    password_env = shapes.String(load_default="")
    boot_device = shapes.String(load_default="", validate=validate.OneOf(["", *BOOT_DEVICES]))
    groups = shapes.List(shapes.String(validate=validate.Length(1, 64)), load_default=list)
    options = shapes.Dict(keys=shapes.String(), load_default=dict)
    check = shapes.Dict(keys=shapes.String(), load_default=dict, validate=_check)

    @validates_schema
    def _one_password(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if data["password_file"] and data["password_env"]:
            raise ValidationError("Name password_file or password_env, not both")

    @post_load
    def _frozen(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        return {**data, "groups": tuple(data["groups"])}


def read(path: Path) -> Mapping[str, Node]:
    """Return the nodes of a file by name. Raises BadNodes, which tells all that is wrong."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidNodeConfig(f"{path}: {error}") from None
    if unknown := found.keys() - {"defaults", "nodes"}:
        raise InvalidNodeConfig(f"{path}: no table is called {', '.join(sorted(unknown))}")
    defaults, nodes = found.get("defaults", {}), found.get("nodes", {})
    if not isinstance(defaults, dict) or not isinstance(nodes, dict):
        raise InvalidNodeConfig(f"{path}: defaults and nodes must be tables")
    made, wrong = {}, []
    for name, given in nodes.items():
        try:
            made[name] = _node(name, defaults, given)
        except ValidationError as error:
            wrong.append(f"{name}: {error.normalized_messages()}")  # type: ignore[no-untyped-call]
    if wrong:
        raise InvalidNodeConfig(f"{path}: {'; '.join(wrong)}")
    return made


def _node(name: str, defaults: Mapping[str, Any], given: Any) -> Node:  # noqa: ANN401 - from a file
    if not isinstance(given, dict):
        raise ValidationError("Must be a table")
    options = {**defaults.get("options", {}), **given.get("options", {})}
    own_password = {one.name for one in fields(Node) if one.name.startswith("password_")}
    inherited = {
        key: value
        for key, value in defaults.items()
        if not (key in own_password and own_password & given.keys())
    }
    return Node(name=name, **_NodeSchema().load({**inherited, **given, "options": options}))
