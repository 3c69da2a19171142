"""A service at the address where Heat looks for it, and stacks that a test deletes at its end."""

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.openstack import settings, traces
from tests.openstack.accounts import Account, Project
from tests.openstack.heat import HOST, HOSTS, ISOLATION, until_gone
from tests.openstack.stacks import Stack
from tests.openstack.templates import Template
from tests.support import servers
from tests.support.process import Program, Service, eventually, running, write_config

PLUGINS = (
    "physical.host.plugin,virtual.instance.plugin,flavor.instance.plugin,virtual.floatingip.plugin,"
    "virtual.stack.plugin"
)
NO_OVERRIDES = "{}\n"
# As docs/compatibility/heat.md has it.
MEMBERS_MAY_SEE_HOSTS = '"climate:oshosts:get": "rule:project_member_or_admin"\n'

MakeStack = Callable[[Account, Template], Stack]


@pytest.fixture(scope="module")
def catalog_address(administrator: Account) -> tuple[str, int]:
    """Return the address and port of the reservation service in the catalog."""
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
    """Return the service's policy file, which overrides nothing."""
    path = tmp_path_factory.mktemp("policy") / "policy.yaml"
    path.write_text(NO_OVERRIDES)
    return path


@pytest.fixture(scope="module")
def program(
    administrator: Account,
    catalog_address: tuple[str, int],
    policy_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Program]:
    """Run the service at the catalog's address, without hosts."""
    home = tmp_path_factory.mktemp("service")
    path = write_config(
        home / "climate.conf",
        DEFAULT__host=catalog_address[0],
        DEFAULT__port=catalog_address[1],
        database__connection=f"sqlite:///{home}/climate.sqlite",
        oslo_policy__policy_file=policy_file,
        manager__plugins=PLUGINS,
        **{"virtual:stack__cloud": "heat", "virtual:floatingip__cloud": "neutron"},
        **settings.options(administrator, ISOLATION),
        **settings.identity(administrator),
    )
    with running(home, "climate-standalone", "--empty", "--config-file", str(path)) as made:
        yield made.says("climate is ready at")


@pytest.fixture(scope="module")
def climate(
    program: Program, catalog_address: tuple[str, int], administrator: Account
) -> Iterator[Service]:
    """Return the service, for an administrator, with one host; remove the host at the end."""
    service = Service(catalog_address[1], administrator.token)
    eventually(lambda: not traces.servers_on(administrator.cloud, HOSTS), "our hosts are empty")
    service.ok("POST", "/v1/os-hosts", {"name": HOST})
    yield service
    for lease in service.ok("GET", "/v1/leases")["leases"]:
        answer = service.call("DELETE", f"/v1/leases/{lease['id']}")
        # It may have gone since it was listed.
        assert answer.ok or answer.status_code == HTTPStatus.NOT_FOUND, answer.text
        until_gone(service, f"/v1/leases/{lease['id']}")
    for host in service.ok("GET", "/v1/os-hosts")["hosts"]:
        service.ok("DELETE", f"/v1/os-hosts/{host['id']}")


@dataclass(frozen=True)
class HostPolicy:
    """Whether members may see hosts, by the service's policy file."""

    file: Path
    members: Service

    def allow(self) -> None:
        self._set(MEMBERS_MAY_SEE_HOSTS, HTTPStatus.OK)

    def reset(self) -> None:
        self._set(NO_OVERRIDES, HTTPStatus.FORBIDDEN)

    def _set(self, rules: str, expected: HTTPStatus) -> None:
        """Write the file, and wait until the service, which reads it once a second, obeys it."""
        self.file.write_text(rules)
        eventually(
            lambda: self.members.call("GET", "/v1/os-hosts").status_code == expected,
            f"a member's list of hosts is answered with {expected}",
        )


@pytest.fixture
def host_policy(policy_file: Path, climate: Service, lab: Project) -> Iterator[HostPolicy]:
    """Return the policy for hosts, which refuses them to members; reset it at the end."""
    made = HostPolicy(policy_file, Service(climate.port, lab.member.token))
    yield made
    made.reset()


@pytest.fixture
def hosts_for_members(host_policy: HostPolicy) -> None:
    host_policy.allow()


@pytest.fixture
def stack(climate: Service) -> Iterator[MakeStack]:
    """Return a function that creates stacks; the test deletes them at its end."""
    made: list[Stack] = []

    def make(owner: Account, template: Template) -> Stack:
        made.append(Stack(owner, f"climate-{os.urandom(3).hex()}", template))
        return made[-1]

    yield make
    for item in made:
        assert item.delete()[0] == "DELETE_COMPLETE"
