"""A service where Heat looks for it, and stacks that go with their test.

Heat finds us in the catalog, so we listen where that says; on a cloud whose catalog says some
other machine there is nothing to be tested here.
"""

import os
import socket
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.openstack import settings, traces
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import MakeProject
from tests.openstack.heat import HOST, HOSTS, ISOLATION, until_gone
from tests.openstack.stacks import Stack
from tests.openstack.templates import Template
from tests.support import servers
from tests.support.process import Program, Service, eventually, running, write_config

NO_OVERRIDES = "{}\n"
# As docs/openstack.md has it.
MEMBERS_MAY_SEE_HOSTS = '"climate:oshosts:get": "rule:project_member_or_admin"\n'

MakeStack = Callable[[Account, Template], Stack]


@pytest.fixture(scope="module")
def place(administrator: Account) -> tuple[str, int]:
    """Return the address and port at which the catalog says that reservations are made."""
    url = administrator.cloud.session.get_endpoint(service_type="reservation", interface="public")
    if url is None:
        servers.absent("openstack", "the catalog has no endpoint of type reservation")
    found = urlsplit(url)
    host, port = found.hostname or "", found.port or 80
    try:
        socket.create_server((host, 0)).close()
    except OSError:
        servers.absent(
            "openstack", f"the catalog has reservations at {url}, which is not on this machine"
        )
    return host, port


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the service's policy file; it overrides nothing."""
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(NO_OVERRIDES)
    return path


@pytest.fixture(scope="module")
def program(
    administrator: Account,
    place: tuple[str, int],
    policy_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Program]:
    """Run the service where Heat looks for it, with no hosts."""
    home = tmp_path_factory.mktemp("service")
    path = write_config(
        home / "climate.conf",
        DEFAULT__host=place[0],
        DEFAULT__port=place[1],
        database__connection=f"sqlite:///{home}/climate.sqlite",
        oslo_policy__policy_file=policy_file,
        manager__plugins="physical.host.plugin,virtual.instance.plugin",
        **settings.options(administrator, ISOLATION),
        **settings.identity(administrator),
    )
    with running(home, "climate-standalone", "--empty", "--config-file", str(path)) as made:
        yield made.says("climate is ready at")


@pytest.fixture(scope="module")
def climate(program: Program, place: tuple[str, int], administrator: Account) -> Iterator[Service]:
    """Return the service as an administrator sees it, with one host; at the end it has none."""
    service = Service(place[1], administrator.token)
    eventually(lambda: not traces.servers_on(administrator.cloud, HOSTS), "our hosts are empty")
    service.ok("POST", "/v1/os-hosts", {"name": HOST})
    yield service
    for one in service.ok("GET", "/v1/leases")["leases"]:
        answer = service.call("DELETE", f"/v1/leases/{one['id']}")
        # It may have gone since it was listed.
        assert answer.ok or answer.status_code == HTTPStatus.NOT_FOUND, answer.text
        until_gone(service, f"/v1/leases/{one['id']}")
    for one in service.ok("GET", "/v1/os-hosts")["hosts"]:
        service.ok("DELETE", f"/v1/os-hosts/{one['id']}")


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    return project("heat")


@pytest.fixture
def policy(policy_file: Path) -> Iterator[Path]:
    """Return the policy file, for a test to change; the service need not be told."""
    yield policy_file
    policy_file.write_text(NO_OVERRIDES)


@pytest.fixture
def hosts_for_members(policy: Path) -> None:
    policy.write_text(MEMBERS_MAY_SEE_HOSTS)


@pytest.fixture
def stack(climate: Service) -> Iterator[MakeStack]:
    """Return a maker of stacks; they go with the test."""
    made: list[Stack] = []

    def make(owner: Account, template: Template) -> Stack:
        made.append(Stack(owner, f"climate-{os.urandom(3).hex()}", template))
        return made[-1]

    yield make
    for one in made:
        assert one.delete()[0] == "DELETE_COMPLETE"
