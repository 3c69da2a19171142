"""A plugin or driver that cannot be used stops the process, and says why."""

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from oslo_config.cfg import ConfigOpts

from climate.clock import ManualClock
from climate.plugins.host import HostPlugin
from climate.plugins.loader import (
    BrokenPlugin,
    load_host_cloud,
    load_instance_cloud,
    load_plugins,
)
from climate.plugins.simulated import SimulatedCloud
from tests.plugins.conftest import Install

HOST = "physical.host.plugin"
CLOCK = ManualClock(datetime(2030, 1, 15, tzinfo=UTC))
GOOD = """
from climate.plugins.host import HostPlugin

class OtherPlugin(HostPlugin):
    resource_type = "physical:other"
"""
PUNCTUAL = """
from climate.plugins.host import HostPlugin

class PunctualPlugin(HostPlugin):
    resource_type = "physical:other"

    def __init__(self, conf, clock, turn):
        super().__init__(conf, turn)
        self.clock, self.turn = clock, turn

class PunctualCloud:
    properties = frozenset()

    def __init__(self, conf, turn):
        self.turn = turn
"""
UNFINISHED = """
from climate.plugins.base import ResourcePlugin

class Plugin(ResourcePlugin):
    def __init__(self, conf):
        pass
"""
NAMELESS = f"""{UNFINISHED}
    start = end = requirement = find = inventory = __init__

Nameless = Plugin
"""


def test_plugins_are_loaded_by_name_and_known_by_type(conf: ConfigOpts, install: Install) -> None:
    install("sound", GOOD, "other = sound:OtherPlugin")
    loaded = load_plugins(conf, [HOST, "other"], nullcontext, CLOCK)
    assert list(loaded) == ["physical:host", "physical:other"]
    assert isinstance(loaded["physical:host"], HostPlugin)


def test_who_asks_for_the_turn_or_the_clock_is_given_it(conf: ConfigOpts, install: Install) -> None:
    install("punctual", PUNCTUAL, "other = punctual:PunctualPlugin")
    install("cloudy", PUNCTUAL, "cloudy = cloudy:PunctualCloud", "climate.host_clouds")
    conf.set_override("cloud", "cloudy", group="physical:host")
    plugin: Any = load_plugins(conf, ["other"], nullcontext, CLOCK)["physical:other"]
    assert (plugin.turn, plugin.cloud.turn) == (nullcontext, nullcontext)
    assert plugin.clock is CLOCK


def test_plugins_that_are_not_enabled_are_not_even_imported(
    conf: ConfigOpts, install: Install
) -> None:
    install("unused", "raise RuntimeError", "unused = unused:Plugin")
    assert list(load_plugins(conf, [HOST], nullcontext, CLOCK)) == ["physical:host"]


@pytest.mark.parametrize(
    ("source", "entry", "reason"),
    [
        ("import no_such_module", "b = broken:Plugin", "No module named 'no_such_module'"),
        ("raise OSError('no licence')", "b = broken:Plugin", "no licence"),
        ("def (", "b = broken:Plugin", "invalid syntax"),
        ("", "b = broken:Plugin", "has no attribute 'Plugin'"),
        ("", "b = nowhere:Plugin", "No module named 'nowhere'"),
        ("def Plugin(conf): raise OSError('no cable')", "b = broken:Plugin", "no cable"),
        ("def Plugin(conf): return conf.no_such", "b = broken:Plugin", "no_such"),
        ("def Plugin(conf): return 'text'", "b = broken:Plugin", "is no ResourcePlugin: 'text'"),
        (UNFINISHED, "b = broken:Plugin", "abstract"),
        (NAMELESS, "b = broken:Nameless", "does not say its resource_type, schema"),
    ],
)
def test_a_broken_plugin_is_named_with_its_reason(
    conf: ConfigOpts, install: Install, source: str, entry: str, reason: str
) -> None:
    install("broken", source, entry)
    with pytest.raises(BrokenPlugin) as refusal:
        load_plugins(conf, [HOST, "b"], nullcontext, CLOCK)
    assert "plugin 'b'" in str(refusal.value)
    assert reason in str(refusal.value)


def test_a_missing_plugin_is_named(conf: ConfigOpts) -> None:
    with pytest.raises(BrokenPlugin, match=r"climate\.resource_plugins\): no\.such\.plugin"):
        load_plugins(conf, [HOST, "no.such.plugin"], nullcontext, CLOCK)


def test_two_plugins_of_one_type_are_refused(conf: ConfigOpts, install: Install) -> None:
    install("twin", "from climate.plugins.host import HostPlugin", "twin = twin:HostPlugin")
    with pytest.raises(BrokenPlugin, match="two enabled plugins serve physical:host"):
        load_plugins(conf, [HOST, "twin"], nullcontext, CLOCK)


def test_two_packages_that_offer_one_name_are_refused(conf: ConfigOpts, install: Install) -> None:
    install("first", GOOD, "other = first:OtherPlugin")
    install("second", GOOD, "other = second:OtherPlugin")
    with pytest.raises(BrokenPlugin, match="several packages offer a plugin 'other'"):
        load_plugins(conf, [HOST, "other"], nullcontext, CLOCK)


def test_the_simulated_cloud_is_a_host_cloud(conf: ConfigOpts) -> None:
    assert isinstance(load_host_cloud(conf, nullcontext), SimulatedCloud)


def test_a_missing_cloud_is_named(conf: ConfigOpts) -> None:
    conf.set_override("cloud", "no-such-cloud", group="physical:host")
    with pytest.raises(BrokenPlugin, match="no-such-cloud"):
        load_host_cloud(conf, nullcontext)
    with pytest.raises(BrokenPlugin, match="instance cloud 'no-such-cloud'"):
        load_instance_cloud(conf, nullcontext)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def Cloud(conf): raise OSError('no route')", "no route"),
    ],
)
def test_a_broken_host_cloud_stops_the_plugin_above_it(
    conf: ConfigOpts, install: Install, source: str, reason: str
) -> None:
    install("foggy", source, "foggy = foggy:Cloud", "climate.host_clouds")
    conf.set_override("cloud", "foggy", group="physical:host")
    with pytest.raises(BrokenPlugin) as refusal:
        load_plugins(conf, [HOST], nullcontext, CLOCK)
    assert "'foggy'" in str(refusal.value)
    assert reason in str(refusal.value)
