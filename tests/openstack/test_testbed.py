"""The assumptions of the other tests about the cloud and its fixtures."""

from collections.abc import Callable, Iterator

import pytest
from openstack.connection import Connection

from tests.openstack import guests
from tests.openstack.accounts import ROLES, Account, temporary_project
from tests.openstack.conftest import Boot, MakeProject
from tests.support import servers

MakeAggregate = Callable[..., None]

# On these, the tests of climate itself do nothing.
CLOSED, ONE_PROJECT = "fake07", "fake08"


@pytest.fixture
def testbed(cloud: Connection) -> None:
    """Skip tests of the testbed on any other cloud."""
    known = {item.host for item in cloud.compute.services(binary="nova-compute")}
    if not {CLOSED, ONE_PROJECT, "multi01"} <= known:
        servers.absent("openstack", "this is not the testbed: it lacks its hosts")


@pytest.fixture
def aggregate(cloud: Connection) -> Iterator[MakeAggregate]:
    """Return a function that creates aggregates of one host; the test deletes them at its end."""
    compute = cloud.compute
    made = []

    def make(name: str, host: str, **metadata: str) -> None:
        aggregate = compute.create_aggregate(name=name)
        made.append((aggregate, host))
        compute.set_aggregate_metadata(aggregate, metadata)
        compute.add_host_to_aggregate(aggregate, host)

    yield make
    for aggregate, host in made:
        compute.remove_host_from_aggregate(aggregate, host)
        compute.delete_aggregate(aggregate)


def test_a_server_boots_and_is_deleted(
    project: MakeProject, boot: Boot, administrator: Account, cloud: Connection
) -> None:
    server = boot(project("boots").member, "guest")
    assert server.status == "ACTIVE"
    assert guests.host_of(administrator, server) is not None
    guests.remove(cloud, server.id)
    assert guests.is_gone(cloud, server.id)


@pytest.mark.parametrize("role", ROLES)
def test_a_project_has_a_user_of_each_role(project: MakeProject, role: str) -> None:
    made = project("roles")
    account = getattr(made, role)
    access = account.cloud.session.auth.get_access(account.cloud.session)
    assert access.project_id == made.id == account.project_id
    assert role in access.role_names


def test_a_temporary_project_is_deleted_with_its_users(
    administrator: Account, cloud: Connection
) -> None:
    with temporary_project(administrator, "passes") as made:
        assert cloud.identity.find_project(made.id)
    assert not cloud.identity.find_project(made.id)
    assert not list(cloud.identity.users(name=f"{made.name}-reader"))


def test_one_service_has_several_nodes(testbed: None, cloud: Connection) -> None:
    nodes = cloud.compute.hypervisors(details=True)
    several = {node.name for node in nodes if node.service_details["host"] == "multi01"}
    assert several == {"bm-01", "bm-02", "bm-03"}


def test_a_host_in_the_free_pool_is_closed_as_isolation_blazar_needs(
    testbed: None, project: MakeProject, boot: Boot, cloud: Connection
) -> None:
    admin = project("pool").admin
    pool = cloud.compute.find_aggregate("freepool")
    cloud.compute.add_host_to_aggregate(pool, CLOSED)
    try:
        refused = boot(admin, "guest", host=CLOSED)
    finally:
        cloud.compute.remove_host_from_aggregate(pool, CLOSED)
    assert refused.status == "ERROR"
    assert boot(admin, "guest", host=CLOSED).status == "ACTIVE"


def test_a_host_admits_one_project_as_isolation_tenancy_needs(
    testbed: None, project: MakeProject, boot: Boot, aggregate: MakeAggregate
) -> None:
    ours, theirs = project("ours"), project("theirs")
    aggregate(ours.name, ONE_PROJECT, filter_tenant_id=ours.id)
    assert boot(theirs.admin, "guest", host=ONE_PROJECT).status == "ERROR"
    assert boot(ours.admin, "guest", host=ONE_PROJECT).status == "ACTIVE"
