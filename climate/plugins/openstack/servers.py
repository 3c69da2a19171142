"""Lists and deletes the servers on a host, and creates images of servers.

When the scheduler chooses a host for a new server, it allocates capacity of the host in Placement.
Nova lists the server on the host only some time later. Therefore ``HostServers.on`` reads Nova's
list and the allocations.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from keystoneauth1.adapter import Adapter
from novaclient import exceptions as nova_errors

from climate.plugins.base import NotYet
from climate.plugins.openstack.session import answers

# The consumer type of the allocation with which climate closes a node. Its consumer is no server.
HOLD = "RESERVATION"
_NODE = "OS-EXT-SRV-ATTR:hypervisor_hostname"
_PAGE = 500
# Seconds between two requests for the servers that Nova is deleting.
_PAUSE = 0.2


class HostServers:
    """Lists and deletes the servers on a host. Raises the errors of novaclient and keystoneauth.

    A host is a compute service, or a single node with the name ``service/node``.
    """

    def __init__(self, nova: Any, placement: Adapter) -> None:  # noqa: ANN401 - novaclient's
        self._nova = nova
        self._placement = placement

    def hypervisors(self) -> list[Any]:
        """Return all nodes (hypervisors) of the cloud.

        Reads the list page by page, because Nova returns at most a thousand nodes per request.
        """
        nodes: list[Any] = []
        while page := self._nova.hypervisors.list(
            detailed=True, marker=nodes[-1].id if nodes else None, limit=_PAGE
        ):
            nodes += page
        return nodes

    def servers(self, host: str) -> list[Any]:
        """Return the servers of all projects that Nova lists on a host."""
        service, _, node = host.partition("/")
        options = {"host": service, "all_tenants": True}
        servers = self._nova.servers.list(search_opts=options, limit=-1)
        return [server for server in servers if node in {"", getattr(server, _NODE)}]

    def on(self, host: str) -> list[str]:
        """Return the ids of everything that uses a host's capacity, except climate's allocations.

        These are the ids of servers on the host, of servers that Nova builds there or moves there,
        and of migrations. After a resize or cold migration, a migration object uses capacity of the
        server's old host until the user confirms the resize or migration.
        """
        service, _, node = host.partition("/")
        ids = {server.id for server in self.servers(host)}
        for hypervisor in self.hypervisors():
            names = {"", hypervisor.hypervisor_hostname}
            if hypervisor.service["host"] == service and node in names:
                ids.update(self._consumers(hypervisor.id))
        return sorted(ids)

    def remaining_after(self, seconds: float, host: str) -> list[str]:
        """Wait until nothing uses the host, but at most ``seconds``.

        Return the ids of the servers and migrations that still use the host.
        """
        until = time.monotonic() + seconds
        while (remaining := self.on(host)) and time.monotonic() < until:
            time.sleep(_PAUSE)
        return remaining

    def evict(self, find: Callable[[], list[str]], seconds: float, where: str = "") -> None:
        """Delete the servers whose ids ``find`` returns, until ``find`` returns no ids.

        Raises NotYet if servers remain after ``seconds``. ``where`` is a text for the message of
        NotYet.
        """
        until = time.monotonic() + seconds
        while True:
            with answers():
                remaining = find()
                self.delete(remaining)
            if not remaining:
                return
            if time.monotonic() > until:
                raise NotYet(f"servers {', '.join(remaining)}{where} are still being deleted")
            time.sleep(_PAUSE)

    def delete(self, server_ids: Iterable[str]) -> None:
        """Request the immediate deletion of servers, even if Nova is configured to defer deletions.

        An id may also be the id of a migration. If the migration is an unconfirmed resize, confirm
        the resize, which frees the server's previous host.
        """
        for server_id in server_ids:
            try:
                self._nova.servers.force_delete(server_id)
            except nova_errors.NotFound:
                self._confirm(server_id)

    def _confirm(self, migration: str) -> None:
        """Confirm the resize to which a migration belongs, so that the old host becomes free."""
        for record in self._nova.migrations.list(status="finished"):
            if record.uuid == migration:
                # The owner may confirm or revert at the same moment.
                with suppress(nova_errors.NotFound, nova_errors.BadRequest, nova_errors.Conflict):
                    self._nova.servers.confirm_resize(record.instance_uuid)

    def _consumers(self, provider: str) -> list[str]:
        path = f"/resource_providers/{provider}/allocations"
        allocations = self._placement.get(path, raise_exc=False).json().get("allocations", {})
        return [
            consumer
            for consumer in allocations
            if self._placement.get(f"/allocations/{consumer}").json().get("consumer_type") != HOLD
        ]


# The states of images that are saved or being saved.
_SAVED = {"active", "importing", "queued", "saving", "uploading"}
# The vm_states in which Nova creates images of servers.
_SNAPSHOT_STATES = {"active", "paused", "stopped", "suspended"}
_PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}


def can_be_imaged(server: Any) -> bool:  # noqa: ANN401 - novaclient's
    """Return whether Nova can create an image of a server, now or when its current task is done."""
    return is_busy(server) or getattr(server, "OS-EXT-STS:vm_state") in _SNAPSHOT_STATES


def is_busy(server: Any) -> bool:  # noqa: ANN401 - novaclient's
    """Return whether Nova is running a task on a server, for instance creating an image."""
    return getattr(server, "OS-EXT-STS:task_state", None) is not None


def keep_image(
    images: Adapter,
    server: Any,  # noqa: ANN401 - novaclient's
    occasion: str,
) -> bool:
    """Create an image of a server once per ``occasion`` (a text); return whether Nova has finished.

    A repeated call with the same ``occasion`` creates a second image only if the first one failed.
    Nova has finished if the image is saved, or if Nova gave up. Repeat the call until it returns
    True, even after an error. The image has the name ``reserved_<name>``. Nova creates the image in
    climate's project; a second request moves the image to the server's project. ``images`` is a
    client of Glance, which stores images.
    """
    mark = {"climate_server": server.id, "climate_occasion": occasion}
    # Users can put climate's marks on images. Only Nova sets instance_uuid.
    query = {**mark, "instance_uuid": server.id}
    present = [
        image
        for image in images.get("/v2/images", params=query).json()["images"]
        if image["status"] in _SAVED
    ]
    is_new = not present
    if is_new:
        present = [{"id": server.create_image(f"reserved_{server.name}", mark)}]
    for image in present:
        if image.get("owner") != server.tenant_id:
            change = [{"op": "replace", "path": "/owner", "value": server.tenant_id}]
            images.patch(f"/v2/images/{image['id']}", json=change, headers=_PATCH)
    saved = any(image.get("status") == "active" for image in present)
    return saved or not (is_new or is_busy(server))
