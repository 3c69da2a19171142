"""A single node of a compute service with three nodes is reserved for one project."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from openstack.connection import Connection
from openstack.exceptions import BadRequestException

from climate.config import registry as config_registry
from climate.core.errors import Conflict
from climate.plugins.hosts.nova import NovaCloud
from tests.openstack import guests, settings
from tests.openstack.accounts import Account, Project
from tests.support import servers
from tests.support.process import write_config

SERVICE, NODE = "multi01", "bm-02"
HOST = f"{SERVICE}/{NODE}"


@pytest.fixture
def nova(administrator: Account, tmp_path: Path, request: pytest.FixtureRequest) -> NovaCloud:
    """Return the cloud in the mode of the parameter, or tenancy; skip if it has no such node."""
    isolation = getattr(request, "param", "tenancy")
    options = {**settings.options(administrator, isolation), "nova__server_delete_wait": "60"}
    made = config_registry.new()
    path = write_config(tmp_path / "climate.conf", **options)
    config_registry.load(made, "test", ["--config-file", str(path)])
    nova = NovaCloud(made, nullcontext)
    if HOST not in {found.external_id for found in nova.hosts()}:
        servers.absent("openstack", f"this cloud has no {HOST}")
    return nova


@pytest.fixture
def pool(nova: NovaCloud) -> Iterator[str]:
    """Return the name of a pool; release its node at the end."""
    name = str(uuid.uuid4())
    yield name
    for host in nova.pool_hosts(name):
        nova.delete_servers(name, host)
        nova.remove_host(name, host)
    nova.delete_pool(name)
    nova.withdraw(HOST)


@pytest.fixture
def large(cloud: Connection) -> Iterator[str]:
    """Return a flavor that fits on a node once."""
    flavor = cloud.compute.create_flavor(name=f"large-{uuid.uuid4()}", vcpus=1, ram=40960, disk=1)
    yield flavor.id
    cloud.compute.delete_flavor(flavor)


def unlimited(cloud: Connection, made: Project) -> Project:
    """Raise the quota of a project: a node is larger than the default quota."""
    cloud.set_compute_quotas(made.id, ram=-1, cores=-1, instances=-1)
    return made


@pytest.mark.parametrize("nova", ["tenancy", "blazar"], indirect=True)
def test_only_the_owner_boots_on_a_reserved_node(
    nova: NovaCloud, pool: str, large: str, cloud: Connection, project: Callable[[str], Project]
) -> None:
    mine, theirs = (unlimited(cloud, project(name)) for name in ("node-mine", "node-theirs"))
    administrator = Account.of_admin()
    nova.enroll(HOST)
    nova.ensure_pool(pool, mine.id)
    nova.add_host(pool, HOST)
    inside = guests.boot(mine.member, "inside", flavor_id=pool)
    assert inside.status == "ACTIVE", inside.fault
    assert guests.host_of(administrator, inside) == (SERVICE, NODE)
    # Others do not see the flavor, and other flavors find no free memory on the node.
    with pytest.raises(BadRequestException, match="could not be found"):
        guests.boot(theirs.member, "outside", flavor_id=pool)
    others = [
        guests.boot(theirs.admin, f"outside-{number}", flavor_id=large, host=SERVICE)
        for number in range(3)
    ]
    landed = {guests.host_of(administrator, server) for server in others}
    guests.remove(cloud, *(server.id for server in others))
    assert landed == {(SERVICE, "bm-01"), (SERVICE, "bm-03"), None}
    # The end: no server is left, and the node stays closed until it is withdrawn.
    nova.close_pool(pool)
    nova.delete_servers(pool, HOST)
    nova.remove_host(pool, HOST)
    nova.delete_pool(pool)
    assert guests.is_gone(cloud, inside.id)
    assert HOST in nova.free_hosts()
    assert nova.pool_hosts(pool) == []


def test_a_service_is_reserved_as_a_whole_or_by_node(nova: NovaCloud, pool: str) -> None:
    nova.enroll(HOST)
    with pytest.raises(Conflict, match=f"its nodes {HOST} are registered"):
        nova.enroll(SERVICE)
    assert SERVICE not in nova.free_hosts()
    nova.withdraw(HOST)
    nova.enroll(SERVICE)
    try:
        with pytest.raises(Conflict, match="registered as a whole"):
            nova.enroll(HOST)
        assert HOST not in nova.free_hosts()
    finally:
        nova.withdraw(SERVICE)


def test_a_node_in_use_cannot_be_closed(
    nova: NovaCloud, pool: str, administrator: Account, cloud: Connection
) -> None:
    server = guests.boot(administrator, "in the way", availability_zone=f"nova:{SERVICE}:{NODE}")
    try:
        with pytest.raises(Conflict, match="because it is in use"):
            nova.enroll(HOST)
        assert HOST not in nova.free_hosts()
    finally:
        guests.remove(cloud, server.id)
