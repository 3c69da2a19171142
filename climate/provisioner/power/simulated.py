"""Power of nodes that are not there: for trying climate out, and for tests of what uses drivers."""

import threading

from climate.provisioner.nodes import Node
from climate.provisioner.power.driver import BootDevice, Power


class Simulated:
    """Nodes that do at once what they are asked."""

    def __init__(self) -> None:
        """Have all nodes off."""
        self._lock = threading.Lock()
        self._power: dict[str, Power] = {}
        #: All that was asked: name of the node, and ``on``, ``off`` or a boot device.
        self.requests: list[tuple[str, str]] = []

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""
        return self._power.get(node.name, Power.OFF)

    def set_power(self, node: Node, wanted: Power) -> None:
        """Switch it."""
        with self._lock:
            self._power[node.name] = wanted
            self.requests.append((node.name, wanted.value))

    def shut_down(self, node: Node) -> None:
        """Have it end at once."""
        with self._lock:
            self._power[node.name] = Power.OFF
            self.requests.append((node.name, "shutdown"))

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Note it."""
        with self._lock:
            self.requests.append((node.name, device.value))
