"""When a node that has power can be used: what is looked at, each look with a deadline of its own.

A node's ``check`` is a table: ``kind`` and what that needs. ``none``: it can be used when it has
power. ``tcp``: something listens at ``host`` and ``port``. ``http``: ``url`` answers with a status
below 400. ``command``: ``program``, a list of words, ends with 0. ``service``: the cloud says that
the host is up, as climate has seen it since the node was switched on.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import requests

from climate.provisioner.client import ApiUnavailable, ClimateClient, NodeTask
from climate.provisioner.nodes import Node

_DEADLINE = 5.0
_COMMAND_DEADLINE = 30.0
_ERRORS = 400


def is_usable(node: Node, wanted: NodeTask, climate: ClimateClient, since: datetime) -> bool:
    """Tell whether a node that was switched on at ``since`` can be used now."""
    kind = node.check.get("kind", "none")
    if kind == "service":
        try:
            return climate.is_up(wanted.resource_id, since)
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
        # The headers are enough; who sends the rest byte by byte keeps nobody.
        with requests.get(check["url"], timeout=_DEADLINE, stream=True) as response:
            return response.status_code < _ERRORS
    except (requests.RequestException, ValueError):
        return False


def _command(check: Mapping[str, Any]) -> bool:
    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's choice, and no shell
            check["program"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    with process:
        try:
            return process.wait(_COMMAND_DEADLINE) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End what is left of a program, and what it started: they are a process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "none": lambda _: True,
    "tcp": _tcp,
    "http": _http,
    "command": _command,
}
