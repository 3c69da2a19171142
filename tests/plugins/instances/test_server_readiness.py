"""The check of servers over the network, with sockets on loopback."""

import contextlib
import ipaddress
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from climate.plugins.base import NotYet
from climate.plugins.instances.cloud import Boot
from climate.plugins.instances.server_readiness import ServerReadiness, accepting

# The check of a port sends no request to Nova.
NOVA = Adapter(Session())
Servers = Mapping[int, Mapping[str, Any]]


@contextlib.contextmanager
def listener(host: str = "127.77.0.1", port: int = 0) -> Iterator[socket.socket]:
    with socket.create_server((host, port), backlog=128) as listening:
        yield listening


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def servers(*addresses: str) -> Servers:
    """Return servers as Nova shows them: each has a private address, and one of these."""
    private = {"addr": "10.0.0.5", "version": 4, "OS-EXT-IPS:type": "fixed"}
    return {
        number: {"id": f"server-{number}", "addresses": {"net": [private, {"addr": address}]}}
        for number, address in enumerate(addresses, 1)
    }


def check(readiness: ServerReadiness, shown: Servers, port: int) -> None:
    boot = Boot(reservation_id="r", name="", amount=len(shown), known=0, server={}, ready_port=port)
    readiness.check(NOVA, boot, shown)


def readiness(network: str = "127.77.0.0/24") -> ServerReadiness:
    return ServerReadiness([ipaddress.ip_network(network)])


def test_only_addresses_that_accept_a_connection_are_open() -> None:
    closed, mute = ipaddress.ip_address("127.77.0.2"), ipaddress.ip_address("127.77.0.3")
    unreachable = ipaddress.ip_address("255.255.255.255")
    with listener() as listening, contextlib.ExitStack() as queued:
        port, opened = port_of(listening), ipaddress.ip_address("127.77.0.1")
        # The kernel drops connections that do not fit the queue, as a firewall does.
        full = queued.enter_context(socket.create_server((str(mute), port), backlog=0))
        for _ in range(3):
            waiting = queued.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        assert accepting([closed, mute, opened, unreachable], port, 0.2) == {opened}
    assert accepting([opened], port, 0.2) == set()


def test_a_server_is_ready_when_one_of_its_addresses_accepts_connections() -> None:
    checks, shown = readiness(), servers("127.77.0.1", "127.77.0.2")
    with listener() as listening:
        port = port_of(listening)
        with pytest.raises(NotYet, match=f"servers 2 of 2 are not ready: .* on port {port}"):
            check(checks, shown, port)
    # The first server is not checked again.
    with listener("127.77.0.2", port):
        check(checks, shown, port)


def test_servers_outside_the_networks_get_no_connection_and_the_same_reason() -> None:
    with listener() as listening:
        port = port_of(listening)
        reasons = set()
        for network, address in (("127.77.1.0/24", "127.77.0.1"), ("127.77.0.0/24", "127.77.0.2")):
            with pytest.raises(NotYet) as caught:
                check(readiness(network), servers(address), port)
            reasons.add(str(caught.value))
        assert len(reasons) == 1
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_many_servers_are_checked_in_several_rounds() -> None:
    checks, shown = readiness(), servers(*(f"127.77.0.{number}" for number in range(1, 71)))
    with listener("0.0.0.0") as listening:  # noqa: S104 - all addresses of the servers
        port = port_of(listening)
        with pytest.raises(NotYet, match="servers 65, 66, 67, 68, 69, 70 of 70"):
            check(checks, shown, port)
        check(checks, shown, port)
