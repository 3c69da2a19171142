"""Who may do what, as Keystone's own tokens and roles have it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from keystoneauth1 import session
from keystoneauth1.identity import v3
from openstack.connection import Connection

from climate.config import registry as config_registry
from climate.plugins.openstack import session as openstack_session
from tests.openstack.accounts import Account, Project
from tests.openstack.conftest import MakeProject
from tests.support.process import Service, date, eventually, standalone, write_config
from tests.support.service import host_reservation

pytest.importorskip("blazarclient", reason="python-blazarclient is not installed")

from blazarclient import client as blazar_client

LEASE = {"name": "mine", "reservations": [host_reservation()], "events": []}
HOST_ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/os-hosts", None),
    ("GET", "/v1/os-hosts/1", None),
    ("PUT", "/v1/os-hosts/1", {"gpu": "True"}),
    ("GET", "/v1/os-hosts/properties", None),
    ("PATCH", "/v1/os-hosts/properties/gpu", {"private": False}),
    ("GET", "/v1/os-hosts/allocations", None),
    ("GET", "/v1/os-hosts/1/allocation", None),
]


def credentials(account: Account) -> dict[str, str]:
    """Return how an account logs in, by the names of keystoneauth's options."""
    names = ("auth_url", "username", "password", "project_name")
    domains = ("user_domain_id", "project_domain_id")
    return {name: account.environment[f"OS_{name.upper()}"] for name in (*names, *domains)}


@pytest.fixture(scope="module")
def lab(project: MakeProject) -> Project:
    return project("lab")


@pytest.fixture(scope="module")
def other(project: MakeProject) -> Project:
    return project("other")


@pytest.fixture(scope="module")
def checker(cloud: Connection, lab: Project) -> Iterator[dict[str, str]]:
    """Return the credentials of a user who may check tokens, and nothing else."""
    given = credentials(lab.member)
    name = f"{lab.name}-service"
    domain = given["user_domain_id"]
    user = cloud.identity.create_user(name=name, password=name, domain_id=domain)
    role = cloud.identity.find_role("service", ignore_missing=False)
    cloud.identity.assign_project_role_to_user(lab.id, user, role)
    yield {**given, "username": name, "password": name}
    cloud.identity.delete_user(user)


@pytest.fixture(scope="module")
def service(checker: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service that asks Keystone each time, with the simulated cloud's hosts."""
    home = tmp_path_factory.mktemp("identity")
    options = {f"keystone_authtoken__{name}": value for name, value in checker.items()}
    path = write_config(
        home / "climate.conf",
        api__auth_strategy="keystone",
        keystone_authtoken__auth_type="password",
        keystone_authtoken__token_cache_time=-1,
        **options,
    )
    with standalone(home, "--config-file", str(path)) as (started, _):
        yield started


def send(
    service: Service, who: Account | str | None, method: str, path: str, body: Any = None
) -> requests.Response:
    """Send a request as an account, or with a token."""
    token = who.token if isinstance(who, Account) else who
    return Service(service.port, token).call(method, path, body)


def body(minutes: int = 600) -> dict[str, Any]:
    """Return a request for a host for a minute so far away that nothing is due for it yet."""
    return {**LEASE, "start_date": date(minutes), "end_date": date(minutes + 1)}


@pytest.fixture
def lease(service: Service, lab: Project) -> Iterator[dict[str, Any]]:
    """Return a lease of the lab's member."""
    made = send(service, lab.member, "POST", "/v1/leases", body()).json()["lease"]
    yield made
    send(service, lab.admin, "DELETE", f"/v1/leases/{made['id']}")


def test_a_lease_is_that_of_the_user_and_the_project(lab: Project, lease: dict[str, Any]) -> None:
    assert lease["user_id"] == lab.member.user_id
    assert lease["project_id"] == lab.id
    assert lease["trust_id"] is None


def test_a_reader_sees_what_the_project_has_and_changes_nothing(
    service: Service, lab: Project, lease: dict[str, Any]
) -> None:
    path = f"/v1/leases/{lease['id']}"
    assert send(service, lab.reader, "GET", path).json()["lease"] == lease
    assert send(service, lab.reader, "GET", "/v1/leases").json()["leases"] == [lease]
    assert send(service, lab.reader, "GET", "/v1/plugins").status_code == 200
    for method, target, sent in (
        ("POST", "/v1/leases", body(660)),
        ("PUT", path, {"name": "new"}),
        ("DELETE", path, None),
    ):
        assert send(service, lab.reader, method, target, sent).status_code == 403
    assert send(service, lab.reader, "GET", path).json()["lease"] == lease


@pytest.mark.parametrize("role", ["member", "admin"])
def test_members_and_admins_make_change_and_delete_leases(
    service: Service, lab: Project, role: str
) -> None:
    account = getattr(lab, role)
    made = send(service, account, "POST", "/v1/leases", body(720)).json()["lease"]
    path = f"/v1/leases/{made['id']}"
    changed = send(service, account, "PUT", path, {"name": "new"}).json()["lease"]
    assert changed["name"] == "new"
    assert send(service, account, "DELETE", path).status_code == 204
    assert send(service, account, "GET", path).status_code == 404


@pytest.mark.parametrize("role", ["reader", "member"])
def test_a_lease_of_another_project_does_not_exist(
    service: Service, other: Project, lease: dict[str, Any], role: str
) -> None:
    account = getattr(other, role)
    path = f"/v1/leases/{lease['id']}"
    refused = send(service, account, "GET", path)
    assert refused.status_code == 404
    unknown = send(service, account, "GET", "/v1/leases/nope").text
    assert refused.text == unknown.replace("nope", lease["id"])
    assert lease["id"] not in send(service, account, "GET", "/v1/leases").text
    for method, sent in (("PUT", {"name": "theirs"}), ("DELETE", None)):
        status = send(service, account, method, path, sent).status_code
        assert status == {"member": 404, "reader": 403}[role]


def test_an_admin_of_another_project_sees_and_changes_it(
    service: Service, other: Project, lease: dict[str, Any]
) -> None:
    path = f"/v1/leases/{lease['id']}"
    assert send(service, other.admin, "GET", path).json()["lease"] == lease
    changed = send(service, other.admin, "PUT", path, {"name": "moved"}).json()["lease"]
    assert (changed["name"], changed["project_id"]) == ("moved", lease["project_id"])


def test_one_is_told_about_the_leases_of_ones_project_only(
    service: Service, lab: Project, other: Project, lease: dict[str, Any]
) -> None:
    def told(account: Account) -> set[str]:
        answer = send(service, account, "GET", "/v2/notifications?limit=1000").json()
        return {one["lease_id"] for one in answer["notifications"]}

    # It has its number, and so can be read, a moment after it was written.
    eventually(lambda: lease["id"] in told(lab.reader), "the lease is told of")
    assert lease["id"] not in told(other.member)
    assert lease["id"] in told(other.admin)


@pytest.mark.parametrize(("method", "path", "sent"), HOST_ROUTES)
def test_hosts_are_for_admins(
    service: Service, lab: Project, method: str, path: str, sent: Any
) -> None:
    send(service, lab.admin, "PUT", "/v1/os-hosts/2", {"gpu": "True"})
    for account in (lab.reader, lab.member):
        assert send(service, account, method, path, sent).status_code == 403
    assert send(service, lab.admin, method, path, sent).status_code == 200


def test_an_admin_registers_and_removes_hosts(service: Service, lab: Project) -> None:
    for account in (lab.reader, lab.member):
        sent = {"name": "sim-9"}
        assert send(service, account, "POST", "/v1/os-hosts", sent).status_code == 403
        assert send(service, account, "DELETE", "/v1/os-hosts/8").status_code == 403
    made = send(service, lab.admin, "POST", "/v1/os-hosts", {"name": "sim-9"}).json()["host"]
    path = f"/v1/os-hosts/{made['id']}"
    assert send(service, lab.admin, "DELETE", path).status_code == 204


@pytest.mark.parametrize("token", [None, "rubbish", "gAAAAABm", "a" * 300, "../users", "%00"])
def test_without_a_valid_token_nothing_is_said(service: Service, token: str | None) -> None:
    for method, path in (("GET", "/v1/leases"), ("POST", "/v1/os-hosts"), ("GET", "/v1/nothing")):
        answer = send(service, token, method, path)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith('Keystone uri="http')
        assert answer.json()["error_code"] == 401


def test_a_revoked_token_is_none(service: Service, cloud: Connection, lab: Project) -> None:
    token = login(lab.member, project_id=lab.id).get_token()
    assert send(service, token, "GET", "/v1/leases").status_code == 200
    cloud.session.delete(f"{auth_url(lab.member)}/auth/tokens", headers={"X-Subject-Token": token})
    assert send(service, token, "GET", "/v1/leases").status_code == 401


@pytest.mark.parametrize("scope", ["nothing", "domain", "system"])
def test_a_token_must_be_for_a_project(
    service: Service, cloud: Connection, lab: Project, scope: str
) -> None:
    role = cloud.identity.find_role("admin", ignore_missing=False)
    domain = credentials(lab.admin)["user_domain_id"]
    if scope == "domain":
        cloud.identity.assign_domain_role_to_user(domain, lab.admin.user_id, role)
    if scope == "system":
        cloud.identity.put(f"/system/users/{lab.admin.user_id}/roles/{role.id}")
    how: dict[str, Any] = {
        "nothing": {"unscoped": True},
        "domain": {"domain_id": domain},
        "system": {"system_scope": "all"},
    }[scope]
    token = login(lab.admin, **how).get_token()
    for path in ("/v1/leases", "/v1/os-hosts"):
        answer = send(service, token, "GET", path)
        assert answer.status_code == 403
        assert "not scoped to a project" in answer.json()["error_message"]


def auth_url(account: Account) -> str:
    return credentials(account)["auth_url"].rstrip("/")


def login(account: Account, **scope: Any) -> session.Session:
    """Return a session of an account, with a scope of its own."""
    given = credentials(account)
    user = {name: given[name] for name in ("auth_url", "username", "password", "user_domain_id")}
    return session.Session(auth=v3.Password(**user, **scope))


def test_discovery_needs_no_token(service: Service) -> None:
    found = {
        path: send(service, None, "GET", path).status_code
        for path in ("/", "/versions", "/v1", "/v1/", "/v2", "/v2/", "/healthz", "/readyz")
    }
    assert found.pop("/") == found.pop("/versions") == 300
    assert set(found.values()) == {200}


def test_the_stock_client_makes_and_lists_leases(
    service: Service, lab: Project, other: Project
) -> None:
    def blazar(account: Account) -> Any:
        made = session.Session(auth=v3.Password(**credentials(account)))
        return blazar_client.Client(1, session=made, endpoint_override=f"{service.url}/v1")

    mine = blazar(lab.member)
    made = mine.lease.create("stock", date(240), date(300), [host_reservation()], [])
    assert made["project_id"] == lab.id
    assert made["id"] in [lease["id"] for lease in mine.lease.list()]
    assert made["id"] not in [lease["id"] for lease in blazar(other.member).lease.list()]
    mine.lease.delete(made["id"])


def test_our_own_user_reaches_the_services_of_the_catalog(lab: Project, tmp_path: Path) -> None:
    options = {f"service_user__{name}": value for name, value in credentials(lab.admin).items()}
    path = write_config(tmp_path / "c.conf", service_user__auth_type="password", **options)
    conf = config_registry.new()
    config_registry.load(conf, "test", [f"--config-file={path}"])
    ours = openstack_session.make_session(conf)
    nova = openstack_session.adapter(conf, ours, "nova", "2.53")
    placement = openstack_session.adapter(conf, ours, "placement", "1.39")
    nodes = {one["id"] for one in nova.get("/os-hypervisors").json()["hypervisors"]}
    providers = placement.get("/resource_providers").json()["resource_providers"]
    assert nodes <= {one["uuid"] for one in providers}
