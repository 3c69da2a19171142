"""Shutdown of one node: power it off, and report the result to climate.

First the provisioner shuts down the node's operating system. If that fails, it cuts the power. If
climate cancels a shutdown, the provisioner powers the node on again.

If a provisioner process is paused for too long, its claim expires. Another provisioner may then
finish the shutdown, and a lease may get the node. Therefore the provisioner renews the claim right
before each request to shut down the operating system or to cut the power.
"""

import logging

from climate.provisioner.claim import Claim
from climate.provisioner.nodes import InvalidNodeConfig, Node
from climate.provisioner.power import driver as power_driver
from climate.provisioner.power.driver import Power, PowerDriver, PowerError, Refused
from climate.provisioner.prepare import NotUsable, Tools, get_ready

LOG = logging.getLogger(__name__)


def shut_down(tools: Tools, node: Node, claim: Claim) -> None:
    """Power off the node of a claimed task, and report the result.

    If the state of the task is ``waking``, power the node on instead. Failures of a shutdown:

    - If the first attempt cannot find out whether the node has power, report that the node stays
      on, because nothing was changed.
    - Otherwise, report nothing. The claim expires, and a provisioner tries again. Until then, the
      node may go off at any moment, so climate does not prepare it.

    Raises ClaimLost if the claim on the task is lost, Stopped if the process stops, and
    ApiUnavailable if climate does not answer.
    """
    if claim.task.state == "waking":
        _wake(tools, node, claim)
        return
    driver = tools.drivers[node.driver]
    try:
        has_power = driver.power(node) is Power.ON
    except (PowerError, InvalidNodeConfig) as error:
        if claim.attempt > 1:
            LOG.warning("cannot read the power state of %s, retrying later: %s", node.name, error)
            return
        LOG.warning("cannot power off %s, leaving it on: %s", node.name, error)
        claim.finish("kept", reason=str(error))
        return
    if has_power and not _power_off(tools, driver, node, claim):
        return
    LOG.info("%s is powered off", node.name)
    claim.finish("off")


def _wake(tools: Tools, node: Node, claim: Claim) -> None:
    try:
        get_ready(tools, node, claim, {})
    except (PowerError, InvalidNodeConfig, NotUsable) as error:
        LOG.warning("cannot power on %s: %s", node.name, error)
        claim.finish("kept", reason=str(error))
    else:
        LOG.info("%s is powered on again", node.name)
        claim.finish("on")


def _power_off(tools: Tools, driver: PowerDriver, node: Node, claim: Claim) -> bool:
    """Power a node off; return whether it is off.

    Raises ClaimLost if the claim on the task is lost, Stopped if the process stops, and
    ApiUnavailable if climate does not answer.
    """
    try:
        if tools.shutdown_timeout and _shut_down_system(tools, driver, node, claim):
            return True
        claim.acquire()
        driver.set_power(node, Power.OFF)
        if power_driver.becomes(driver, node, Power.OFF, tools.power_timeout, claim.pause):
            return True
        LOG.warning("%s is still on after %g s, retrying later", node.name, tools.power_timeout)
    except (PowerError, InvalidNodeConfig) as error:
        LOG.warning("cannot power off %s, retrying later: %s", node.name, error)
    return False


def _shut_down_system(tools: Tools, driver: PowerDriver, node: Node, claim: Claim) -> bool:
    """Shut the operating system of a node down; return whether the node is off.

    Raises the errors of ``_power_off``.
    """
    claim.acquire()
    try:
        driver.shut_down(node)
    except Refused as error:
        LOG.info("cannot shut down the system of %s: %s", node.name, error)
        return False
    return power_driver.becomes(driver, node, Power.OFF, tools.shutdown_timeout, claim.pause)
