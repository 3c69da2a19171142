"""Power over Redfish, with sushy.

sushy's own retries would repeat a reset, and wait ten minutes for a silent controller; so there is
one try with short time-outs. A controller that sends a byte now and then defeats any time-out of a
socket, so each question has a thread of its own, which is left behind at the deadline; while one is
left, its node is asked nothing more.
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
# On the way up it has power already, on the way down still.
_HAS_POWER = {sushy.PowerState.ON, sushy.PowerState.POWERING_OFF}
_LONGEST_REASON = 300
_T = TypeVar("_T")


class Redfish:
    """Controllers that speak Redfish.

    A node's ``address`` is a URL. ``options``: ``system`` (its path, ``/redfish/v1/Systems/1``; not
    needed where there is but one), ``verify`` (true, false, or the file of a CA).
    """

    def __init__(self, deadline: float = _DEADLINE) -> None:
        """Give each question so many seconds."""
        self._deadline = deadline
        self._left: dict[str, threading.Thread] = {}

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""

        def ask() -> Power:
            return Power.ON if _system(node).power_state in _HAS_POWER else Power.OFF

        return self._within(node, ask)

    def set_power(self, node: Node, wanted: Power) -> None:
        """Ask for power or none."""
        self._within(node, lambda: _system(node).reset_system(_RESET[wanted]))

    def shut_down(self, node: Node) -> None:
        """Ask the system to end."""
        graceful = sushy.RESET_TYPE_GRACEFUL_SHUTDOWN
        self._within(node, lambda: _system(node).reset_system(graceful))

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Set the device of the next boot."""
        once = sushy.BOOT_SOURCE_ENABLED_ONCE
        self._within(
            node, lambda: _system(node).set_system_boot_options(_DEVICE[device], enabled=once)
        )

    def _within(self, node: Node, ask: Callable[[], _T]) -> _T:
        """Return what is answered by the deadline."""
        if (left := self._left.get(node.name)) and left.is_alive():
            raise Unreachable(f"{node.name}: an earlier question is not answered yet")
        answers: list[_T] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                answers.append(ask())
            except Exception as error:  # noqa: BLE001 - told below
                failures.append(error)

        thread = threading.Thread(target=run, name=f"redfish {node.name}", daemon=True)
        thread.start()
        thread.join(self._deadline)
        if thread.is_alive():
            self._left[node.name] = thread
            raise Unreachable(f"{node.name}: no answer within {self._deadline:g} s")
        self._left.pop(node.name, None)
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
    told = f"{node.name}: {type(error).__name__}: {reason[:_LONGEST_REASON]}"
    if isinstance(error, exceptions.ServerSideError):
        return Unreachable(told)
    if isinstance(error, exceptions.ConnectionError):
        trust = "certificate" in reason.lower()
        return Refused(told) if trust else Unreachable(told)
    return Refused(told)
