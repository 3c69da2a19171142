"""Power by an operator's own program, for whatever no driver of ours reaches.

The program is started once per question, with a JSON object on its standard input::

    {"action": "power" | "on" | "off" | "shutdown" | "boot", "node": "compute-17",
     "address": "10.1.0.17", "port": 623, "username": "climate", "password": "...",
     "device": "pxe", "options": {...}}

To ``power`` it prints ``on`` or ``off``. It ends with 0 if that was done; with 75 (EX_TEMPFAIL of
sysexits.h) if it can be tried again; with anything else if not, and the last line of its standard
error says why. To ``shutdown`` it asks the system to end by itself; if it cannot, the power is cut.
It must do the same when it is asked twice.
"""

import json
import os
import signal
import subprocess
from collections.abc import Sequence

from climate.provisioner.nodes import Node
from climate.provisioner.power.driver import BootDevice, Power, Refused, Unreachable

_DEADLINE = 60.0
_TRY_AGAIN = 75
_LONGEST_REASON = 300


class Command:
    """Nodes that a program reaches. ``options``: ``program``, a list of words, and its own."""

    def __init__(self, deadline: float = _DEADLINE) -> None:
        """Give each question so many seconds; then the program and what it started are ended."""
        self._deadline = deadline

    def power(self, node: Node) -> Power:
        """Return whether the node has power."""
        said = self._run(node, "power").strip().lower()
        if said not in set(Power):
            raise Refused(f"{node.name}: its program must print on or off, and printed {said!r}")
        return Power(said)

    def set_power(self, node: Node, wanted: Power) -> None:
        """Ask for power or none."""
        self._run(node, wanted.value)

    def shut_down(self, node: Node) -> None:
        """Ask the system to end."""
        self._run(node, "shutdown")

    def boot_from(self, node: Node, device: BootDevice) -> None:
        """Set the device of the next boot."""
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
            "options": {key: one for key, one in node.options.items() if key != "program"},
        }
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's choice, and no shell
                _program(node),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise Refused(f"{node.name}: its program cannot be run: {error}") from None
        with process:
            return self._answer(node, process, json.dumps(request))

    def _answer(self, node: Node, process: "subprocess.Popen[str]", request: str) -> str:
        try:
            said, complaint = process.communicate(request, timeout=self._deadline)
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{node.name}: its program took {self._deadline:g} s") from None
        finally:
            _end(process)
        if process.returncode == 0:
            return said
        reason = (complaint.strip().splitlines() or ["no reason given"])[-1][:_LONGEST_REASON]
        refusal = Unreachable if process.returncode == _TRY_AGAIN else Refused
        raise refusal(f"{node.name}: its program ended with {process.returncode}: {reason}")


def _program(node: Node) -> Sequence[str]:
    words = node.options.get("program")
    if not isinstance(words, list) or not words or not all(isinstance(one, str) for one in words):
        raise Refused(f"{node.name}: options.program must be a list of words")
    return words


def _end(process: "subprocess.Popen[str]") -> None:
    """End what is left of a program, and what it started: they are a process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
