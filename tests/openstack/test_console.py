"""Sign-in to the console with the real Keystone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from openstack.connection import Connection

from tests.openstack.accounts import Account, Project
from tests.openstack.test_identity import checker, credentials  # noqa: F401 - a fixture
from tests.support.browser import CSRF, SESSION
from tests.support.process import Service, standalone, write_config


@pytest.fixture(scope="module")
def site(
    checker: dict[str, str],  # noqa: F811 - the fixture
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """Return a service with the simulated cloud that validates each token with Keystone."""
    home = tmp_path_factory.mktemp("console")
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


class Page:
    """A page of the console in a browser."""

    def __init__(self, site: Service) -> None:
        self._url, self.browser = site.url, requests.Session()
        self.browser.headers["Origin"] = site.url

    def send(self, method: str, path: str, body: Any = None) -> requests.Response:
        return self.browser.request(method, f"{self._url}{path}", json=body, timeout=60)

    def session(self, method: str = "GET", body: Any = None) -> dict[str, Any]:
        """Send a request that must succeed; return the session."""
        response = self.send(method, SESSION, body)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        self.browser.headers[CSRF] = answer["csrf"]
        return answer


def identity(account: Account) -> dict[str, str]:
    """Return what a user types in; the domain has the name Default in a new Keystone."""
    given = credentials(account)
    return {"user": given["username"], "password": given["password"]}


@pytest.fixture
def page(site: Service) -> Page:
    """Return a page of nobody."""
    return Page(site)


def test_a_user_signs_in_reserves_and_signs_out(page: Page, site: Service, lab: Project) -> None:
    assert page.session()["authentication"] == "keystone"
    session = page.session("POST", {**identity(lab.member), "project": lab.id})
    assert session["user"]["id"] == lab.member.user_id
    assert session["project"] == {"id": lab.id, "name": lab.name}
    assert "member" in session["me"]["roles"]
    assert page.session()["me"]["user"] == session["user"]
    host = {"resource_type": "physical:host", "params": {"min": 1, "max": 1}}
    body = {"name": "console", "start": "now", "duration": 60, "reservations": [host]}
    created = page.send("POST", "/v2/leases", body)
    assert created.status_code == 201, created.text
    assert created.json()["user_id"] == lab.member.user_id
    stolen = page.browser.cookies["climate"]
    assert page.send("DELETE", SESSION).status_code == 204
    thief = requests.get(
        f"{site.url}/v2/leases", headers={"Cookie": f"climate={stolen}"}, timeout=60
    )
    assert thief.status_code == 401, "the token is revoked"


def test_a_reader_who_sends_requests_of_administrators_is_rejected(
    page: Page, lab: Project
) -> None:
    page.session("POST", {**identity(lab.reader), "project": lab.id})
    assert page.send("GET", "/v2/leases").status_code == 200
    for method, path in (
        ("POST", "/v2/leases"),
        ("POST", "/v2/resources"),
        ("GET", "/v1/os-hosts"),
    ):
        assert page.send(method, path, {}).status_code == 403, path


def test_a_user_chooses_and_changes_the_project(
    page: Page, cloud: Connection, lab: Project, others: Project
) -> None:
    role = cloud.identity.find_role("reader", ignore_missing=False)
    cloud.identity.assign_project_role_to_user(others.id, lab.member.user_id, role)
    try:
        session = page.session("POST", identity(lab.member))
        assert not session["signed_in"]
        assert {item["id"] for item in session["choose_project"]} == {lab.id, others.id}
        assert page.send("GET", "/v2/leases").status_code == 401
        assert page.session("PUT", {"project": others.id})["me"]["roles"] == ["reader"]
        changed = page.session("PUT", {"project": lab.id})
        assert changed["project"]["name"] == lab.name
        assert {item["id"] for item in changed["projects"]} == {lab.id, others.id}
        assert page.send("GET", "/v2/leases").status_code == 200
        page.send("DELETE", SESSION)
    finally:
        cloud.identity.unassign_project_role_from_user(others.id, lab.member.user_id, role)


def test_an_application_credential_signs_in(page: Page, lab: Project) -> None:
    owner = lab.member
    made = owner.cloud.identity.create_application_credential(owner.user_id, name="console")
    try:
        session = page.session(
            "POST",
            {"application_credential_id": made.id, "application_credential_secret": made.secret},
        )
        assert session["project"]["id"] == lab.id
        assert page.send("GET", "/v2/leases").status_code == 200
        assert page.send("PUT", SESSION, {"project": lab.id}).status_code == 409
        assert page.send("DELETE", SESSION).status_code == 204
    finally:
        owner.cloud.identity.delete_application_credential(owner.user_id, made)


def test_all_failures_say_the_same(page: Page, lab: Project, others: Project) -> None:
    right = identity(lab.member)
    failures = [
        {**right, "password": "wrong"},
        {**right, "user": "nobody"},
        {**right, "domain": "no domain"},
        {**right, "project": others.id},
        {**right, "project": "no project"},
        {"application_credential_id": "none", "application_credential_secret": "wrong"},
    ]
    answers = [page.send("POST", SESSION, body) for body in failures]
    assert {(answer.status_code, answer.text) for answer in answers} == {(401, answers[0].text)}
    assert answers[0].json()["code"] == "sign_in_failed"


def test_a_domain_is_given_by_its_name(page: Page, cloud: Connection, lab: Project) -> None:
    domain = cloud.identity.get_domain(credentials(lab.member)["user_domain_id"])
    body = {**identity(lab.member), "domain": domain.name, "project": lab.id}
    assert page.session("POST", body)["signed_in"]


def test_the_secrets_are_in_no_log(
    page: Page,
    lab: Project,
    tmp_path: Path,
    checker: dict[str, str],  # noqa: F811 - the fixture
) -> None:
    options = {f"keystone_authtoken__{name}": value for name, value in checker.items()}
    path = write_config(
        tmp_path / "climate.conf",
        DEFAULT__debug=True,
        DEFAULT__default_log_levels="keystoneauth=DEBUG,urllib3=DEBUG,keystonemiddleware=DEBUG",
        api__auth_strategy="keystone",
        keystone_authtoken__auth_type="password",
        **options,
    )
    with standalone(tmp_path, "--config-file", str(path)) as (site, program):
        verbose = Page(site)
        verbose.session("POST", {**identity(lab.member), "project": lab.id})
        cookie = verbose.browser.cookies["climate"]
        assert verbose.send("GET", "/v2/me").status_code == 200
        verbose.send("DELETE", SESSION)
        assert "/v3/auth/tokens" in program.errors
        assert cookie not in program.errors
        assert "gAAAA" not in program.errors, "each Fernet token and each cookie begins so"
        password = identity(lab.member)["password"]
        assert f'"{password}"' not in program.errors.replace(f'"name": "{password}"', "")
