"""Callers are identified by Keystone tokens; without authentication only this machine is served."""

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import TestResponse

from climate.api import app
from climate.cmd import bootstrap
from climate.config import registry as config_registry
from tests.conftest import MakeStory
from tests.support.clock import ManualClock
from tests.support.keystone import SERVICE_TOKEN, Keystone
from tests.support.process import write_config
from tests.support.service import Story, hosts

LEASES = "/v1/leases"
EXPIRED = {"expires_at": "2020-01-01T00:00:00.000000Z"}
# The headers by which keystonemiddleware identifies a caller, as a client might forge them.
FORGED = {
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
STATUSES = {"/": 300, "/versions": 300, "/metrics": 404, "/v2/docs/<name>": 404}
STATUSES["/v2/errors/<code>"] = 404
STATUSES["/feeds/<secret>.ics"] = 404
STATUSES |= {"/console/session": 200}
ABSENT = ("/console/static/", "/email/")
STATUSES |= {path: 404 for _, path, *_ in app.OPEN if path.startswith(ABSENT)}


class TestWithoutAuthentication:
    def test_only_callers_on_this_machine_are_served(self, make_story: MakeStory) -> None:
        local = ["127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"]
        remote = ["10.0.0.7", "2001:db8::1", "::ffff:10.0.0.7"]
        story = make_story()
        answers = {
            address: story.http.get(LEASES, environ_base={"REMOTE_ADDR": address})
            for address in local + remote
        }
        statuses = {address: answer.status_code for address, answer in answers.items()}
        assert statuses == dict.fromkeys(local, 200) | dict.fromkeys(remote, 403)
        assert "no authentication" in answers[remote[0]].get_json()["error_message"]
        story = make_story(api__serve_unauthenticated_to_the_network=True)
        answer = story.http.get(LEASES, environ_base={"REMOTE_ADDR": remote[0]})
        assert answer.status_code == 200

    def test_web_pages_of_other_sites_are_rejected(self, make_story: MakeStory) -> None:
        own = [
            {},
            {"Host": "127.0.0.1:1234", "Origin": "http://127.0.0.1:1234"},
            {"Host": "LOCALHOST:1234", "Origin": "http://localhost:1234"},
            {"Host": "[::1]:1234", "Sec-Fetch-Site": "same-origin"},
            {"Host": "127.0.0.5", "Sec-Fetch-Site": "none"},
            *({"Host": name} for name in ("localhost.:1", "ip6-localhost", "a.localhost:1234")),
        ]
        rebound = [
            *(
                {"Host": name}
                for name in ("evil.example", "127.0.0.1.evil.example:1234", "[", ":1")
            ),
            {"Host": "evil.example", "Origin": "http://evil.example"},
        ]
        foreign = [
            {"Sec-Fetch-Site": "cross-site"},
            *(
                {"Host": "localhost:1234", "Origin": origin}
                for origin in (
                    "null",
                    "",
                    "http://evil.example",
                    "http://localhost:3000",
                    "http://[",
                )
            ),
        ]
        for options, served, rejected in (
            ({}, own, rebound + foreign),
            ({"api__serve_unauthenticated_to_the_network": True}, own + rebound, foreign),
        ):
            story = make_story(**options)
            for headers in served:
                assert story.call("GET", LEASES, headers=headers).status_code == 200, headers
            for headers in rejected:
                data = {"headers": headers, "data": b"{}", "content_type": "text/plain"}
                answer = story.http.post(LEASES, **data)
                assert answer.headers["Climate-Error-Code"] == "foreign_origin", headers
                assert answer.status_code == 403


@pytest.fixture
def keystone() -> Keystone:
    """Return a Keystone that does not listen yet; Alice is a member of lab, boss an admin."""
    known = Keystone()
    known.issue("alices", "alice", "member,reader", project="lab")
    known.issue("the-boss", "boss", "ADMIN", project="ops")
    return known


@pytest.fixture
def online(keystone: Keystone) -> Iterator[Keystone]:
    with keystone.listening():
        yield keystone


@pytest.fixture
def story(keystone: Keystone, sqlite_url: str, clock: ManualClock, tmp_path: Path) -> Any:
    path = write_config(
        tmp_path / "climate.conf",
        database__connection=sqlite_url,
        api__auth_strategy="keystone",
        keystone_authtoken__http_request_max_retries=0,
        keystone_authtoken__token_cache_time=-1,
        **{f"keystone_authtoken__{name}": value for name, value in keystone.options.items()},
    )
    conf = config_registry.new()
    config_registry.load(conf, "test", [f"--config-file={path}"])
    made = Story(conf, bootstrap.make_runtime(conf, clock), clock)
    yield made
    made.close()


class TestTokens:
    def test_a_lease_belongs_to_the_user_and_project_of_the_token(
        self, story: Story, online: Keystone
    ) -> None:
        host = story.call("POST", "/v1/os-hosts", {"name": "sim-1"}, token="the-boss")
        always = {
            *("OpenStack-API-Version", "Vary", "X-Openstack-Request-Id", "Cache-Control"),
            *("X-Content-Type-Options", "Content-Security-Policy"),
        }
        assert set(host.headers.keys()) == {*always, "Content-Type", "Content-Length"}
        lease = story.ok("POST", LEASES, story.lease_body(), token="alices")["lease"]
        owner = (lease["user_id"], lease["project_id"], lease["trust_id"])
        assert owner == ("alice", "lab", None)
        story.ok("DELETE", f"{LEASES}/{lease['id']}", token="alices")
        story.run()
        gone = story.call("DELETE", "/v1/os-hosts/1", token="the-boss")
        assert (gone.status_code, gone.data) == (204, b"")
        assert set(gone.headers.keys()) == always, "the middleware adds nothing"

    def test_now_is_the_arrival_of_the_request_however_long_keystone_takes(
        self, story: Story, online: Keystone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answer = Keystone._response

        def answer_slowly(self: Keystone, request: Any) -> Any:
            story.clock.advance(2)
            return answer(self, request)

        story.ok("POST", "/v1/os-hosts", {"name": "sim-1"}, token="the-boss")
        story.clock.advance(59)
        monkeypatch.setattr(Keystone, "_response", answer_slowly)
        body = {**story.lease_body(reservations=[]), "start_date": "now"}
        lease = story.ok("POST", LEASES, body, token="alices")["lease"]
        assert lease["start_date"] == "2030-01-15T12:00:00.000000"
        story.clock.advance(59 - story.clock.now().second)
        request = {"name": "at once", "start": "now", "duration": 60, "reservations": [hosts()]}
        lease = story.ok("POST", "/v2/leases", request, token="alices")
        assert lease["start"] == "2030-01-15T12:01:59Z"
        assert story.clock.now().minute == 2

    def test_a_request_without_a_token_learns_the_address_of_keystone(
        self, story: Story, online: Keystone
    ) -> None:
        answer = story.call("GET", LEASES)
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

    def test_only_discovery_needs_no_token(self, story: Story, online: Keystone) -> None:
        for token in (None, "rubbish"):
            found = {
                path: story.call("GET", path, token=token).status_code for _, path, *_ in app.OPEN
            }
            assert found == {path: STATUSES.get(path, 200) for _, path, *_ in app.OPEN}
        closed = ("/no/route", "/v2/openapi-json", "/v2/docs/a/b", "/feeds/a/b.ics", "/feeds/a-ics")
        for method, path in (
            *(("GET", path) for path in closed),
            *(("DELETE", LEASES), ("OPTIONS", LEASES)),
        ):
            assert story.call(method, path).status_code == 401, "a stranger learns no routes"
            assert story.call(method, path, token="alices").status_code != 401

    def test_a_health_check_with_a_token_does_not_wait_for_keystone(
        self, story: Story, online: Keystone
    ) -> None:
        assert story.call("GET", "/healthz", token="alices").status_code == 200
        assert online.asked == []

    def test_forged_headers_are_ignored(self, story: Story, online: Keystone) -> None:
        def forge(token: str | None, method: str, path: str, body: Any = None) -> TestResponse:
            headers = FORGED if token is None else {**FORGED, "X-Auth-Token": token}
            return story.http.open(path, method=method, json=body, headers=headers)

        assert [forge(token, "GET", LEASES).status_code for token in (None, "rubbish")] == [401] * 2
        story.ok("POST", "/v1/os-hosts", {"name": "sim-1"}, token="the-boss")
        online.issue("eves", "eve", "member", project="other")
        assert forge("eves", "GET", "/v1/os-hosts").status_code == 403
        made = forge("eves", "POST", LEASES, story.lease_body()).get_json()["lease"]
        assert (made["user_id"], made["project_id"]) == ("eve", "other")

    def test_invalid_and_expired_tokens_are_rejected(self, story: Story, online: Keystone) -> None:
        online.issue("old", "alice", "member", project="lab", **EXPIRED)
        tokens = ["rubbish", "", " ", "a b", "a\x0bb", "é", "\xa0", "a" * 9000]
        for token in tokens:
            assert story.call("GET", LEASES, token=token).status_code == 401, token
            headers = {"X-Auth-Token": "alices", "X-Service-Token": token or "-"}
            assert story.http.get(LEASES, headers=headers).status_code == 401, token
        story.refused(401, "GET", LEASES, token="old")
        online.issue("heats", "heat", "service", project="service")
        headers = {"X-Auth-Token": "old", "X-Service-Token": "heats"}
        assert story.http.get(LEASES, headers=headers).status_code == 200, "a service may use it"

    def test_a_token_must_be_scoped_to_a_project(self, story: Story, online: Keystone) -> None:
        scopes: list[dict[str, Any]] = [
            {},
            {"domain": {"id": "default", "name": "Default"}},
            {"system": {"all": True}},
        ]
        for scope in scopes:
            online.issue("wide", "boss", "admin,member,reader", **scope)
            for path in (LEASES, "/v1/os-hosts"):
                assert "not scoped to a project" in story.refused(403, "GET", path, token="wide")
            assert story.call("GET", "/v2/notifications", token="wide").status_code == 403

    def test_an_application_credential_may_be_limited_to_some_requests(
        self, story: Story, online: Keystone
    ) -> None:
        online.endpoints["reservation"] = "http://127.0.0.1:1234/v1"
        rule = {"service": "reservation", "method": "GET", "path": LEASES}
        credential = {"id": "c", "name": "c", "restricted": True, "access_rules": [rule]}
        online.issue("limited", "alice", "member", project="lab", application_credential=credential)
        remote = {"REMOTE_ADDR": "192.0.2.1"}
        headers = {"X-Auth-Token": "limited"}
        assert story.http.get(LEASES, headers=headers, environ_base=remote).status_code == 200
        story.refused(401, "POST", LEASES, story.lease_body(), token="limited")

    def test_an_event_stream_ends_with_its_token(
        self, story: Story, online: Keystone, clock: ManualClock
    ) -> None:
        ends = (clock.now() + dt.timedelta(minutes=1)).isoformat().replace("+00:00", "Z")
        online.issue("short", "alice", "member,reader", project="lab", expires_at=ends)
        answer = story.http.get(
            "/v2/notifications/stream", headers={"X-Auth-Token": "short"}, buffered=False
        )
        assert answer.status_code == 200
        with closing(answer):
            parts = answer.iter_encoded()
            assert next(parts).startswith(b"retry: ")
            clock.advance(61)
            assert list(parts) == []


class TestKeystoneFails:
    def test_an_unreachable_keystone_is_no_fault_of_the_token(
        self, story: Story, keystone: Keystone
    ) -> None:
        answer = story.call("GET", LEASES, token="alices")
        assert answer.status_code == 503
        assert "Keystone does not answer" in answer.get_json()["error_message"]
        assert answer.headers["Climate-Error-Code"] == "identity_unavailable"
        assert answer.headers["Retry-After"] == "1"
        assert story.call("GET", LEASES).status_code == 401
        assert story.call("GET", "/healthz", token="alices").status_code == 200
        with keystone.listening():
            story.ok("GET", LEASES, token="alices")
        story.refused(503, "GET", LEASES, token="alices")

    def test_the_service_logs_in_again_when_its_own_token_is_rejected(
        self, story: Story, online: Keystone
    ) -> None:
        online.knows_the_service = False
        story.refused(503, "GET", LEASES, token="alices")
        online.knows_the_service = True
        story.ok("GET", LEASES, token="alices")
        online.tokens.pop(SERVICE_TOKEN)
        story.ok("GET", LEASES, token="alices")
