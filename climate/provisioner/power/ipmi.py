"""Power driver for IPMI, which runs the program ``ipmitool`` once per request.

If a controller does not answer, the driver kills ipmitool. (A thread could not be killed.)

ipmitool prints the same error for a wrong password and for a timeout ("Unable to establish IPMI v2
/ RMCP+ session"). So the driver distinguishes these causes by the time that ipmitool took.

ipmitool may send a request several times. So the driver uses only idempotent requests: on, off,
shutdown of the system ("soft"), and boot device.
"""

import os
import subprocess
import time

from climate.provisioner.nodes import Node
from climate.provisioner.power.driver import BootDevice, Power, PowerError, Refused, Unreachable

# Seconds for one request in all; without an answer, ipmitool gives up after about 6 seconds.
_DEADLINE = 15.0
_TRIES = ("-N", "1", "-R", "2")
# Seconds. A failure that takes longer is a timeout: controllers reject credentials at once.
_AT_ONCE = 1.5
_LONGEST_REASON = 300


class Ipmi:
    """Controls nodes whose controllers support IPMI 2.0 over LAN.

    The ``options`` of a node may contain ``cipher_suite`` (text or number) and ``privilege`` (such
    as ``ADMINISTRATOR``). Without ``cipher_suite``, ipmitool requests the list of suites, which
    takes some controllers 10 s.
    """

    def __init__(self, program: str = "ipmitool", deadline: float = _DEADLINE) -> None:
        """Set the ``program``, and the ``deadline`` in seconds after which the driver kills it."""
        self._program, self._deadline = program, deadline

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""
        output = self._run(node, "chassis", "power", "status").strip().lower()
        if not output.endswith((" on", " off")):
            raise Unreachable(
                f"{node.name}: ipmitool printed {output[:_LONGEST_REASON]!r} as its power"
            )
        return Power.ON if output.endswith(" on") else Power.OFF

    def set_power(self, node: Node, power: Power) -> None:
        """Request power on or off."""
        self._run(node, "chassis", "power", power.value)

    def shut_down(self, node: Node) -> None:
        """Request a shutdown by ACPI, like the power button."""
        self._run(node, "chassis", "power", "soft")

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Set the device from which the node boots next time."""
        self._run(node, "chassis", "bootdev", device.value)

    def _run(self, node: Node, *words: str) -> str:
        """Run ipmitool and return its output.

        The driver passes the password in the environment of ipmitool, because other users of the
        machine can see the arguments of a program.
        """
        began = time.monotonic()
        environment = {"PATH": os.environ.get("PATH", os.defpath), "IPMI_PASSWORD": node.password()}
        try:
            process = subprocess.run(  # noqa: S603 - no shell, and climate's own arguments
                [self._program, *_arguments(node), *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{node.name}: no answer within {self._deadline:g} s") from None
        except OSError as error:
            raise Refused(f"{node.name}: {self._program} cannot be run: {error}") from None
        if process.returncode:
            raise _failure(node, process.stderr, time.monotonic() - began)
        return process.stdout


def _arguments(node: Node) -> list[str]:
    arguments = ["-I", "lanplus", "-H", node.address, "-p", str(node.port or 623)]
    if suite := node.options.get("cipher_suite"):
        arguments += ["-C", str(suite)]
    if privilege := node.options.get("privilege"):
        arguments += ["-L", str(privilege)]
    return [*arguments, *_TRIES, "-U", node.username, "-E"]


def _failure(node: Node, stderr: str, seconds: float) -> PowerError:
    lines = [line for line in stderr.splitlines() if line.strip()]
    reason = (lines[-1] if lines else "no reason given")[:_LONGEST_REASON]
    if "session" in reason and seconds > _AT_ONCE:
        return Unreachable(f"{node.name}: no answer ({reason})")
    if "session" in reason:
        return Refused(
            f"{node.name}: the controller rejects user, password or cipher suite ({reason})"
        )
    return Refused(f"{node.name}: {reason}")
