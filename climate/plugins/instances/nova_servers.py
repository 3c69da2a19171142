"""Servers that are booted in Nova as a lease's user, so many of a reservation, each once.

Nova makes a server whether or not its answer arrives, so servers carry the number that they are
of their reservation, and are looked for before one is booted. Should there be two of a number,
one goes. A server that could not be booted is deleted, and booted again by the next attempt.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from keystoneauth1.adapter import Adapter
from oslo_config.cfg import ConfigOpts

from climate.plugins.base import NotYet
from climate.plugins.instances.cloud import Boot
from climate.plugins.instances.server_schema import MARK, NUMBER
from climate.plugins.openstack import session
from climate.plugins.openstack.session import NOVA, answers
from climate.plugins.openstack.trusts import DeadTrust, Trusts

_PAGE = 1_000
Server = Mapping[str, Any]


class NotBooted(RuntimeError):
    """Nova has no server, but a reason why."""


class NovaServers:
    """Boots as whoever trusts us."""

    def __init__(self, conf: ConfigOpts) -> None:
        """Prepare; nothing is sent yet. Raises Misconfigured."""
        self._conf = conf
        self._trusts = Trusts(conf)

    def boot(self, trust_id: str | None, boot: Boot) -> list[str]:
        """Have all servers, and return the ids of those that were not known, by number.

        Raises NotYet while they are being built, NotBooted, DeadTrust, BackendUnavailable.
        """
        if trust_id is None:
            raise DeadTrust("The lease has no trust: any change of it by its user makes one")
        numbers = range(boot.known + 1, boot.amount + 1)
        if not numbers:
            return []
        nova = session.adapter(self._conf, self._trusts.session(trust_id), "nova", NOVA)
        with answers():
            present = _by_number(nova, boot.reservation_id)
            chosen = {number: _one(nova, present.get(number, [])) for number in numbers}
            for number, server in chosen.items():
                if server is None:
                    nova.post("/servers", json={"server": request(boot, number)})
            failed = [one for one in chosen.values() if one is not None and _has_failed(one)]
            for one in failed:
                nova.delete(f"/servers/{one['id']}")
        if failed:
            raise NotBooted("; ".join(f"{one['name']}: {_fault(one)}" for one in failed))
        if missing := [str(number) for number, one in chosen.items() if not _is_there(one)]:
            raise NotYet(f"servers {', '.join(missing)} of {boot.amount} are being built")
        return [one["id"] for one in chosen.values() if one is not None]


def request(boot: Boot, number: int) -> dict[str, Any]:
    """Return what Nova is asked for the server of a number (from 1). Pure."""
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
    """Return the servers that were booted for a reservation, and are not gone."""
    query = {"flavor": reservation_id, "limit": _PAGE}
    found: dict[int, list[Server]] = {}
    for server in nova.get("/servers/detail", params=query).json()["servers"]:
        number = server["metadata"].get(NUMBER, "")
        if server["metadata"].get(MARK) == reservation_id and number.isdecimal():
            found.setdefault(int(number), []).append(server)
    return found


def _one(nova: Adapter, servers: Sequence[Server]) -> Server | None:
    """Return the server of a number, and delete others; None if there is none."""
    ordered = sorted(servers, key=_worth)
    for other in ordered[1:]:
        nova.delete(f"/servers/{other['id']}")
    return next(iter(ordered), None)


def _worth(server: Server) -> tuple[bool, bool, bool, str]:
    """Order servers of one number: what runs first, then what may, the oldest first."""
    return not _is_there(server), _has_failed(server), _is_leaving(server), server["created"]


def _is_there(server: Server | None) -> bool:
    """Tell whether a server was built; what became of it since is its user's business."""
    return server is not None and server.get("OS-SRV-USG:launched_at") is not None


def _has_failed(server: Server) -> bool:
    is_over = server["status"] == "ERROR" and not _is_leaving(server)
    return is_over and not _is_there(server)


def _is_leaving(server: Server) -> bool:
    """Tell whether a server is being deleted; another is booted when it is gone."""
    return server.get("OS-EXT-STS:task_state") == "deleting"


def _fault(server: Server) -> str:
    return str(server.get("fault", {}).get("message", "Nova does not say why"))
