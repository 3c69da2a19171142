"""Checks whether the servers that climate boots are ready: by their console, and over the network.

A manager repeats the checks, about once a second, until all servers of a reservation have passed
them. A server that has passed a check once is not checked again.
"""

import errno
import selectors
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

from keystoneauth1.adapter import Adapter

from climate.core.notifications.subscription import Address, Network
from climate.plugins.base import NotYet
from climate.plugins.instances.cloud import Boot
from climate.plugins.instances.server_addresses import checkable
from climate.plugins.openstack import session

# Lines of a console that climate reads: the login prompt may be above later messages of the kernel.
_LINES = 200
# Seconds that one check waits for all connections: the worker does nothing else in this time. The
# kernel would send a lost packet again only after a second; instead, the next check connects again.
_CONNECT_TIME = 0.5
# Connections of one check. All servers must be ready, so the check can begin with the first ones.
_MOST_CONNECTIONS = 64
Server = Mapping[str, Any]


class ServerReadiness:
    """Checks servers of Nova, and remembers what they have passed."""

    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks
        # Pairs of the id of a server and the text or port, until all servers of their reservation
        # are ready.
        self._passed: set[tuple[str, str | int]] = set()

    def check(self, nova: Adapter, boot: Boot, servers: Mapping[int, Server]) -> None:
        """Raise NotYet while servers, by number, are not as the user requires.

        The port of a server counts only after its console has shown the text.
        """
        new = {n: each for n, each in servers.items() if each["id"] not in boot.booted}
        if boot.ready_text:
            self._check_consoles(nova, boot, new)
        if boot.ready_port:
            self._check_ports(boot, boot.ready_port, new)
        for server in servers.values():
            passed = {(server["id"], boot.ready_text), (server["id"], boot.ready_port or 0)}
            self._passed.difference_update(passed)

    def _check_consoles(self, nova: Adapter, boot: Boot, servers: Mapping[int, Server]) -> None:
        missing = []
        for number, server in servers.items():
            key = (server["id"], boot.ready_text)
            if key in self._passed or boot.ready_text in _console(nova, server["id"]):
                self._passed.add(key)
            else:
                missing.append(str(number))
        if missing:
            raise NotYet(
                f"servers {', '.join(missing)} of {boot.amount} have not booted: their consoles do"
                f" not show {boot.ready_text!r}"
            )

    def _check_ports(self, boot: Boot, port: int, servers: Mapping[int, Server]) -> None:
        """Raise NotYet while servers have no address that accepts a connection on the port.

        The message is the same if climate may not connect to an address: it says nothing about the
        network.
        """
        closed = {n: each for n, each in servers.items() if (each["id"], port) not in self._passed}
        addresses: dict[int, list[Address]] = {}
        for number, server in closed.items():
            allowed = checkable(addresses_of(server), self._networks)
            if sum(map(len, addresses.values())) + len(allowed) <= _MOST_CONNECTIONS:
                addresses[number] = allowed
        accepted = accepting(list(chain.from_iterable(addresses.values())), port)
        for number, allowed in addresses.items():
            if not accepted.isdisjoint(allowed):
                self._passed.add((closed.pop(number)["id"], port))
        if closed:
            numbers = ", ".join(map(str, closed))
            raise NotYet(
                f"servers {numbers} of {boot.amount} are not ready: none of their addresses that"
                f" climate may check accepts a connection on port {port}"
            )


def _console(nova: Adapter, server_id: str) -> str:
    """Return the last lines of the console of a server; empty if the server has none yet."""
    path, body = f"/servers/{server_id}/action", {"os-getConsoleOutput": {"length": _LINES}}
    answer = session.send(nova, "Nova", "POST", path, json=body, allowed=(404, 409))
    return str(answer.json().get("output") or "")


def addresses_of(server: Server) -> list[str]:
    """Return the fixed and floating IP addresses of a server, as Nova reports them. Pure."""
    networks = server.get("addresses") or {}
    return [str(each.get("addr")) for network in networks.values() for each in network]


def accepting(
    addresses: Collection[Address], port: int, seconds: float = _CONNECT_TIME
) -> set[Address]:
    """Return those addresses that accept a TCP connection on the port within this time.

    Connects to all of them at the same time, sends nothing, and closes the connections.
    """
    deadline, accepted = time.monotonic() + seconds, set()
    with ExitStack() as opened, selectors.DefaultSelector() as selector:
        for address in addresses:
            if connection := _connect(address, port):
                opened.enter_context(connection)
                selector.register(connection, selectors.EVENT_WRITE, (address, connection))
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                address, connection = selector.unregister(key.fileobj).data
                if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    accepted.add(address)
    return accepted


def _connect(address: Address, port: int) -> socket.socket | None:
    """Begin a connection, and do not wait for it; return None if that is not possible."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6  # noqa: PLR2004 - IPv4
    try:
        connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        return None
    if connection.connect_ex((str(address), port)) in {0, errno.EINPROGRESS}:
        return connection
    connection.close()
    return None
