"""Getting one node ready: claim it, switch it on, wait until it can be used, say so."""

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

# How often a controller that does not answer is tried, and seconds in between.
_TRIES, _BACK_OFF = 3, 10.0
_LOOK_AGAIN = 1.0


class NotUsable(Exception):
    """A node has power, and cannot be used all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What getting nodes ready, and switching them off, needs; times are seconds."""

    climate: ClimateClient
    drivers: Mapping[str, PowerDriver]
    groups: Groups
    power_timeout: float
    ready_timeout: float
    shutdown_timeout: float


def prepare(tools: Tools, node: Node, claim: Claim) -> None:
    """Get a node ready that we have the claim on, and report what came of it.

    Raises Lost, Stopped, NotAnswered.
    """
    seconds: dict[str, float] = {}
    try:
        cold = get_ready(tools, node, claim, seconds)
    except (PowerError, InvalidNodeConfig, NotUsable) as error:
        LOG.warning("%s failed: %s", node.name, error)
        claim.finish("failed", reason=str(error), seconds=seconds)
    else:
        LOG.info("%s is ready: %s", node.name, seconds)
        claim.finish("ready", cold=cold, seconds=seconds)


def get_ready(tools: Tools, node: Node, claim: Claim, seconds: dict[str, float]) -> bool:
    """Switch a node on, and wait until it can be used; return whether it had no power.

    Add to ``seconds`` how long each phase took. Raises PowerError, BadNodes, NotUsable, Lost,
    Stopped.
    """
    began = time.monotonic()
    with tools.groups.slot(node.groups, claim.pause):
        in_turn = time.monotonic()
        seconds["wait"] = in_turn - began
        # What the cloud says is to the second, and may be rounded.
        since = datetime.now(UTC) + timedelta(seconds=1)
        cold = _power_on(tools, node, claim)
        has_power = time.monotonic()
        seconds["power"] = has_power - in_turn
    while not checks.is_usable(node, claim.wanted, tools.climate, since):
        if time.monotonic() - has_power > tools.ready_timeout:
            raise NotUsable(
                f"{node.name} has power, and cannot be used {tools.ready_timeout:g} s later"
            )
        claim.pause(_LOOK_AGAIN)
    seconds["boot"] = time.monotonic() - has_power
    return cold


def _power_on(tools: Tools, node: Node, claim: Claim) -> bool:
    """Switch a node on, also if its controller does not answer at first. Raises PowerError."""
    driver = tools.drivers[node.driver]
    for attempt in range(1, _TRIES + 1):
        try:
            if node.boot_device and driver.power(node) is Power.OFF:
                driver.boot_from(node, BootDevice(node.boot_device))
            return power_driver.switch(driver, node, Power.ON, tools.power_timeout, claim.pause)
        except Unreachable as error:
            if attempt == _TRIES:
                raise
            LOG.info("trying again in %s s: %s", _BACK_OFF, error)
            claim.pause(_BACK_OFF)
    raise AssertionError("unreachable: the last attempt returns or raises")
