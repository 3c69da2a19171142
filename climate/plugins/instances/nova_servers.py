"""Starts the servers of a reservation in Nova as the lease's user, each exactly once.

Nova may create a server although its answer to climate's request is lost. Therefore climate numbers
the servers of a reservation, and stores the number in each server's metadata. Before climate starts
a server, it searches for existing servers with that number, and deletes all but one of them. It
also deletes a server that Nova could not build; the next attempt starts that server again.
"""

from collections.abc import Sequence
from typing import Any

from keystoneauth1.adapter import Adapter
from oslo_config.cfg import ConfigOpts

from climate.config.provisioning import check_networks
from climate.plugins.base import NotYet
from climate.plugins.instances.cloud import Boot
from climate.plugins.instances.server_readiness import Server, ServerReadiness
from climate.plugins.instances.server_schema import MARK, NUMBER
from climate.plugins.openstack import session
from climate.plugins.openstack.session import NOVA, answers
from climate.plugins.openstack.trusts import DeadTrust, Trusts

_PAGE = 1_000


class BootFailed(RuntimeError):
    """Raised if Nova could not build some servers; the message has their names and the reasons."""


class NovaServers:
    """Starts servers in Nova as the user who created a Keystone trust."""

    def __init__(self, conf: ConfigOpts) -> None:
        self._conf = conf
        self._trusts = Trusts(conf)
        self._readiness = ServerReadiness(check_networks(conf))

    def boot(self, trust_id: str | None, boot: Boot) -> list[str]:
        """Start the servers with the numbers ``boot.known`` + 1 to ``boot.amount``.

        Returns the servers' ids in this order. Raises

        - NotYet while Nova builds servers, or while they are not ready,
        - BootFailed if Nova could not build a server,
        - DeadTrust if there is no valid trust,
        - BackendUnavailable if a request fails.
        """
        if trust_id is None:
            raise DeadTrust("The lease has no trust: any change by its user creates one")
        numbers = range(boot.known + 1, boot.amount + 1)
        if not numbers:
            return []
        nova = session.adapter(self._conf, self._trusts.session(trust_id), "nova", NOVA)
        with answers():
            present = _by_number(nova, boot.reservation_id)
            chosen = {number: _select(nova, present.get(number, [])) for number in numbers}
            for number, server in chosen.items():
                if server is None:
                    nova.post("/servers", json={"server": request(boot, number)})
            failed = [each for each in chosen.values() if each is not None and _has_failed(each)]
            for server in failed:
                nova.delete(f"/servers/{server['id']}")
        if failed:
            raise BootFailed("; ".join(f"{each['name']}: {_fault(each)}" for each in failed))
        if missing := [str(number) for number, each in chosen.items() if not _was_built(each)]:
            raise NotYet(f"servers {', '.join(missing)} of {boot.amount} are being built")
        servers = {number: each for number, each in chosen.items() if each is not None}
        self._readiness.check(nova, boot, servers)
        return [each["id"] for each in servers.values()]


def request(boot: Boot, number: int) -> dict[str, Any]:
    """Return the body of Nova's request that starts the server with this number (from 1). Pure."""
    given = {name: value for name, value in boot.server.items() if value is not None}
    name = given.get("name") or boot.name
    mark = {MARK: boot.reservation_id, NUMBER: str(number)}
    return {
        **given,
        "name": name if boot.amount == 1 else f"{name}-{number}",
        "flavorRef": boot.reservation_id,
        "metadata": {**given.get("metadata", {}), **mark},
    }


def _by_number(nova: Adapter, reservation_id: str) -> dict[int, list[Server]]:
    query = {"flavor": reservation_id, "limit": _PAGE}
    servers: dict[int, list[Server]] = {}
    for server in nova.get("/servers/detail", params=query).json()["servers"]:
        number = server["metadata"].get(NUMBER, "")
        if server["metadata"].get(MARK) == reservation_id and number.isdecimal():
            servers.setdefault(int(number), []).append(server)
    return servers


def _select(nova: Adapter, servers: Sequence[Server]) -> Server | None:
    """Return the best of several servers with the same number; delete the others.

    Nova may have created duplicates. Returns None if there is no server.
    """
    ordered = sorted(servers, key=_rank)
    for other in ordered[1:]:
        nova.delete(f"/servers/{other['id']}")
    return next(iter(ordered), None)


def _rank(server: Server) -> tuple[bool, bool, bool, str]:
    """Return a sort key for servers with the same number; the best server comes first.

    The order is: servers that Nova has built, servers that Nova may still build, failed servers. In
    each of these groups, servers that Nova is deleting come last, and older ones come first.
    """
    return not _was_built(server), _has_failed(server), _is_leaving(server), server["created"]


def _was_built(server: Server | None) -> bool:
    """Return whether Nova has finished building a server, even if the server has failed since.

    If there is no server (None), return False.
    """
    return server is not None and server.get("OS-SRV-USG:launched_at") is not None


def _has_failed(server: Server) -> bool:
    has_error = server["status"] == "ERROR" and not _is_leaving(server)
    return has_error and not _was_built(server)


def _is_leaving(server: Server) -> bool:
    """Return whether Nova is deleting a server."""
    return server.get("OS-EXT-STS:task_state") == "deleting"


def _fault(server: Server) -> str:
    return str(server.get("fault", {}).get("message", "Nova gives no reason"))
