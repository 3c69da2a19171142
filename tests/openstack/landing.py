"""The hosts on which a user's servers can land, found by booting servers."""

from collections.abc import Iterable
from typing import Any

from openstack.connection import Connection

from tests.openstack import guests
from tests.openstack.accounts import Account, Project
from tests.support.process import eventually

# The oldest in which an administrator may ask for a host or node that the filters must pass.
_VERSION = "2.74"
_REFUSED = "No valid host was found"


class Lander:
    """Boots servers of the smallest flavor; ``remove`` deletes them."""

    def __init__(self, cloud: Connection) -> None:
        self._cloud = cloud
        self._booted: list[str] = []
        self._flavor, self._image = guests.smallest(cloud)

    def boot(self, account: Account, reservation: str | None = None, **asked: Any) -> str | None:
        """Boot a server; return the compute service it landed on, None if Nova found no host."""
        hints = {"reservation": reservation} if reservation else {}
        return self._landed(self._ask(account, hints, asked))

    def can_get_onto(
        self, project: Project, host: str, reservation: str | None = None, node: str | None = None
    ) -> bool:
        """Return whether a server of the project can boot on a host (or on a node of it).

        Only the administrator may select a host; the filters see no other difference.
        """
        asked = {"hypervisor_hostname": node} if node else {"host": host}
        found = self.boot(project.admin, reservation, **asked)
        assert found in {host, None}
        return found == host

    def can_get_onto_any(
        self, project: Project, hosts: Iterable[str], reservation: str | None = None
    ) -> bool:
        return any(self.can_get_onto(project, host, reservation) for host in hosts)

    def eligible(self, account: Account) -> set[str]:
        """Return all hosts that the scheduler selects for a user without a hint."""
        compute = account.cloud.compute
        unlimited = dict.fromkeys(("instances", "cores", "ram", "server_group_members"), -1)
        self._cloud.compute.update_quota_set(account.project_id, **unlimited)
        group = compute.create_server_group(name="apart", policy="anti-affinity")
        found: set[str] = set()
        try:
            while host := self._landed(self._ask(account, {"group": group.id}, {})):
                found.add(host)
        finally:
            self.remove()
            compute.delete_server_group(group)
        return found

    def remove(self) -> None:
        guests.remove(self._cloud, *self._booted)
        self._booted.clear()

    def _ask(self, account: Account, hints: dict[str, str], asked: dict[str, Any]) -> str:
        size = {"flavorRef": self._flavor, "imageRef": self._image, "networks": "none"}
        body = {"server": {"name": "lander", **size, **asked}, "os:scheduler_hints": hints}
        answer = account.cloud.compute.post("/servers", json=body, microversion=_VERSION)
        assert answer.status_code == 202, answer.text
        self._booted.append(answer.json()["server"]["id"])
        return self._booted[-1]

    def _landed(self, server_id: str) -> str | None:
        server = guests.settled(self._cloud, server_id)
        if server.status == "ACTIVE":
            return str(server.compute_host)
        # Nova writes the fault down a moment after the status.
        fault = eventually(lambda: self._cloud.compute.get_server(server_id).fault, "its fault")
        assert _REFUSED in fault["message"], fault
        return None
