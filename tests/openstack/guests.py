"""Servers that tests boot on any cloud: the smallest flavor, any image, no network."""

from functools import partial
from typing import Any

from openstack.compute.v2.server import Server
from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from tests.openstack.accounts import Account
from tests.support.process import eventually

# A fake host takes a second for it, a real one a minute.
_PATIENCE = 90.0
_SETTLED = {"ACTIVE", "ERROR"}


def boot(account: Account, name: str, **options: Any) -> Server:
    """Boot a server, wait until it is ACTIVE or in ERROR, and return it.

    ``options`` are those of the SDK's ``create_server``: ``scheduler_hints``, ``host``.
    """
    flavor_id, image_id = smallest(account.cloud)
    options = {"flavor_id": flavor_id, "image_id": image_id, "networks": "none", **options}
    return settled(account.cloud, account.cloud.compute.create_server(name=name, **options).id)


def smallest(cloud: Connection) -> tuple[str, str]:
    """Return the ids of the smallest public flavor and of an image."""
    public = cloud.compute.flavors(is_public=True)
    flavor = min(public, key=lambda one: (one.ram, one.vcpus, one.disk))
    image = next(iter(cloud.image.images(status="active")))
    return flavor.id, image.id


def settled(cloud: Connection, server_id: str) -> Server:
    """Wait until the server is ACTIVE or in ERROR, and return it."""

    def found() -> Server | None:
        server = cloud.compute.get_server(server_id)
        return server if server.status in _SETTLED else None

    server = eventually(found, f"server {server_id} is ACTIVE or in ERROR", _PATIENCE)
    assert server is not None
    return server


def host_of(administrator: Account, server: Server) -> tuple[str, str] | None:
    """Return the (service host, node) of a server; None if Nova found no host."""
    seen = administrator.cloud.compute.get_server(server.id)
    return (seen.compute_host, seen.hypervisor_hostname) if seen.compute_host else None


def service_of(administrator: Account, server: Server) -> str:
    """Return the service host of a server that must have one."""
    found = host_of(administrator, server)
    assert found is not None, f"Nova found no host for server {server.id}"
    return found[0]


def is_gone(cloud: Connection, server_id: str) -> bool:
    try:
        cloud.compute.get_server(server_id)
    except NotFoundException:
        return True
    return False


def remove(cloud: Connection, *server_ids: str) -> None:
    """Delete servers, and wait until Nova does not know them."""
    for server_id in server_ids:
        cloud.compute.delete_server(server_id)
    for server_id in server_ids:
        eventually(partial(is_gone, cloud, server_id), f"server {server_id} is gone")
