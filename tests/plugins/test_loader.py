"""The loader finds plug-ins, drivers, filters and weighers; a broken one stops the process."""

from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from oslo_config.cfg import ConfigOpts

from climate.config.registry import Misconfigured
from climate.core.matching.selection import Selection
from climate.plugins import filters as plugins_filters
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.hosts.simulated import SimulatedCloud
from climate.plugins.loader import (
    BrokenPlugin,
    load_cloud,
    load_plugins,
    load_selection,
)
from tests.plugins.conftest import Install
from tests.support.clock import ManualClock

HOST = "physical.host.plugin"
CLOCK = ManualClock(datetime(2030, 1, 15, tzinfo=UTC))
GOOD = """
from climate.plugins.hosts.plugin import HostPlugin

class OtherPlugin(HostPlugin):
    resource_type = "physical:other"
"""
PUNCTUAL = """
from climate.plugins.hosts.plugin import HostPlugin

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
"""


OUTDATED = f"""{GOOD}
    def arrange(self, reservation, requester):
        pass

Plugin = OtherPlugin
"""


class TestPlugins:
    def test_are_loaded_by_name_and_keyed_by_type(self, conf: ConfigOpts, install: Install) -> None:
        install("sound", GOOD, "other = sound:OtherPlugin")
        loaded = load_plugins(conf, [HOST, "other"], nullcontext, CLOCK)
        assert list(loaded) == ["physical:host", "physical:other"]
        assert isinstance(loaded["physical:host"], HostPlugin)

    def test_receive_the_lock_and_the_clock_if_their_constructors_name_them(
        self, conf: ConfigOpts, install: Install
    ) -> None:
        install("punctual", PUNCTUAL, "other = punctual:PunctualPlugin")
        install("cloudy", PUNCTUAL, "cloudy = cloudy:PunctualCloud", "climate.host_clouds")
        conf.set_override("cloud", "cloudy", group="physical:host")
        plugin: Any = load_plugins(conf, ["other"], nullcontext, CLOCK)["physical:other"]
        assert (plugin.turn, plugin.cloud.turn) == (nullcontext, nullcontext)
        assert plugin.clock is CLOCK

    def test_are_not_imported_unless_enabled(self, conf: ConfigOpts, install: Install) -> None:
        install("unused", "raise RuntimeError", "unused = unused:Plugin")
        assert list(load_plugins(conf, [HOST], nullcontext, CLOCK)) == ["physical:host"]

    def test_a_broken_one_is_reported_with_its_reason(
        self, conf: ConfigOpts, install: Install, subtests: pytest.Subtests
    ) -> None:
        broken = [
            ("import no_such_module", "No module named 'no_such_module'"),
            ("raise OSError('no licence')", "no licence"),
            ("def (", "invalid syntax"),
            ("", "has no attribute 'Plugin'"),
            ("def Plugin(conf): raise OSError('no cable')", "no cable"),
            ("def Plugin(conf): return conf.no_such", "no_such"),
            ("def Plugin(conf): return 'text'", "is not a ResourcePlugin: 'text'"),
            (UNFINISHED, "abstract"),
            (NAMELESS, "does not define resource_type, schema"),
            (OUTDATED, "defines arrange, which is now prepare"),
        ]
        for number, (source, _) in enumerate(broken):
            install(f"broken{number}", source, f"b{number} = broken{number}:Plugin")
        install("away", "", f"b{len(broken)} = nowhere:Plugin")
        broken.append(("", "No module named 'nowhere'"))
        for number, (_, reason) in enumerate(broken):
            with subtests.test(reason):
                with pytest.raises(BrokenPlugin) as error:
                    load_plugins(conf, [HOST, f"b{number}"], nullcontext, CLOCK)
                assert f"plugin 'b{number}'" in str(error.value)
                assert reason in str(error.value)

    def test_a_missing_one_is_reported(self, conf: ConfigOpts) -> None:
        with pytest.raises(BrokenPlugin, match=r"climate\.resource_plugins\): no\.such\.plugin"):
            load_plugins(conf, [HOST, "no.such.plugin"], nullcontext, CLOCK)

    def test_rejects_two_of_one_type_or_one_name(self, conf: ConfigOpts, install: Install) -> None:
        install(
            "twin", "from climate.plugins.hosts.plugin import HostPlugin", "twin = twin:HostPlugin"
        )
        install("first", GOOD, "other = first:OtherPlugin")
        install("second", GOOD, "other = second:OtherPlugin")
        with pytest.raises(BrokenPlugin, match="two enabled plugins serve physical:host"):
            load_plugins(conf, [HOST, "twin"], nullcontext, CLOCK)
        with pytest.raises(BrokenPlugin, match="several packages offer a plugin 'other'"):
            load_plugins(conf, [HOST, "other"], nullcontext, CLOCK)


class TestClouds:
    def test_the_simulated_cloud_is_a_host_cloud(self, conf: ConfigOpts) -> None:
        assert isinstance(load_cloud("physical:host", conf, turn=nullcontext), SimulatedCloud)

    def test_a_missing_one_is_reported(self, conf: ConfigOpts) -> None:
        conf.set_override("cloud", "no-such-cloud", group="physical:host")
        with pytest.raises(BrokenPlugin, match="no-such-cloud"):
            load_cloud("physical:host", conf, turn=nullcontext)
        with pytest.raises(BrokenPlugin, match="instance cloud 'no-such-cloud'"):
            load_cloud("virtual:instance", conf, turn=nullcontext)

    def test_a_broken_one_stops_the_plugin_that_uses_it(
        self, conf: ConfigOpts, install: Install
    ) -> None:
        reasons = {"foggy": "No module named 'no_such_module'", "remote": "no route"}
        install("foggy", "import no_such_module", "foggy = foggy:Cloud", "climate.host_clouds")
        source = "def Cloud(conf): raise OSError('no route')"
        install("remote", source, "remote = remote:Cloud", "climate.host_clouds")
        for name, reason in reasons.items():
            conf.set_override("cloud", name, group="physical:host")
            with pytest.raises(BrokenPlugin) as error:
                load_plugins(conf, [HOST], nullcontext, CLOCK)
            assert f"'{name}'" in str(error.value)
            assert reason in str(error.value)


def select(
    conf: ConfigOpts, filters: tuple[str, ...] = (), weighers: tuple[str, ...] = ()
) -> Selection:
    conf.set_override("filters", list(filters), group="manager")
    conf.set_override("weighers", list(weighers), group="manager")
    return load_selection(conf)


def selection_error(conf: ConfigOpts, **names: tuple[str, ...]) -> str:
    with pytest.raises(Misconfigured) as error:
        select(conf, **names)
    return str(error.value)


class TestFiltersAndWeighers:
    def test_there_are_none_by_default(self, conf: ConfigOpts) -> None:
        assert load_selection(conf) == Selection()

    def test_are_loaded_in_their_order_with_multipliers(self, conf: ConfigOpts) -> None:
        selection = select(conf, ("no_maintenance",), ("lowest_id = -2.5", "fewest_properties"))
        assert selection.filters == (plugins_filters.no_maintenance,)
        assert selection.weighers == (
            (plugins_filters.lowest_id, -2.5),
            (plugins_filters.fewest_properties, 1.0),
        )

    def test_may_come_from_another_package(self, conf: ConfigOpts, install: Install) -> None:
        source = "def best(candidate, requirement):\n    return 7.0"
        install("choosy", source, "best = choosy:best", "climate.weighers")
        [(weigher, multiplier)] = select(conf, weighers=("best=3",)).weighers
        assert (weigher.__name__, multiplier) == ("best", 3.0)

    def test_a_missing_one_is_reported(self, conf: ConfigOpts) -> None:
        for option in ("filters", "weighers"):
            assert selection_error(conf, **{option: ("no_such",)}) == (
                f"[manager] {option}: no installed package offers no_such (climate.{option})"
            )
            conf.clear_override(option, group="manager")

    def test_a_multiplier_must_be_a_finite_number(self, conf: ConfigOpts) -> None:
        for text in ("lowest_id=", "lowest_id=much", "lowest_id=nan", "lowest_id=inf"):
            message = f"weighers: {text!r} is not of the form NAME=NUMBER"
            assert message in selection_error(conf, weighers=(text,))

    def test_rejects_a_name_given_twice(self, conf: ConfigOpts) -> None:
        message = selection_error(conf, weighers=("lowest_id=1", "lowest_id=2"))
        assert message == "[manager] weighers: lowest_id is named twice"

    def test_a_broken_one_is_reported_with_its_reason(
        self, conf: ConfigOpts, install: Install
    ) -> None:
        broken = {
            "missing": ("import no_such_module", "No module named 'no_such_module'"),
            "vacant": ("", "has no attribute 'f'"),
            "textual": ("f = 'text'", "textual is not a function"),
        }
        for name, (source, _) in broken.items():
            install(name, source, f"{name} = {name}:f", "climate.filters")
        for name, (_, reason) in broken.items():
            message = selection_error(conf, filters=(name,))
            assert message.startswith(f"[manager] filters: {name}")
            assert reason in message

    def test_rejects_one_name_from_two_packages(self, conf: ConfigOpts, install: Install) -> None:
        for package in ("first", "second"):
            install(package, "def f(): ...", f"f = {package}:f", "climate.filters")
        assert "several packages offer f" in selection_error(conf, filters=("f",))
