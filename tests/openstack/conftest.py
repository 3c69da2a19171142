"""Fixtures for tests against a real OpenStack: that which OS_* variables name, or the testbed.

All tests of this folder are marked ``openstack``, so that ``make test`` leaves them out. They
share one cloud: whatever a test makes there has a name of its own, and is removed.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1.exceptions import ClientException
from openstack.compute.v2.server import Server
from openstack.connection import Connection

from tests.openstack import guests, traces
from tests.openstack.accounts import Account, Project, passing_project
from tests.openstack.deployment import Deployment, deployed
from tests.openstack.landing import Lander
from tests.openstack.nova_proxy import NovaProxy
from tests.support import broker, servers

MakeProject = Callable[[str], Project]
Boot = Callable[..., Server]
Deploy = Callable[..., Deployment]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder, before pytest picks by mark."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.openstack)


@pytest.fixture(scope="session")
def administrator() -> Account:
    """Return the administrator of the cloud; skip (or fail) if there is no cloud."""
    account = Account.of_admin()
    try:
        account.cloud.authorize()
    except ClientException as error:
        servers.absent("openstack", f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return account


@pytest.fixture(scope="session")
def cloud(administrator: Account) -> Connection:
    """Return the cloud as its administrator sees it."""
    return administrator.cloud


@pytest.fixture(scope="module")
def project(administrator: Account) -> Iterator[MakeProject]:
    """Return a maker of projects with users reader, member and admin; they go with the module."""
    with ExitStack() as made:
        yield lambda name: made.enter_context(passing_project(administrator, name))


@pytest.fixture
def boot(cloud: Connection) -> Iterator[Boot]:
    """Return ``guests.boot``; what it boots goes with the test."""
    booted: list[str] = []

    def boot(account: Account, name: str, **options: Any) -> Server:
        server = guests.boot(account, name, **options)
        booted.append(server.id)
        return server

    yield boot
    guests.remove(cloud, *booted)


@pytest.fixture
def deploy(administrator: Account, sqlite_url: str, tmp_path: Path) -> Iterator[Deploy]:
    """Return a maker of one deployment of climate, given isolation, hosts and options."""
    with ExitStack() as made:

        def deploy(
            isolation: str, hosts: Sequence[str] = traces.OURS, **options: object
        ) -> Deployment:
            given = {"database__connection": sqlite_url, **options}
            return made.enter_context(deployed(tmp_path, administrator, isolation, hosts, given))

        yield deploy


@pytest.fixture
def nova(cloud: Connection) -> Iterator[NovaProxy]:
    """Return a way to Nova on which things can go wrong."""
    with NovaProxy(cloud.compute.get_endpoint()) as made:
        yield made


@pytest.fixture
def lander(cloud: Connection) -> Iterator[Lander]:
    """Return what finds out who can land where."""
    made = Lander(cloud)
    yield made
    made.remove()


@pytest.fixture
def topic() -> Iterator[str]:
    """Return a topic at the broker that no other test uses."""
    servers.need("rabbitmq")
    name = f"climate-test-{uuid.uuid4().hex[:12]}"
    yield name
    broker.remove_queue(f"{name}.info")
