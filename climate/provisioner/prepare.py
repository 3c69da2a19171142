"""Preparation of one node: power it on, wait until it is usable, report the result to climate."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from climate.provisioner import checks
from climate.provisioner.claim import Claim
from climate.provisioner.client import ClimateClient
from climate.provisioner.groups import Groups
from climate.provisioner.nodes import InvalidNodeConfig, Node
from climate.provisioner.power import driver as power_driver
from climate.provisioner.power.driver import BootDevice, Power, PowerDriver, PowerError, Unreachable

LOG = logging.getLogger(__name__)

# Attempts with a controller that does not answer, and the seconds between them.
_ATTEMPTS, _BACK_OFF = 3, 10.0
# Seconds between two checks whether a node is usable.
_CHECK_AGAIN = 1.0


class NotUsable(Exception):
    """Raised if a node is powered on, but did not become usable in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The objects that tasks need, and time limits in seconds.

    ``power_timeout`` is for a change of the power, ``ready_timeout`` for the boot, and
    ``shutdown_timeout`` for the shutdown of the operating system.
    """

    climate: ClimateClient
    drivers: Mapping[str, PowerDriver]
    groups: Groups
    power_timeout: float
    ready_timeout: float
    shutdown_timeout: float


def prepare(tools: Tools, node: Node, claim: Claim) -> None:
    """Power on the node of a claimed task, wait until it is usable, and report the result.

    Raises ClaimLost if the claim on the task is lost, and Stopped if the process stops.
    """
    seconds: dict[str, float] = {}
    try:
        cold = get_ready(tools, node, claim, seconds)
    except (PowerError, InvalidNodeConfig, NotUsable) as error:
        LOG.warning("cannot prepare %s: %s", node.name, error)
        claim.finish("failed", reason=str(error), seconds=seconds)
    else:
        LOG.info("%s is ready, after these seconds: %s", node.name, seconds)
        claim.finish("ready", cold=cold, seconds=seconds)


def get_ready(tools: Tools, node: Node, claim: Claim, seconds: dict[str, float]) -> bool:
    """Power a node on and wait until it is usable; return whether it was off before.

    Writes the duration of each phase into ``seconds``: ``wait`` (until the node may power on),
    ``power`` (until it has power) and ``boot`` (until it is usable). Raises

    - PowerError or InvalidNodeConfig if the node cannot be powered on,
    - NotUsable if it has power and is not usable in time,
    - ClaimLost if the claim on the task is lost,
    - Stopped if the process stops.
    """
    began = time.monotonic()
    with tools.groups.slot(node.groups, claim.pause):
        got_slot = time.monotonic()
        seconds["wait"] = got_slot - began
        # The cloud's timestamps have whole seconds, and may be rounded.
        since = datetime.now(UTC) + timedelta(seconds=1)
        cold = _power_on(tools, node, claim)
        has_power = time.monotonic()
        seconds["power"] = has_power - got_slot
    while not checks.is_usable(node, claim.task, tools.climate, since):
        if time.monotonic() - has_power > tools.ready_timeout:
            raise NotUsable(
                f"{node.name} is powered on, and not usable after {tools.ready_timeout:g} s"
            )
        claim.pause(_CHECK_AGAIN)
    seconds["boot"] = time.monotonic() - has_power
    return cold


def _power_on(tools: Tools, node: Node, claim: Claim) -> bool:
    """Power a node on; return whether it was off before.

    If the controller of the node does not answer, retry a few times. Raises PowerError or
    InvalidNodeConfig if the node cannot be powered on, ClaimLost if the claim on the task is lost,
    and Stopped if the process stops.
    """
    driver = tools.drivers[node.driver]
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            if node.boot_device and driver.power(node) is Power.OFF:
                driver.boot_from(node, BootDevice(node.boot_device))
            return power_driver.switch(driver, node, Power.ON, tools.power_timeout, claim.pause)
        except Unreachable as error:
            if attempt == _ATTEMPTS:
                raise
            LOG.info("cannot power on %s, retrying in %s s: %s", node.name, _BACK_OFF, error)
            claim.pause(_BACK_OFF)
    raise AssertionError("unreachable: the last attempt returns or raises")
