"""The nodes file: an operator's TOML file with the access data of each node.

A table ``nodes`` has one table per node. The table ``defaults`` contains the values for omitted
keys::

    [defaults]
    driver = "ipmi"
    username = "climate"
    password_file = "/etc/climate/bmc-password"

    [nodes.compute-17]
    address = "10.1.0.17"
    groups = ["rack-3", "pdu-7"]

Passwords are in separate files or environment variables. The provisioner reads the password of a
node anew for each power request, so operators can change passwords at any time. The provisioner
never stores passwords.
"""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from marshmallow import Schema, ValidationError, validate, validates_schema
from marshmallow import fields as shapes

#: The required keys of each kind of check; see ``checks``.
CHECKS: Mapping[str, Mapping[str, type]] = {
    "none": {},
    "tcp": {"host": str, "port": int},
    "http": {"url": str},
    "command": {"program": list},
    "service": {},
}
BOOT_DEVICES = ("disk", "pxe", "cdrom")


class InvalidNodeConfig(Exception):
    """Raised if the nodes file, or a password that it names, is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node (host) with the access data of its power controller, from the nodes file.

    ``groups`` are, for example, its rack and PDU, which limit how many nodes power on at once.
    ``check`` is how to test whether the node is usable. ``options`` are specific to the driver.
    When the provisioner powers the node on, the node boots from ``boot_device``; if this is empty,
    the node itself chooses the device.
    """

    name: str
    driver: str
    address: str = ""
    port: int | None = None
    username: str = ""
    password_file: str = ""
    password_env: str = ""
    boot_device: str = ""
    groups: Sequence[str] = ()
    check: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def password(self) -> str:
        """Return the password, or an empty text if none is configured.

        Raises InvalidNodeConfig if it cannot be read.
        """
        if self.password_env:
            if self.password_env not in os.environ:
                raise InvalidNodeConfig(
                    f"{self.name}: the environment variable {self.password_env} is not set"
                )
            return os.environ[self.password_env]
        if not self.password_file:
            return ""
        try:
            return Path(self.password_file).read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidNodeConfig(f"{self.name}: its password cannot be read: {error}") from None


def _check(check: Mapping[str, Any]) -> None:
    kind = check.get("kind", "none")
    needs = CHECKS.get(kind) if isinstance(kind, str) else None
    if needs is None:
        raise ValidationError(f"kind is {kind!r}, and must be one of {', '.join(CHECKS)}")
    if unknown := check.keys() - needs.keys() - {"kind"}:
        raise ValidationError(
            f"unknown key {', '.join(sorted(unknown))} for a check of kind {kind}"
        )
    for name, shape in needs.items():
        if not isinstance(check.get(name), shape) or not check[name]:
            raise ValidationError(f"a check of kind {kind} needs {name} ({shape.__name__})")


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
            raise ValidationError("Give password_file or password_env, not both")


def read(path: Path) -> Mapping[str, Node]:
    """Return the nodes in a nodes file by name.

    Raises InvalidNodeConfig, which lists all errors.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidNodeConfig(f"{path}: {error}") from None
    if unknown := tables.keys() - {"defaults", "nodes"}:
        raise InvalidNodeConfig(
            f"{path}: unknown table {', '.join(sorted(unknown))}: use defaults and nodes"
        )
    defaults, nodes = tables.get("defaults", {}), tables.get("nodes", {})
    if not isinstance(defaults, dict) or not isinstance(nodes, dict):
        raise InvalidNodeConfig(f"{path}: defaults and nodes must be tables")
    valid, errors = {}, []
    for name, table in nodes.items():
        try:
            valid[name] = _node(name, defaults, table)
        except ValidationError as error:
            errors.append(f"{name}: {error.normalized_messages()}")  # type: ignore[no-untyped-call]
    if errors:
        raise InvalidNodeConfig(f"{path}: {'; '.join(errors)}")
    return valid


def _node(name: str, defaults: Mapping[str, Any], table: Any) -> Node:  # noqa: ANN401 - from a file
    if not isinstance(table, dict):
        raise ValidationError("Must be a table")
    options = {**defaults.get("options", {}), **table.get("options", {})}
    password_keys = {each.name for each in fields(Node) if each.name.startswith("password_")}
    inherited = {
        key: value
        for key, value in defaults.items()
        if not (key in password_keys and password_keys & table.keys())
    }
    return Node(name=name, **_NodeSchema().load({**inherited, **table, "options": options}))
