"""A simulated cloud that fails after a number of changes."""

from climate.plugins.hosts.simulated import SimulatedCloud
from tests.plugins.contract import Interrupted


class FragileCloud(SimulatedCloud):
    """Fails in the call after ``left`` changes; None: never."""

    left: int | None = None

    def act(self, name: str, **details: str) -> None:
        if self.left == 0:
            raise Interrupted(name)
        if self.left is not None:
            self.left -= 1
        super().act(name, **details)
