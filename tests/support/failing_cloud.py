"""A simulated cloud in which chosen actions fail."""

from typing import Any

from climate.plugins.hosts.simulated import SimulatedCloud
from climate.plugins.simulated_journal import SimulatedFailure
from tests.support.service import Story


class FailingCloud(SimulatedCloud):
    """A simulated cloud in which actions fail by name or by host until they are repaired."""

    broken: set[str]

    def act(self, name: str, **details: str) -> None:
        if {name, details.get("host")} & self.broken:
            raise SimulatedFailure(f"{name} is broken")
        super().act(name, **details)


def break_cloud(story: Story, *actions_or_hosts: str) -> None:
    """Let these actions, or all actions on these hosts, fail; without arguments repair all."""
    plugin: Any = story.runtime.plugins["physical:host"]
    if not isinstance(plugin.cloud, FailingCloud):
        plugin.cloud = FailingCloud(story.conf)
    plugin.cloud.broken = set(actions_or_hosts)
