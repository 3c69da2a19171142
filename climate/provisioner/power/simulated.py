"""Power driver for simulated nodes, for demonstrations and tests."""

import threading

from climate.provisioner.nodes import Node
from climate.provisioner.power.driver import BootDevice, Power


class Simulated:
    """Simulated nodes, which carry out every request at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._power: dict[str, Power] = {}
        #: All requests: the node, and ``on``, ``off``, ``shutdown`` or a boot device.
        self.requests: list[tuple[str, str]] = []

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""
        return self._power.get(node.name, Power.OFF)

    def set_power(self, node: Node, power: Power) -> None:
        """Power a node on or off."""
        with self._lock:
            self._power[node.name] = power
            self.requests.append((node.name, power.value))

    def shut_down(self, node: Node) -> None:
        """Power a node off."""
        with self._lock:
            self._power[node.name] = Power.OFF
            self.requests.append((node.name, "shutdown"))

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Record the boot device."""
        with self._lock:
            self.requests.append((node.name, device.value))
