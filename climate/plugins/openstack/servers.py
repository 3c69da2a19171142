"""Servers on a host: list them, delete them, and keep images of servers that will be deleted.

Nova lists a server on a host when the host has accepted it, which is some time after the scheduler
chose the host. Its allocation in Placement exists from that choice on, so the code reads both.
"""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from keystoneauth1.adapter import Adapter
from novaclient import exceptions as refusals

# The kind of consumer that holds a closed node: nobody's server.
HOLD = "RESERVATION"
_NODE = "OS-EXT-SRV-ATTR:hypervisor_hostname"
_PAGE = 500
_PAUSE = 0.2


class Occupants:
    """Looks for them, and removes them. Raises what the clients raise."""

    def __init__(self, nova: Any, placement: Adapter) -> None:  # noqa: ANN401 - novaclient's
        """Work with these two ways into the cloud."""
        self._nova = nova
        self._placement = placement

    def hypervisors(self) -> list[Any]:
        """Return all nodes; Nova answers with a thousand at most at a time."""
        found: list[Any] = []
        while page := self._nova.hypervisors.list(
            detailed=True, marker=found[-1].id if found else None, limit=_PAGE
        ):
            found += page
        return found

    def servers(self, host: str) -> list[Any]:
        """Return the servers of all projects on a service, or on one node of it."""
        service, _, node = host.partition("/")
        options = {"host": service, "all_tenants": True}
        found = self._nova.servers.list(search_opts=options, limit=-1)
        return [server for server in found if node in {"", getattr(server, _NODE)}]

    def on(self, host: str) -> list[str]:
        """Return the ids of the servers on a host, and of those that are on their way to it."""
        service, _, node = host.partition("/")
        found = {server.id for server in self.servers(host)}
        for one in self.hypervisors():
            if one.service["host"] == service and node in {"", one.hypervisor_hostname}:
                found.update(self._consumers(one.id))
        return sorted(found)

    def after(self, seconds: float, host: str) -> list[str]:
        """Return who is still on a host after a while, sooner if nobody is: deletions take time."""
        until = time.monotonic() + seconds
        while (left := self.on(host)) and time.monotonic() < until:
            time.sleep(_PAUSE)
        return left

    def delete(self, server_ids: Iterable[str]) -> None:
        """Have servers deleted at once, also where deletion is put off or was asked for before.

        One that was moved away, but whose owner may still take that back, is left there for good.
        """
        for server_id in server_ids:
            try:
                self._nova.servers.force_delete(server_id)
            except refusals.NotFound:
                self._confirm(server_id)

    def _confirm(self, migration: str) -> None:
        """Confirm a resize, which is what holds the place that a server came from."""
        for one in self._nova.migrations.list(status="finished"):
            if one.uuid == migration:
                # Its owner may have decided at this moment.
                with suppress(refusals.NotFound, refusals.BadRequest, refusals.Conflict):
                    self._nova.servers.confirm_resize(one.instance_uuid)

    def _consumers(self, provider: str) -> list[str]:
        """Return who has allocations on a node's provider."""
        path = f"/resource_providers/{provider}/allocations"
        found = self._placement.get(path, raise_exc=False).json().get("allocations", {})
        return [
            consumer
            for consumer in found
            if self._placement.get(f"/allocations/{consumer}").json().get("consumer_type") != HOLD
        ]


_KEPT = {"active", "importing", "queued", "saving", "uploading"}
# The states of servers, as Nova calls them, in which it makes images of them.
_IMAGED = {"active", "paused", "stopped", "suspended"}
_PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}


def can_be_kept(server: Any) -> bool:  # noqa: ANN401 - novaclient's
    """Tell whether Nova makes images of a server in such a state, or is at it or at its end."""
    return is_busy(server) or getattr(server, "OS-EXT-STS:vm_state") in _IMAGED


def is_busy(server: Any) -> bool:  # noqa: ANN401 - novaclient's
    """Tell whether Nova is at a server, to make an image of it, for instance."""
    return getattr(server, "OS-EXT-STS:task_state", None) is not None


def keep_image(
    images: Adapter,
    server: Any,  # noqa: ANN401 - novaclient's
    occasion: str,
) -> bool:
    """Make an image ``reserved_<name>`` of a server, once for an occasion, and its project's.

    Nova makes it for whoever asks, and that is us; an interrupted call is completed by the next.
    Return whether it is saved, or Nova, at it no more, left it unsaved.
    """
    mark = {"climate_server": server.id, "climate_occasion": occasion}
    # Anyone can put our marks on an own image; what Nova makes of a server it marks itself.
    query = {**mark, "instance_uuid": server.id}
    found = [
        image
        for image in images.get("/v2/images", params=query).json()["images"]
        if image["status"] in _KEPT
    ]
    is_new = not found
    if is_new:
        found = [{"id": server.create_image(f"reserved_{server.name}", mark)}]
    for image in found:
        if image.get("owner") != server.tenant_id:
            change = [{"op": "replace", "path": "/owner", "value": server.tenant_id}]
            images.patch(f"/v2/images/{image['id']}", json=change, headers=_PATCH)
    saved = any(image.get("status") == "active" for image in found)
    return saved or not (is_new or is_busy(server))
