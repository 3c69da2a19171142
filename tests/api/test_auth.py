"""Who is calling is what Keystone says about the token, and nothing else."""

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from climate import config, service
from climate.api import app
from climate.clock import ManualClock
from tests.keystone import SERVICE_TOKEN, Keystone
from tests.process import write_config
from tests.service import Story

# What the middleware tells us, as a client might try to tell it.
CLAIMS = {
    "X-Identity-Status": "Confirmed",
    "X-User-Id": "mallory",
    "X-User": "mallory",
    "X-Project-Id": "lab",
    "X-Tenant-Id": "lab",
    "X-Roles": "admin,member,reader",
    "X-Role": "admin",
    "X-Service-Identity-Status": "Confirmed",
    "X-Service-Roles": "service",
    "X-Is-Admin-Project": "True",
    "OpenStack-System-Scope": "all",
}
ANSWERS = {"/": 300, "/versions": 300, "/metrics": 404}
DISCOVERY = [(path, ANSWERS.get(path, 200)) for _, path, _ in app.OPEN]


@pytest.fixture
def keystone() -> Keystone:
    """Return a Keystone that knows Alice, a member of lab, and a boss; nobody listens yet."""
    known = Keystone()
    known.issue("alices", "alice", "member,reader", project="lab")
    known.issue("the-boss", "boss", "ADMIN", project="ops")
    return known


@pytest.fixture
def online(keystone: Keystone) -> Iterator[Keystone]:
    """Return the same Keystone, listening."""
    with keystone.listening():
        yield keystone


@pytest.fixture
def story(keystone: Keystone, sqlite_url: str, clock: ManualClock, tmp_path: Path) -> Any:
    """Return a service that asks that Keystone."""
    path = write_config(
        tmp_path / "climate.conf",
        database__connection=sqlite_url,
        api__auth_strategy="keystone",
        keystone_authtoken__http_request_max_retries=0,
        keystone_authtoken__token_cache_time=-1,
        **{f"keystone_authtoken__{name}": value for name, value in keystone.options.items()},
    )
    conf = config.new()
    config.load(conf, "test", [f"--config-file={path}"])
    made = Story(conf, service.make_runtime(conf, clock), clock)
    yield made
    made.close()


def test_a_lease_belongs_to_whom_the_token_belongs_to(story: Story, online: Keystone) -> None:
    story.ok("POST", "/v1/os-hosts", {"name": "sim-1"}, token="the-boss")
    lease = story.ok("POST", "/v1/leases", story.lease_body(), token="alices")["lease"]
    assert (lease["user_id"], lease["project_id"], lease["trust_id"]) == ("alice", "lab", None)


def test_a_lease_starts_when_it_was_asked_for_however_long_keystone_takes(
    story: Story, online: Keystone, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = Keystone._response

    def slowly(self: Keystone, request: Any) -> Any:
        story.clock.advance(2)
        return answer(self, request)

    story.ok("POST", "/v1/os-hosts", {"name": "sim-1"}, token="the-boss")
    story.clock.advance(59)
    monkeypatch.setattr(Keystone, "_response", slowly)
    body = {**story.lease_body(), "start_date": "now"}
    lease = story.ok("POST", "/v1/leases", body, token="alices")["lease"]
    assert lease["start_date"] == "2030-01-15T12:00:00.000000"
    story.clock.advance(59 - story.clock.now().second)
    asked = {"name": "at once", "start": "now", "duration": 60, "reservations": []}
    lease = story.ok("POST", "/v2/leases", asked, token="alices")
    assert lease["start"] == "2030-01-15T12:01:59Z"
    assert story.clock.now().minute == 2


def test_who_has_no_token_is_told_where_to_get_one(story: Story, online: Keystone) -> None:
    answer = story.call("GET", "/v1/leases")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == f'Keystone uri="{online.url}"'
    assert answer.headers["Climate-Error-Code"] == "unauthenticated"
    assert answer.get_json() == {
        "error_code": 401,
        "error_message": "The request you have made requires authentication.",
        "error_name": 401,
    }
    problem = story.call("GET", "/v2/notifications")
    assert problem.mimetype == "application/problem+json"
    assert problem.headers["WWW-Authenticate"] == answer.headers["WWW-Authenticate"]


@pytest.mark.parametrize(("path", "status"), DISCOVERY)
def test_discovery_needs_no_token_and_asks_nobody(
    story: Story, online: Keystone, path: str, status: int
) -> None:
    assert story.call("GET", path).status_code == status
    assert story.call("GET", path, token="rubbish").status_code == status


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/no/such/route"), ("DELETE", "/v1/leases"), ("OPTIONS", "/v1/leases")],
)
def test_strangers_do_not_even_learn_which_routes_there_are(
    story: Story, online: Keystone, method: str, path: str
) -> None:
    assert story.call(method, path).status_code == 401
    assert story.call(method, path, token="alices").status_code != 401


def claiming(story: Story, token: str | None, method: str, path: str, body: Any) -> TestResponse:
    """Send a request with all those headers."""
    headers = CLAIMS if token is None else {**CLAIMS, "X-Auth-Token": token}
    return story.http.open(path, method=method, json=body, headers=headers)


def test_claims_without_a_token_are_not_believed(story: Story, online: Keystone) -> None:
    assert claiming(story, None, "GET", "/v1/leases", None).status_code == 401
    assert claiming(story, "rubbish", "GET", "/v1/leases", None).status_code == 401


def test_claims_beyond_the_token_are_not_believed(story: Story, online: Keystone) -> None:
    story.ok("POST", "/v1/os-hosts", {"name": "sim-1"}, token="the-boss")
    online.issue("eves", "eve", "member", project="other")
    assert claiming(story, "eves", "GET", "/v1/os-hosts", None).status_code == 403
    made = claiming(story, "eves", "POST", "/v1/leases", story.lease_body()).get_json()["lease"]
    assert (made["user_id"], made["project_id"]) == ("eve", "other")


@pytest.mark.parametrize("token", ["rubbish", "", " ", "a b", "a\x0bb", "é", "\xa0", "a" * 9000])
def test_rubbish_is_no_token(story: Story, online: Keystone, token: str) -> None:
    assert story.call("GET", "/v1/leases", token=token).status_code == 401
    headers = {"X-Auth-Token": "alices", "X-Service-Token": token or "-"}
    assert story.http.get("/v1/leases", headers=headers).status_code == 401


def test_an_expired_token_is_none(story: Story, online: Keystone) -> None:
    online.issue("old", "alice", "member", project="lab", expires_at="2020-01-01T00:00:00.000000Z")
    story.refused(401, "GET", "/v1/leases", token="old")


def test_a_service_may_pass_on_a_token_that_expired_meanwhile(
    story: Story, online: Keystone
) -> None:
    online.issue("old", "alice", "member", project="lab", expires_at="2020-01-01T00:00:00.000000Z")
    online.issue("heats", "heat", "service", project="service")
    headers = {"X-Auth-Token": "old", "X-Service-Token": "heats"}
    assert story.http.get("/v1/leases", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "scope", [{}, {"domain": {"id": "default", "name": "Default"}}, {"system": {"all": True}}]
)
def test_a_token_must_be_for_a_project(
    story: Story, online: Keystone, scope: dict[str, Any]
) -> None:
    online.issue("wide", "boss", "admin,member,reader", **scope)
    for path in ("/v1/leases", "/v1/os-hosts"):
        assert "not scoped to a project" in story.refused(403, "GET", path, token="wide")
    assert story.call("GET", "/v2/notifications", token="wide").status_code == 403


def test_an_application_credential_may_be_limited_to_some_requests(
    story: Story, online: Keystone
) -> None:
    online.endpoints["reservation"] = "http://127.0.0.1:1234/v1"
    rule = {"service": "reservation", "method": "GET", "path": "/v1/leases"}
    credential = {"id": "c", "name": "c", "restricted": True, "access_rules": [rule]}
    online.issue("limited", "alice", "member", project="lab", application_credential=credential)
    story.ok("GET", "/v1/leases", token="limited")
    story.refused(401, "POST", "/v1/leases", story.lease_body(), token="limited")


def test_callers_on_other_machines_are_served(story: Story, online: Keystone) -> None:
    answer = story.http.get(
        "/v1/leases",
        headers={"X-Auth-Token": "alices"},
        environ_base={"REMOTE_ADDR": "192.0.2.1"},
    )
    assert answer.status_code == 200


def test_a_keystone_that_is_away_is_no_fault_of_the_token(story: Story, keystone: Keystone) -> None:
    answer = story.call("GET", "/v1/leases", token="alices")
    assert answer.status_code == 503
    assert "Keystone does not answer" in answer.get_json()["error_message"]
    assert answer.headers["Climate-Error-Code"] == "identity_unavailable"
    assert answer.headers["Retry-After"] == "1"
    assert story.call("GET", "/v1/leases").status_code == 401
    assert story.call("GET", "/healthz", token="alices").status_code == 200
    with keystone.listening():
        story.ok("GET", "/v1/leases", token="alices")
    story.refused(503, "GET", "/v1/leases", token="alices")


def test_a_keystone_that_does_not_know_us_is_no_fault_of_the_token(
    story: Story, online: Keystone
) -> None:
    online.knows_the_service = False
    story.refused(503, "GET", "/v1/leases", token="alices")
    online.knows_the_service = True
    story.ok("GET", "/v1/leases", token="alices")


def test_our_own_token_is_renewed(story: Story, online: Keystone) -> None:
    story.ok("GET", "/v1/leases", token="alices")
    online.tokens.pop(SERVICE_TOKEN)
    story.ok("GET", "/v1/leases", token="alices")


def test_answers_pass_the_middleware_as_they_are(story: Story, online: Keystone) -> None:
    always = {"OpenStack-API-Version", "Vary", "X-Openstack-Request-Id"}
    made = story.call("POST", "/v1/os-hosts", {"name": "sim-1"}, token="the-boss")
    assert set(made.headers.keys()) == {*always, "Content-Type", "Content-Length"}
    gone = story.call("DELETE", "/v1/os-hosts/1", token="the-boss")
    assert (gone.status_code, gone.data) == (204, b"")
    assert set(gone.headers.keys()) == always


def test_a_stream_ends_with_its_token(
    story: Story, keystone: Keystone, online: Keystone, clock: ManualClock
) -> None:
    ends = (clock.now() + dt.timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
    keystone.issue("short", "alice", "member,reader", project="lab", expires_at=ends)
    answer = story.http.get(
        "/v2/notifications/stream", headers={"X-Auth-Token": "short"}, buffered=False
    )
    assert answer.status_code == 200
    with closing(answer):
        parts = answer.iter_encoded()
        assert next(parts).startswith(b"retry: ")
        clock.advance(61)
        assert list(parts) == []
