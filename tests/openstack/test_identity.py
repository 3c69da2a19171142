"""Access by role and project, with Keystone's own tokens."""

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
from tests.support.process import Service, date, standalone, write_config
from tests.support.service import host_reservation

LEASE = {"name": "mine", "reservations": [host_reservation()], "events": []}


def credentials(account: Account) -> dict[str, str]:
    """Return an account's credentials, by the names of keystoneauth's options."""
    names = ("auth_url", "username", "password", "project_name")
    domains = ("user_domain_id", "project_domain_id")
    return {name: account.environment[f"OS_{name.upper()}"] for name in (*names, *domains)}


@pytest.fixture(scope="module")
def checker(cloud: Connection, lab: Project) -> Iterator[dict[str, str]]:
    """Return the credentials of a user who may only validate tokens."""
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
    """Return a service with the simulated cloud that validates each token with Keystone."""
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
    token = who.token if isinstance(who, Account) else who
    return Service(service.port, token).call(method, path, body)


def body(minutes: int = 600) -> dict[str, Any]:
    """Return a request for a host so far ahead that no event is due yet."""
    return {**LEASE, "start_date": date(minutes), "end_date": date(minutes + 1)}


@pytest.fixture
def lease(service: Service, lab: Project) -> Iterator[dict[str, Any]]:
    made = send(service, lab.member, "POST", "/v1/leases", body()).json()["lease"]
    yield made
    send(service, lab.admin, "DELETE", f"/v1/leases/{made['id']}")


def test_a_lease_belongs_to_its_user_and_project(lab: Project, lease: dict[str, Any]) -> None:
    assert lease["user_id"] == lab.member.user_id
    assert lease["project_id"] == lab.id
    assert lease["trust_id"] is None


def test_a_reader_sees_leases_of_the_project_and_changes_nothing(
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


@pytest.mark.parametrize("token", [None, "rubbish", "gAAAAABm", "a" * 300, "../users", "%00"])
def test_rejects_a_request_without_a_valid_token(service: Service, token: str | None) -> None:
    for method, path in (("GET", "/v1/leases"), ("POST", "/v1/os-hosts"), ("GET", "/v1/nothing")):
        answer = send(service, token, method, path)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"].startswith('Keystone uri="http')
        assert answer.json()["error_code"] == 401


def test_rejects_a_revoked_token(service: Service, cloud: Connection, lab: Project) -> None:
    token = login(lab.member, project_id=lab.id).get_token()
    assert send(service, token, "GET", "/v1/leases").status_code == 200
    cloud.session.delete(f"{auth_url(lab.member)}/auth/tokens", headers={"X-Subject-Token": token})
    assert send(service, token, "GET", "/v1/leases").status_code == 401


@pytest.mark.parametrize("scope", ["nothing", "domain", "system"])
def test_rejects_a_token_without_a_project(
    service: Service, cloud: Connection, lab: Project, scope: str
) -> None:
    role = cloud.identity.find_role("admin", ignore_missing=False)
    domain = credentials(lab.admin)["user_domain_id"]
    if scope == "domain":
        cloud.identity.assign_domain_role_to_user(domain, lab.admin.user_id, role)
    if scope == "system":
        cloud.identity.put(f"/system/users/{lab.admin.user_id}/roles/{role.id}")
    ways: dict[str, dict[str, Any]] = {
        "nothing": {"unscoped": True},
        "domain": {"domain_id": domain},
        "system": {"system_scope": "all"},
    }
    token = login(lab.admin, **ways[scope]).get_token()
    for path in ("/v1/leases", "/v1/os-hosts"):
        answer = send(service, token, "GET", path)
        assert answer.status_code == 403
        assert "not scoped to a project" in answer.json()["error_message"]


def auth_url(account: Account) -> str:
    return credentials(account)["auth_url"].rstrip("/")


def login(account: Account, **scope: Any) -> session.Session:
    given = credentials(account)
    user: dict[str, Any] = {
        name: given[name] for name in ("auth_url", "username", "password", "user_domain_id")
    }
    return session.Session(auth=v3.Password(**user, **scope))


def test_the_service_user_reaches_the_services_of_the_catalog(lab: Project, tmp_path: Path) -> None:
    options = {f"service_user__{name}": value for name, value in credentials(lab.admin).items()}
    path = write_config(tmp_path / "c.conf", service_user__auth_type="password", **options)
    conf = config_registry.new()
    config_registry.load(conf, "test", [f"--config-file={path}"])
    ours = openstack_session.make_session(conf)
    nova = openstack_session.adapter(conf, ours, "nova", "2.53")
    placement = openstack_session.adapter(conf, ours, "placement", "1.39")
    nodes = {hypervisor["id"] for hypervisor in nova.get("/os-hypervisors").json()["hypervisors"]}
    providers = placement.get("/resource_providers").json()["resource_providers"]
    assert nodes <= {provider["uuid"] for provider in providers}
