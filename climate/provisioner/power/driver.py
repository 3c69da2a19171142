"""The interface of power drivers, and functions that switch a node's power with a driver.

Every call of a driver returns within a timeout of its own, whatever the node's controller (BMC)
does. Controllers may confirm a request that they do not carry out, so ``switch`` waits for the
result. Error messages contain no secrets.
"""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from climate.provisioner.nodes import Node


class Power(StrEnum):
    """Whether a node has power."""

    ON = "on"
    OFF = "off"


class BootDevice(StrEnum):
    """The device of a node's next boot."""

    DISK = "disk"
    PXE = "pxe"
    CDROM = "cdrom"


class PowerError(Exception):
    """Raised if the power of a node is unknown, or could not be changed."""


class Refused(PowerError):
    """Raised if the controller rejects a request, and will reject it until an operator acts."""


class Unreachable(PowerError):
    """Raised if the controller did not answer in time. Retry after a pause."""


class PowerUnchanged(PowerError):
    """Raised if the controller accepted the request, but the power did not change."""


class PowerDriver(Protocol):
    """Interface of drivers that control the power of nodes.

    Methods may raise Refused, Unreachable or InvalidNodeConfig.
    """

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""

    def set_power(self, node: Node, power: Power) -> None:
        """Request power on or off, without waiting for the result. Idempotent."""

    def shut_down(self, node: Node) -> None:
        """Request a shutdown of the node's operating system.

        Raises Refused if this is impossible.
        """

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Set the device from which the node boots next time; later boots are not affected."""


# Seconds between two reads of the power, and how many may fail in a row.
_PAUSE = 1.0
_FAILED_READS = 3


def switch(
    driver: PowerDriver,
    node: Node,
    power: Power,
    patience: float,
    pause: Callable[[float], object] = time.sleep,
) -> bool:
    """Power a node on or off, and wait for the change; return whether the power had to be changed.

    Raises the errors of the driver. Raises PowerUnchanged if the power has not changed after
    ``patience`` seconds. ``pause`` is the function that waits.
    """
    if driver.power(node) is power:
        return False
    driver.set_power(node, power)
    if not becomes(driver, node, power, patience, pause):
        raise PowerUnchanged(f"{node.name} is not {power} {patience:g} s after the request")
    return True


def becomes(
    driver: PowerDriver,
    node: Node,
    power: Power,
    patience: float,
    pause: Callable[[float], object] = time.sleep,
) -> bool:
    """Wait up to ``patience`` seconds until the power of a node is ``power``; return whether it is.

    ``pause`` is the function that waits between two queries of the power. Raises Unreachable if the
    controller does not answer several queries in a row, and Refused if it rejects a query.
    """
    deadline = time.monotonic() + patience
    failed = 0
    while time.monotonic() < deadline:
        pause(_PAUSE)
        try:
            if driver.power(node) is power:
                return True
            failed = 0
        except Unreachable:
            failed += 1
            if failed == _FAILED_READS:
                raise
    return False
