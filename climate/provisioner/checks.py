"""Checks whether a node that is powered on is usable. Each check has a timeout.

The ``check`` of a node in the nodes file is a table with a ``kind`` and the keys of this kind:

- ``none``: the node is usable if it has power.
- ``tcp``: it is usable if ``host`` accepts connections at ``port``.
- ``http``: it is usable if ``url`` answers with a status below 400.
- ``command``: it is usable if ``program``, a list of words, exits with 0.
- ``service``: it is usable if the cloud reports it as up, later than it was powered on.
"""

import socket
import subprocess
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import requests

from climate.provisioner import program
from climate.provisioner.client import ApiUnavailable, ClimateClient, NodeTask
from climate.provisioner.nodes import Node

_DEADLINE = 5.0
_COMMAND_DEADLINE = 30.0
_ERRORS = 400


def is_usable(node: Node, task: NodeTask, climate: ClimateClient, since: datetime) -> bool:
    """Return whether a node that was powered on at ``since`` is usable now.

    Only the check ``service`` uses ``task`` and ``climate``: it requests from climate whether the
    cloud reports the task's host as up.
    """
    kind = node.check.get("kind", "none")
    if kind == "service":
        try:
            return climate.is_up(task.resource_id, since)
        except ApiUnavailable:
            return False
    return _CHECKS[kind](node.check)


def _tcp(check: Mapping[str, Any]) -> bool:
    try:
        socket.create_connection((check["host"], check["port"]), _DEADLINE).close()
    except OSError:
        return False
    return True


def _http(check: Mapping[str, Any]) -> bool:
    try:
        # Read the headers only: a slow body must not delay the check.
        with requests.get(check["url"], timeout=_DEADLINE, stream=True) as response:
            return response.status_code < _ERRORS
    except (requests.RequestException, ValueError):
        return False


def _command(check: Mapping[str, Any]) -> bool:
    try:
        with program.running(check["program"], subprocess.DEVNULL) as process:
            return process.wait(_COMMAND_DEADLINE) == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "none": lambda _: True,
    "tcp": _tcp,
    "http": _http,
    "command": _command,
}
