"""A cloud that fails on demand."""

from typing import Any

from climate.plugins.simulated import SimulatedCloud, SimulatedFailure
from tests.support.service import Story


class FragileCloud(SimulatedCloud):
    """A simulated cloud in which some effects fail, by name or by host, until they are mended."""

    broken: set[str]

    def act(self, name: str, **details: str) -> None:
        if {name, details.get("host")} & self.broken:
            raise SimulatedFailure(f"{name} is broken")
        super().act(name, **details)


def break_cloud(story: Story, *what: str) -> None:
    """Have these effects (or all on these hosts) fail from now on; none to mend everything."""
    plugin: Any = story.runtime.plugins["physical:host"]
    if not isinstance(plugin.cloud, FragileCloud):
        plugin.cloud = FragileCloud(story.conf)
    plugin.cloud.broken = set(what)
