"""A configuration, and packages installed for one test."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config.cfg import ConfigOpts
from stevedore import ExtensionManager

from climate.config import registry as config

Install = Callable[..., None]


@pytest.fixture
def conf(tmp_path: Path) -> ConfigOpts:
    conf = config.new()
    config.load(conf, "test", [])
    conf.set_override("journal", str(tmp_path / "cloud"), group="simulated")
    return conf


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with one module and one entry point to it."""
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    monkeypatch.setattr("stevedore._cache._c._disable_caching", True)

    def run(package: str, source: str, entry: str, group: str = "climate.resource_plugins") -> None:
        info = tmp_path / package / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        (tmp_path / package / f"{package}.py").write_text(source)
        monkeypatch.syspath_prepend(tmp_path / package)
        monkeypatch.delitem(sys.modules, package, raising=False)

    return run
