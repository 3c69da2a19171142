"""Simulated clouds that fail after a number of changes."""

import contextlib
from collections.abc import Iterator
from typing import Any

from oslo_config.cfg import ConfigOpts

from climate.plugins.hosts.simulated import SimulatedCloud
from tests.plugins.contract import Interrupted, PluginContract


class FragileCloud(SimulatedCloud):
    """Fails in the call after ``left`` changes; None: never."""

    left: int | None = None

    def act(self, name: str, **details: str) -> None:
        if self.left == 0:
            raise Interrupted(name)
        if self.left is not None:
            self.left -= 1
        super().act(name, **details)


def make_plugin(plugin_class: Any, conf: ConfigOpts, *arguments: Any) -> Any:
    """Return a plug-in whose cloud a test can interrupt."""
    plugin = plugin_class(conf, contextlib.nullcontext, *arguments)
    plugin.cloud.journal = FragileCloud(conf)
    return plugin


class SimulatedContract(PluginContract):
    """The contract for a plug-in with a fragile cloud, or whose cloud has a fragile journal."""

    @contextlib.contextmanager
    def failing_after(self, plugin: Any, effects: int) -> Iterator[None]:
        fragile = plugin.cloud if hasattr(plugin.cloud, "left") else plugin.cloud.journal
        fragile.left = effects
        yield
        fragile.left = None
