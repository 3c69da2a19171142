"""Switching one node off: have it shut down by itself, cut its power if it does not, say so.

Or on again, as a spare. Who was frozen may go on when others had the node and a lease has it: so
right before anything is asked of it climate is asked whether it is still ours.
"""

import logging

from climate.provisioner.claim import Claim
from climate.provisioner.nodes import InvalidNodeConfig, Node
from climate.provisioner.power import driver as power_driver
from climate.provisioner.power.driver import Power, PowerDriver, PowerError, Refused
from climate.provisioner.prepare import NotUsable, Tools, get_ready

LOG = logging.getLogger(__name__)


def shut_down(tools: Tools, node: Node, claim: Claim) -> None:
    """Switch a node off that we have the claim on, or on again; report what came of it.

    That it stays on is only said if nothing can have been done to it, by us or by who had it
    before. Otherwise the claim expires, and somebody tries again: until then nobody gets the node
    ready, as it may go off at any moment. Raises Lost, Stopped, NotAnswered.
    """
    if claim.wanted.state == "waking":
        _wake(tools, node, claim)
        return
    driver = tools.drivers[node.driver]
    try:
        has_power = driver.power(node) is Power.ON
    except (PowerError, InvalidNodeConfig) as error:
        if claim.attempt > 1:
            LOG.warning("%s may be off or not, it is tried again: %s", node.name, error)
            return
        LOG.warning("%s stays on: %s", node.name, error)
        claim.finish("kept", reason=str(error))
        return
    if has_power and not _is_off(tools, driver, node, claim):
        return
    LOG.info("%s is off", node.name)
    claim.finish("off")


def _wake(tools: Tools, node: Node, claim: Claim) -> None:
    """Have a node on again that nobody waits for, and report what came of it."""
    try:
        get_ready(tools, node, claim, {})
    except (PowerError, InvalidNodeConfig, NotUsable) as error:
        LOG.warning("%s does not come on: %s", node.name, error)
        claim.finish("kept", reason=str(error))
    else:
        LOG.info("%s is on again", node.name)
        claim.finish("on")


def _is_off(tools: Tools, driver: PowerDriver, node: Node, claim: Claim) -> bool:
    """Switch a node off; tell whether it is. Raises Lost, Stopped, NotAnswered."""
    try:
        if tools.shutdown_timeout and _ends_by_itself(tools, driver, node, claim):
            return True
        claim.acquire()
        driver.set_power(node, Power.OFF)
        if power_driver.becomes(driver, node, Power.OFF, tools.power_timeout, claim.pause):
            return True
        LOG.warning("%s is not off %g s later, it is tried again", node.name, tools.power_timeout)
    except (PowerError, InvalidNodeConfig) as error:
        LOG.warning("%s is not off, it is tried again: %s", node.name, error)
    return False


def _ends_by_itself(tools: Tools, driver: PowerDriver, node: Node, claim: Claim) -> bool:
    """Tell whether the node went off when it was asked to. Raises as ``_is_off``, Unreachable."""
    claim.acquire()
    try:
        driver.shut_down(node)
    except Refused as error:
        LOG.info("%s cannot shut down by itself: %s", node.name, error)
        return False
    return power_driver.becomes(driver, node, Power.OFF, tools.shutdown_timeout, claim.pause)
