"""setup.cfg requires the packages that climate imports, and no others."""

import sys
from importlib import metadata
from pathlib import Path

import pytest
from flask import Flask
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from climate.api import auth
from climate.config import registry as config_registry
from climate.config.registry import Misconfigured
from tests.support.keystone import Keystone
from tests.support.process import write_config
from tests.unit.test_structure import imports_of, modules

# Imported packages that another requirement always brings, and whose versions it decides.
BROUGHT = {"kombu": "oslo.messaging", "werkzeug": "Flask"}


def required() -> set[str]:
    """Return the names of the packages that climate requires without any extra."""
    given = map(Requirement, metadata.requires("climate") or [])
    return {canonicalize_name(item.name) for item in given if item.marker is None}


def test_climate_requires_what_it_imports_and_nothing_else() -> None:
    imported = {name.partition(".")[0] for module in modules() for name in imports_of(module)}
    foreign = imported - {"climate", "_typeshed"} - sys.stdlib_module_names
    packages = metadata.packages_distributions()
    assert set(BROUGHT) <= foreign
    wanted = {
        canonicalize_name(name)
        for module in foreign - set(BROUGHT)
        for name in packages.get(module, [module])
    }
    assert {canonicalize_name(name) for name in BROUGHT.values()} <= required()
    assert required() ^ wanted == set()


def test_memcached_servers_without_python_memcached_prevent_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "memcache", None)
    options = {**Keystone().options, "memcached_servers": "127.0.0.1:11211"}
    path = write_config(
        tmp_path / "climate.conf",
        **{f"keystone_authtoken__{name}": value for name, value in options.items()},
    )
    conf = config_registry.new()
    config_registry.load(conf, "test", [f"--config-file={path}"])
    with pytest.raises(Misconfigured, match="memcached_servers needs python-memcached"):
        auth.guard(Flask("test"), conf, ())
