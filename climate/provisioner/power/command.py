"""Power driver that runs an operator's program, for controllers without a driver in climate.

The driver starts the program once per request, with a JSON object on its standard input::

    {"action": "power" | "on" | "off" | "shutdown" | "boot", "node": "compute-17",
     "address": "10.1.0.17", "port": 623, "username": "climate", "password": "...",
     "device": "pxe", "options": {...}}

The key ``action`` says what the program must do:

- ``power``: print ``on`` or ``off``, depending on whether the node has power;
- ``on``: power the node on;
- ``off``: cut the power of the node;
- ``shutdown``: shut down the node's operating system (if that fails, the provisioner cuts the
  power);
- ``boot``: make the node boot from ``device`` (``disk``, ``pxe`` or ``cdrom``) the next time. For
  all other actions, ``device`` is null.

Every action must be idempotent. The program's exit status must be 0 for success, 75 (EX_TEMPFAIL of
sysexits.h) for a temporary failure, and any other for a permanent failure. If the program fails,
the provisioner reports the last line of its standard error as the reason.
"""

import json
import subprocess
from collections.abc import Sequence

from climate.provisioner import program
from climate.provisioner.nodes import Node
from climate.provisioner.power.driver import BootDevice, Power, Refused, Unreachable

_DEADLINE = 60.0
_TEMPORARY_FAILURE = 75
_LONGEST_REASON = 300


class Command:
    """Power driver that runs the program in ``options.program``, a list of words.

    The program receives the other options of the node.
    """

    def __init__(self, deadline: float = _DEADLINE) -> None:
        """Set the ``deadline``: the seconds after which the driver kills the program."""
        self._deadline = deadline

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""
        output = self._run(node, "power").strip().lower()
        if output not in set(Power):
            raise Refused(f"{node.name}: its program must print on or off, and printed {output!r}")
        return Power(output)

    def set_power(self, node: Node, power: Power) -> None:
        """Request power on or off."""
        self._run(node, power.value)

    def shut_down(self, node: Node) -> None:
        """Request a shutdown of the system."""
        self._run(node, "shutdown")

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Set the device from which the node boots next time."""
        self._run(node, "boot", device.value)

    def _run(self, node: Node, action: str, device: str | None = None) -> str:
        request = {
            "action": action,
            "node": node.name,
            "address": node.address,
            "port": node.port,
            "username": node.username,
            "password": node.password(),
            "device": device,
            "options": {key: value for key, value in node.options.items() if key != "program"},
        }
        try:
            with program.running(_words(node), subprocess.PIPE) as process:
                return self._answer(node, process, json.dumps(request))
        except OSError as error:
            raise Refused(f"{node.name}: its program cannot be run: {error}") from None

    def _answer(self, node: Node, process: "subprocess.Popen[str]", request: str) -> str:
        try:
            output, errors = process.communicate(request, timeout=self._deadline)
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{node.name}: its program took {self._deadline:g} s") from None
        if process.returncode == 0:
            return output
        reason = (errors.strip().splitlines() or ["no reason given"])[-1][:_LONGEST_REASON]
        error_class = Unreachable if process.returncode == _TEMPORARY_FAILURE else Refused
        raise error_class(f"{node.name}: its program exited with {process.returncode}: {reason}")


def _words(node: Node) -> Sequence[str]:
    words = node.options.get("program")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise Refused(f"{node.name}: options.program must be a list of words")
    return words
