"""Power driver for Redfish, which uses the library sushy.

The driver disables sushy's retries. They would repeat a reset, and wait ten minutes for a silent
controller.

A controller that sends a byte now and then never reaches a socket timeout. So each request runs in
a thread of its own. At the deadline, the driver abandons the thread and raises Unreachable. As long
as the abandoned thread still runs, further requests for the same node also raise Unreachable.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import sushy
from sushy import auth, exceptions

from climate.provisioner.nodes import InvalidNodeConfig, Node
from climate.provisioner.power.driver import BootDevice, Power, PowerError, Refused, Unreachable

_CONNECT, _READ = 3.0, 10.0
_DEADLINE = 30.0
_RESET = {Power.ON: sushy.RESET_TYPE_ON, Power.OFF: sushy.RESET_TYPE_FORCE_OFF}
_DEVICE = {
    BootDevice.DISK: sushy.BOOT_SOURCE_TARGET_HDD,
    BootDevice.PXE: sushy.BOOT_SOURCE_TARGET_PXE,
    BootDevice.CDROM: sushy.BOOT_SOURCE_TARGET_CD,
}
# A node that powers off still has power.
_HAS_POWER = {sushy.PowerState.ON, sushy.PowerState.POWERING_OFF}
_LONGEST_REASON = 300
_T = TypeVar("_T")


class Redfish:
    """Controls nodes whose controllers support Redfish; a node's ``address`` is a URL.

    The ``options`` of a node may contain ``system`` (the path, such as ``/redfish/v1/Systems/1``;
    not needed if there is only one system) and ``verify`` (true, false, or the path of a CA file).
    """

    def __init__(self, deadline: float = _DEADLINE) -> None:
        """Set the ``deadline``: the seconds after which the driver abandons a request."""
        self._deadline = deadline
        self._abandoned: dict[str, threading.Thread] = {}

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""
        is_on = self._within_deadline(node, lambda: _system(node).power_state in _HAS_POWER)
        return Power.ON if is_on else Power.OFF

    def set_power(self, node: Node, power: Power) -> None:
        """Request power on or off."""
        self._within_deadline(node, lambda: _system(node).reset_system(_RESET[power]))

    def shut_down(self, node: Node) -> None:
        """Request a shutdown of the system."""
        graceful = sushy.RESET_TYPE_GRACEFUL_SHUTDOWN
        self._within_deadline(node, lambda: _system(node).reset_system(graceful))

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Set the device from which the node boots next time."""
        once = sushy.BOOT_SOURCE_ENABLED_ONCE
        self._within_deadline(
            node, lambda: _system(node).set_system_boot_options(_DEVICE[device], enabled=once)
        )

    def _within_deadline(self, node: Node, request: Callable[[], _T]) -> _T:
        """Call ``request`` in a thread and return its result; raise Unreachable at the deadline."""
        thread = self._abandoned.get(node.name)
        if thread is not None and thread.is_alive():
            raise Unreachable(f"{node.name}: an earlier request is not answered yet")
        answers: list[_T] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                answers.append(request())
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

        thread = threading.Thread(target=run, name=f"redfish {node.name}", daemon=True)
        thread.start()
        thread.join(self._deadline)
        if thread.is_alive():
            self._abandoned[node.name] = thread
            raise Unreachable(f"{node.name}: no answer within {self._deadline:g} s")
        self._abandoned.pop(node.name, None)
        if failures:
            raise _failure(node, failures[0]) from None
        return answers[0]


def _system(node: Node) -> Any:  # noqa: ANN401 - sushy is untyped
    root = sushy.Sushy(
        node.address,
        auth=auth.BasicAuth(node.username, node.password()),
        verify=node.options.get("verify", True),
        connect_timeout=_CONNECT,
        read_timeout=_READ,
        server_side_retries=1,  # 0 would be taken for the default of 10
        server_side_retries_delay=0,
    )
    return root.get_system(node.options.get("system"))


def _failure(node: Node, error: Exception) -> PowerError:
    if isinstance(error, InvalidNodeConfig):
        return Refused(str(error))
    reason = str(error)
    message = f"{node.name}: {type(error).__name__}: {reason[:_LONGEST_REASON]}"
    if isinstance(error, exceptions.ServerSideError):
        return Unreachable(message)
    if isinstance(error, exceptions.ConnectionError):
        is_untrusted = "certificate" in reason.lower()
        return Refused(message) if is_untrusted else Unreachable(message)
    return Refused(message)
