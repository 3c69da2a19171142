"""Fixtures for tests against a real OpenStack: the testbed, or the cloud of the OS_* variables."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.exceptions import ClientException
from openstack.compute.v2.server import Server
from openstack.connection import Connection

from tests.openstack import guests, traces
from tests.openstack.accounts import Account, Project, temporary_project
from tests.openstack.addresses import Public, temporary_network
from tests.openstack.deployment import Deployment, deployed
from tests.openstack.landing import Lander
from tests.openstack.proxy import FaultyProxy
from tests.openstack.storage import Base, temporary_volume_type
from tests.support import servers

MakeProject = Callable[[str], Project]
Boot = Callable[..., Server]
Deploy = Callable[..., Deployment]
MakeProxy = Callable[[str | None], FaultyProxy]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, before pytest selects by marker."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.openstack)


@pytest.fixture(scope="session")
def administrator() -> Account:
    """Return the administrator of the cloud; skip (or fail) if no cloud answers."""
    account = Account.of_admin()
    try:
        account.cloud.authorize()
    except ClientException as error:
        servers.absent("openstack", f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return account


@pytest.fixture(scope="session")
def cloud(administrator: Account) -> Connection:
    return administrator.cloud


@pytest.fixture(scope="module")
def project(administrator: Account) -> Iterator[MakeProject]:
    """Return a function that creates projects with users; the module deletes them at its end."""
    with ExitStack() as made:
        yield lambda name: made.enter_context(temporary_project(administrator, name))


@pytest.fixture
def boot(cloud: Connection) -> Iterator[Boot]:
    """Return ``guests.boot``; the test deletes the servers at its end."""
    booted: list[str] = []

    def boot(account: Account, name: str, **options: Any) -> Server:
        server = guests.boot(account, name, **options)
        booted.append(server.id)
        return server

    yield boot
    guests.remove(cloud, *booted)


@pytest.fixture
def deploy(administrator: Account, sqlite_url: str, tmp_path: Path) -> Iterator[Deploy]:
    """Return a function that deploys climate, given isolation, hosts and options."""
    with ExitStack() as made:

        def deploy(
            isolation: str, hosts: Sequence[str] = traces.OURS, **options: object
        ) -> Deployment:
            given = {"database__connection": sqlite_url, **options}
            return made.enter_context(deployed(tmp_path, administrator, isolation, hosts, given))

        yield deploy


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    """Return the project that owns the leases of a module."""
    return project("lab")


@pytest.fixture(scope="module")
def others(project: MakeProject) -> Project:
    return project("others")


@pytest.fixture
def make_proxy() -> Iterator[MakeProxy]:
    """Return a function that puts a proxy in front of an endpoint."""
    with ExitStack() as proxies:
        yield lambda endpoint: proxies.enter_context(FaultyProxy(str(endpoint)))


@pytest.fixture
def nova(cloud: Connection, make_proxy: MakeProxy) -> FaultyProxy:
    return make_proxy(cloud.compute.get_endpoint())


@pytest.fixture
def neutron(cloud: Connection, make_proxy: MakeProxy) -> FaultyProxy:
    return make_proxy(cloud.session.get_endpoint(service_type="network"))


@pytest.fixture
def cinder(cloud: Connection, make_proxy: MakeProxy) -> FaultyProxy:
    return make_proxy(cloud.session.get_endpoint(service_type="block-storage"))


@pytest.fixture
def public(administrator: Account, lab: Project) -> Iterator[Public]:
    """Return an external network that the project ``lab`` can reach."""
    with temporary_network(administrator.cloud, lab.id) as network:
        yield network


@pytest.fixture
def base(administrator: Account) -> Iterator[Base]:
    """Return a private volume type."""
    with temporary_volume_type(administrator.cloud) as volume_type:
        yield volume_type


@pytest.fixture
def lander(cloud: Connection) -> Iterator[Lander]:
    """Return a Lander; the test deletes its servers at its end."""
    made = Lander(cloud)
    yield made
    made.remove()
