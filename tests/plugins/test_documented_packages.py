"""The packages of plugins.md are complete, are found, and do what the text says."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oslo_config.cfg import ConfigOpts

from climate.plugins.loader import load_cloud, load_selection
from tests.conftest import MakeStory
from tests.plugins.conftest import Install

(DOCUMENT,) = (Path(__file__).parents[2] / "docs").glob("**/plugins.md")
Package = Callable[[str], None]


def blocks(language: str) -> list[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def module(name: str) -> str:
    (source,) = (block for block in blocks("python") if block.startswith(f'"""{name}.py: '))
    return source


def projects() -> dict[str, dict[str, Any]]:
    """Return the content of the complete pyproject.toml files, by the name of their module."""
    found = map(tomllib.loads, blocks("toml"))
    return {item["tool"]["setuptools"]["py-modules"][0]: item for item in found if "tool" in item}


@pytest.fixture
def package(install: Install) -> Package:
    """Return a function that installs the package of a module as its pyproject.toml says."""

    def run(name: str) -> None:
        project = projects()[name]
        assert project["build-system"]["build-backend"] == "setuptools.build_meta"
        assert {"name", "version"} <= project["project"].keys()
        ((group, entries),) = project["project"]["entry-points"].items()
        lines = "\n".join(f"{entry} = {target}" for entry, target in entries.items())
        install(name, module(name), lines, group)

    return run


def test_the_host_cloud_driver_is_found(package: Package, conf: ConfigOpts) -> None:
    package("rack")
    conf.set_override("cloud", "rack", group="physical:host")
    cloud = load_cloud("physical:host", conf)
    assert [host.external_id for host in cloud.hosts()] == ["left", "right"]


def test_the_resource_plugin_serves_requests(package: Package, make_story: MakeStory) -> None:
    package("bench")
    story = make_story(manager__plugins="physical.host.plugin,lab.bench.plugin")
    reservation = {"resource_type": "lab:bench", "params": {"places": 1}}
    asking = story.asking(reservations=[reservation])
    place = {"resource_type": "lab:bench", "name": "window"}
    assert story.ok("POST", "/v2/resources", place)["properties"]["light"] == "day"
    story.ok("POST", "/v2/leases", asking)
    refusal = story.problem(409, "POST", "/v2/leases", asking)
    assert refusal["detail"].startswith("Not enough places available")


def test_the_filters_and_weighers_are_found(install: Install, conf: ConfigOpts) -> None:
    (entries,) = (item for item in map(tomllib.loads, blocks("toml")) if "tool" not in item)
    for group, named in entries["project"]["entry-points"].items():
        lines = "\n".join(f"{entry} = {target}" for entry, target in named.items())
        install(f"racks_{group.rpartition('.')[2]}", module("racks"), lines, group)
    install("racks", module("racks"), "")
    conf.set_override("filters", ["not_in_rack_9"], group="manager")
    conf.set_override("weighers", ["coolest=2", "fewest_properties"], group="manager")
    selection = load_selection(conf)
    assert [weight for _, weight in selection.weighers] == [2.0, 1.0]
    assert [check.__name__ for check in selection.filters] == ["not_in_rack_9"]
