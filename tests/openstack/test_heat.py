"""Heat's own OS::Blazar::Lease and OS::Blazar::Host, unmodified, are served by climate.

Heat finds us in the catalog, so we listen where that says; on a cloud whose catalog says some
other machine there is nothing to be tested here.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from heatclient.exc import HTTPBadRequest
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from tests import servers
from tests.openstack import guests, settings, traces
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import Boot, MakeProject
from tests.openstack.stacks import Stack
from tests.openstack.templates import (
    HOST_ATTRIBUTES,
    LEASE_ATTRIBUTES,
    Template,
    attributes,
    host,
    lease,
    server,
    template,
)
from tests.process import Program, Service, date, eventually, reserve, running, write_config

# One is registered throughout, the other by a template. Nobody else touches them.
HOSTS = os.environ.get("CLIMATE_TEST_HEAT_HOSTS", "fake09,fake10").split(",")
HOST, OTHER = HOSTS
CREATED = ("CREATE_COMPLETE", "Stack CREATE completed successfully")
ISOLATION = "blazar"
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
        service.ok("DELETE", f"/v1/leases/{one['id']}")
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


def present_minute() -> str:
    """Return the present minute, as soon as enough of it is left for Heat to reserve in it."""
    while time.time() % 60 > 45:
        time.sleep(0.5)
    return date(0)


def until_gone(service: Service, path: str) -> None:
    """Wait until there is no such thing; what a deleted lease ends may take its time."""
    eventually(lambda: service.call("GET", path).status_code == 404, f"{path} is gone")


def by_trust(trustor: Account, trustee: Account) -> str:
    """Return a token of the trustee's that stands for the trustor."""
    asked = {
        "trustor_user_id": trustor.user_id,
        "trustee_user_id": trustee.user_id,
        "project_id": trustor.project_id,
        "impersonation": True,
        "roles": [{"name": trustor.role}],
    }
    identity = trustor.cloud.identity
    trust = identity.post("/OS-TRUST/trusts", json={"trust": asked}).json()["trust"]
    auth = v3.Password(
        trustee.environment["OS_AUTH_URL"],
        user_id=trustee.user_id,
        password=trustee.environment["OS_PASSWORD"],
        trust_id=trust["id"],
    )
    return str(auth.get_token(Session()))


def test_a_host_and_a_lease_of_it_come_and_go_with_a_stack(
    stack: MakeStack, lab: Project, climate: Service, administrator: Account
) -> None:
    made = stack(
        lab.admin,
        template(
            attributes("host", HOST_ATTRIBUTES | {"show"})
            | attributes("lease", LEASE_ATTRIBUTES | {"show"}),
            host=host(OTHER, from_heat="yes"),
            lease=lease(date(60), expression='["==", "$from_heat", "yes"]', depends_on="host"),
        ),
    )
    assert made.settled() == CREATED
    (host_id, host_shown), (lease_id, lease_shown) = made.resource("host"), made.resource("lease")
    assert host_shown == climate.ok("GET", f"/v1/os-hosts/{host_id}")["host"]
    assert host_shown["from_heat"] == "yes"
    assert lease_shown == climate.lease(lease_id)
    assert made.outputs == {
        **{f"host.{name}": host_shown[name] for name in HOST_ATTRIBUTES},
        **{f"lease.{name}": lease_shown[name] for name in LEASE_ATTRIBUTES},
        "host.show": host_shown,
        "lease.show": lease_shown,
    }
    taken = climate.ok("GET", f"/v1/os-hosts/allocations?lease_id={lease_id}")["allocations"]
    assert [one["resource_id"] for one in taken if one["reservations"]] == [host_id]
    assert traces.holders(administrator.cloud, OTHER) == [settings.FREE_POOLS[ISOLATION]]
    assert made.delete()[0] == "DELETE_COMPLETE"
    assert climate.call("GET", f"/v1/leases/{lease_id}").status_code == 404
    assert climate.call("GET", f"/v1/os-hosts/{host_id}").status_code == 404
    assert traces.holders(administrator.cloud, OTHER) == []


@pytest.mark.usefixtures("hosts_for_members")
def test_a_stack_that_goes_in_the_middle_of_its_lease_takes_all_with_it(
    stack: MakeStack, lab: Project, climate: Service, administrator: Account, boot: Boot
) -> None:
    reserved = lease(present_minute())
    made = stack(lab.member, template(lease=reserved))
    assert made.settled() == CREATED
    lease_id, shown = made.resource("lease")
    assert (shown["user_id"], shown["project_id"]) == (lab.member.user_id, lab.id)
    climate.until_lease_is(lease_id, "ACTIVE")
    hint = {"reservation": shown["reservations"][0]["id"]}
    beside = boot(lab.member, "beside-the-stack", scheduler_hints=hint)
    in_it = server(
        beside.image.id,
        beside.flavor.id,
        reservation={"get_attr": ["lease", "reservations", 0, "id"]},
    )
    assert made.update(template(lease=reserved, server=in_it))[0] == "UPDATE_COMPLETE"
    server_id, _ = made.resource("server")
    found = [administrator.cloud.compute.get_server(one) for one in (beside.id, server_id)]
    assert [guests.host_of(administrator, one) for one in found] == [(HOST, HOST)] * 2
    assert made.delete()[0] == "DELETE_COMPLETE"
    until_gone(climate, f"/v1/leases/{lease_id}")
    assert all(guests.is_gone(administrator.cloud, one.id) for one in found)
    assert traces.holders(administrator.cloud, HOST) == [settings.FREE_POOLS[ISOLATION]]


@pytest.mark.usefixtures("hosts_for_members")
@pytest.mark.parametrize(
    ("start", "count", "expression", "sentence"),
    [
        (60, 2, "", "Not enough hosts available: at least 2 asked for"),
        (60, 1, '["==", "$ssd"]', "expected three items as in"),
        (-60, 1, "", "Start date must be later than current date"),
    ],
)
def test_a_refused_lease_fails_the_stack_in_our_own_words(
    stack: MakeStack, lab: Project, start: float, count: int, expression: str, sentence: str
) -> None:
    made = stack(lab.member, template(lease=lease(date(start), count, expression)))
    status, reason = made.settled()
    assert status == "CREATE_FAILED"
    assert sentence in reason


def test_a_host_that_somebody_reserved_stays_and_the_stack_says_why(
    stack: MakeStack, lab: Project, climate: Service
) -> None:
    made = stack(lab.admin, template(host=host(OTHER, from_heat="reserved")))
    assert made.settled() == CREATED
    wanted = lease(date(60), expression='["==", "$from_heat", "reserved"]')
    holder = stack(lab.admin, template(lease=wanted))
    assert holder.settled() == CREATED
    status, reason = made.delete()
    assert status == "DELETE_FAILED"
    assert "The host is reserved." in reason
    assert holder.delete()[0] == "DELETE_COMPLETE"


def test_members_need_to_see_hosts_for_a_lease(
    stack: MakeStack, lab: Project, policy: Path
) -> None:
    wanted = template(lease=lease(date(60)))
    with pytest.raises(HTTPBadRequest, match="Policy doesn't allow oshosts:get"):
        stack(lab.member, wanted)
    policy.write_text(MEMBERS_MAY_SEE_HOSTS)
    assert stack(lab.member, wanted).settled() == CREATED


def test_a_token_that_heat_got_by_a_trust_is_as_good_as_the_users_own(
    climate: Service, lab: Project
) -> None:
    token = by_trust(lab.member, lab.reader)
    path = f"/v1/leases/{reserve(Service(climate.port, token), date(60))}"
    made = climate.ok("GET", path)["lease"]
    climate.ok("DELETE", path)
    assert (made["user_id"], made["project_id"]) == (lab.member.user_id, lab.id)
    assert made["trust_id"] is None


@pytest.mark.usefixtures("hosts_for_members")
@pytest.mark.parametrize("gone", ["deleted", "over"])
def test_a_stack_can_be_deleted_when_its_lease_is_gone(
    stack: MakeStack, lab: Project, climate: Service, gone: str
) -> None:
    start = present_minute() if gone == "over" else date(60)
    made = stack(lab.member, template(lease=lease(start)))
    assert made.settled() == CREATED
    lease_id, _ = made.resource("lease")
    path = f"/v1/leases/{lease_id}"
    if gone == "deleted":
        climate.ok("DELETE", path)
    else:
        climate.until_lease_is(lease_id, "ACTIVE")
        climate.ok("PUT", path, {"end_date": date(0)})
        climate.until_lease_is(lease_id, "TERMINATED")
    assert made.delete()[0] == "DELETE_COMPLETE"
    assert climate.call("GET", path).status_code == 404
