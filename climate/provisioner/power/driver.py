"""The power of a node: what a driver can be asked, what can go wrong, and how it is switched.

A driver's call comes back by its own deadline, whatever the node's controller (BMC) does. What it
says may be a lie, so who switches looks until it is true. No error has a secret in its text.
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
    """What a node boots from next."""

    DISK = "disk"
    PXE = "pxe"
    CDROM = "cdrom"


class PowerError(Exception):
    """A node's power is not known, or not what it should be."""


class Refused(PowerError):
    """The controller does not do it, and will not do it next time: who may what must be mended."""


class Unreachable(PowerError):
    """The controller did not answer in time: it is to be left alone for a while."""


class PowerUnchanged(PowerError):
    """The controller said yes, and nothing has come of it."""


class PowerDriver(Protocol):
    """How nodes are reached. All may raise Refused or Unreachable."""

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""

    def set_power(self, node: Node, wanted: Power) -> None:
        """Ask for power, or for none; it need not be so yet. May be asked again."""

    def shut_down(self, node: Node) -> None:
        """Ask the node's system to end by itself; it need not. Refused: it cannot be asked."""

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Have the node boot from there at its next start, and only then."""


# Seconds between looks, and how many looks may fail in a row.
_PAUSE = 1.0
_SILENT_LOOKS = 3


def switch(
    driver: PowerDriver,
    node: Node,
    wanted: Power,
    patience: float,
    pause: Callable[[float], object] = time.sleep,
) -> bool:
    """Have a node be on or off; return whether anything had to be done for that.

    Raises Disobeyed if it is not so after ``patience`` seconds, and what the driver raises.
    """
    if driver.power(node) is wanted:
        return False
    driver.set_power(node, wanted)
    if not becomes(driver, node, wanted, patience, pause):
        raise PowerUnchanged(
            f"{node.name} is not {wanted}, {patience:g} s after it was asked to be"
        )
    return True


def becomes(
    driver: PowerDriver,
    node: Node,
    wanted: Power,
    patience: float,
    pause: Callable[[float], object] = time.sleep,
) -> bool:
    """Wait for a node to be on or off; tell whether it is within ``patience`` seconds.

    Raises Unreachable if the controller is silent several times in a row, and Refused.
    """
    deadline = time.monotonic() + patience
    silent = 0
    while time.monotonic() < deadline:
        pause(_PAUSE)
        try:
            if driver.power(node) is wanted:
                return True
            silent = 0
        except Unreachable:
            silent += 1
            if silent == _SILENT_LOOKS:
                raise
    return False


def cycle(
    driver: PowerDriver,
    node: Node,
    patience: float,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Switch a node off and on. Raises as ``switch`` does.

    The command of that name is not used: a controller that is slow gets it several times, and
    would do it as often.
    """
    switch(driver, node, Power.OFF, patience, pause)
    switch(driver, node, Power.ON, patience, pause)
