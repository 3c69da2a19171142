"""Power over IPMI: the program ``ipmitool``, once per question.

A process of its own can be ended when a controller is silent, which no thread can. ipmitool says
the same of a wrong password and of silence ("Unable to establish IPMI v2 / RMCP+ session"), so the
time that it took tells them apart. It repeats what is not answered, and slow controllers then do
it several times: nothing but on, off, soft off and the boot device is asked, for which that does
not matter.
"""

import os
import subprocess
import time

from climate.provisioner.nodes import Node
from climate.provisioner.power.driver import BootDevice, Power, PowerError, Refused, Unreachable

# Seconds for one question in all; ipmitool itself gives up on silence after about 6.
_DEADLINE = 15.0
_TRIES = ("-N", "1", "-R", "2")
# Who refuses does so at once.
_AT_ONCE = 1.5
_POWER = {Power.ON: "on", Power.OFF: "off"}
_LONGEST_REASON = 300


class Ipmi:
    """Controllers that speak IPMI 2.0 over LAN.

    ``options`` of a node: ``cipher_suite`` (text or number; without it ipmitool asks which there
    are, which some controllers take 10 s to answer), ``privilege`` (``ADMINISTRATOR``).
    """

    def __init__(self, program: str = "ipmitool", deadline: float = _DEADLINE) -> None:
        """Use a program of that name, for so many seconds at most."""
        self._program, self._deadline = program, deadline

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""
        said = self._run(node, "chassis", "power", "status").strip().lower()
        if not said.endswith((" on", " off")):
            raise Unreachable(f"{node.name}: ipmitool says {said[:_LONGEST_REASON]!r} of its power")
        return Power.ON if said.endswith(" on") else Power.OFF

    def set_power(self, node: Node, wanted: Power) -> None:
        """Ask for power or none."""
        self._run(node, "chassis", "power", _POWER[wanted])

    def shut_down(self, node: Node) -> None:
        """Ask the system to end, by ACPI: as its power button does."""
        self._run(node, "chassis", "power", "soft")

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Set the device of the next boot."""
        self._run(node, "chassis", "bootdev", device.value)

    def _run(self, node: Node, *words: str) -> str:
        """Return what ipmitool prints. The password is in its environment, where nobody sees it."""
        began = time.monotonic()
        environment = {"PATH": os.environ.get("PATH", os.defpath), "IPMI_PASSWORD": node.password()}
        try:
            done = subprocess.run(  # noqa: S603 - no shell, and words of our own
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
        if done.returncode:
            raise _failure(node, done.stderr, time.monotonic() - began)
        return done.stdout


def _arguments(node: Node) -> list[str]:
    given = ["-I", "lanplus", "-H", node.address, "-p", str(node.port or 623)]
    if suite := node.options.get("cipher_suite"):
        given += ["-C", str(suite)]
    if privilege := node.options.get("privilege"):
        given += ["-L", str(privilege)]
    return [*given, *_TRIES, "-U", node.username, "-E"]


def _failure(node: Node, stderr: str, seconds: float) -> PowerError:
    lines = [line for line in stderr.splitlines() if line.strip()]
    reason = (lines[-1] if lines else "no reason given")[:_LONGEST_REASON]
    if "session" in reason and seconds > _AT_ONCE:
        return Unreachable(f"{node.name}: no answer ({reason})")
    if "session" in reason:
        return Refused(f"{node.name}: user, password or cipher suite are refused ({reason})")
    return Refused(f"{node.name}: {reason}")
