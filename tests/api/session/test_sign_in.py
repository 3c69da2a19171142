"""Sign-in with Keystone: passwords, application credentials, projects, sign-out."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from climate.api.session import attempts
from tests.api.session.conftest import MakeSecured
from tests.conftest import MakeStory
from tests.support.browser import CSRF, SESSION, Browser
from tests.support.clock import ManualClock
from tests.support.keystone import Keystone
from tests.support.process import eventually
from tests.support.service import Story, problem

ALICE = {"user": "alice", "password": "open sesame"}
CREDENTIAL = {
    "application_credential_id": "cred-1",
    "application_credential_secret": "a secret",
}


@pytest.fixture
def browser(secured: Story) -> Browser:
    """Return a browser at a service that checks tokens with Keystone."""
    return Browser(secured)


def tokens_of(keystone: Keystone, user: str) -> dict[str, str | None]:
    """Return the tokens of the user, with the project of each."""
    return {
        text: token.get("project", {}).get("id")
        for text, token in keystone.tokens.items()
        if token["user"]["id"] == user
    }


def test_a_user_signs_in_with_a_password_and_a_project(
    browser: Browser, keystone: Keystone, secured: Story
) -> None:
    before = browser.session()
    assert (before["signed_in"], before["authentication"]) == (False, "keystone")
    answer = browser.sign_in(**ALICE, domain="Default", project="lab")
    assert answer["signed_in"]
    assert (answer["user"]["id"], answer["project"]["id"]) == ("alice", "lab")
    assert answer["me"]["roles"] == ["member", "reader"]
    assert [project["id"] for project in answer["projects"]] == ["lab", "ops"]
    assert answer == browser.session()
    lease = browser.ok("POST", "/v1/leases", secured.lease_body(reservations=[]))["lease"]
    assert (lease["user_id"], lease["project_id"]) == ("alice", "lab")


def test_scripts_see_no_token_and_no_password(browser: Browser, keystone: Keystone) -> None:
    answer = browser.send("POST", SESSION, {**ALICE, "project": "lab"})
    browser.csrf = answer.get_json()["csrf"]
    tokens = tokens_of(keystone, "alice")
    assert len(tokens) == 2
    for response in (answer, browser.send("GET", SESSION), browser.send("GET", "/v2/me")):
        text = response.get_data(as_text=True) + str(response.headers)
        assert [token for token in tokens if token in text] == []
        assert ALICE["password"] not in text
    assert "HttpOnly" in answer.headers["Set-Cookie"]


def test_a_user_without_a_project_chooses_one(browser: Browser, keystone: Keystone) -> None:
    answer = browser.sign_in(**ALICE)
    choice = [
        {"id": "lab", "name": "Lab", "domain": "default"},
        {"id": "ops", "name": "Ops", "domain": "default"},
    ]
    assert (answer["signed_in"], answer["me"], answer["choose_project"]) == (False, None, choice)
    assert browser.session() == answer
    assert "no project yet" in problem(browser.send("GET", "/v2/leases"), 401)["detail"]
    problem(browser.send("PUT", SESSION, {"project": "other"}), 403)
    chosen = browser.ok("PUT", SESSION, {"project": "ops"})
    assert chosen["project"] == {"id": "ops", "name": "ops"}
    assert browser.ok("PUT", SESSION, {"project": "lab"})["project"]["id"] == "lab"
    assert browser.ok("GET", "/v2/me")["project"]["id"] == "lab"
    assert sorted(map(str, tokens_of(keystone, "alice").values())) == ["None", "lab"], "not ops"


def test_a_choice_must_be_made_within_minutes(browser: Browser, clock: ManualClock) -> None:
    browser.sign_in(**ALICE)
    clock.advance(600)
    problem(browser.send("PUT", SESSION, {"project": "lab"}), 401)
    assert "choose_project" not in browser.session()


def test_the_only_project_needs_no_choice(browser: Browser, keystone: Keystone) -> None:
    assert browser.sign_in(user="bob", password="b0b's")["project"]["id"] == "lab"
    keystone.memberships["bob"] = []
    found = problem(browser.send("POST", SESSION, {"user": "bob", "password": "b0b's"}), 403)
    assert "no role in any project" in found["detail"]


def test_an_application_credential_has_its_project(browser: Browser) -> None:
    answer = browser.sign_in(**CREDENTIAL)
    assert (answer["user"]["id"], answer["project"]["id"]) == ("alice", "ops")
    assert answer["projects"] == []
    problem(browser.send("PUT", SESSION, {"project": "lab"}), 409)
    assert browser.ok("GET", "/v2/leases")["leases"] == []


FAILURES: list[dict[str, Any]] = [
    {"user": "alice", "password": "wrong"},
    {"user": "nobody", "password": "open sesame"},
    {"user": "alice", "password": "open sesame", "project": "other"},
    {"user": "alice", "password": "wrong", "project": "lab"},
    {"application_credential_id": "cred-1", "application_credential_secret": "wrong"},
    {"application_credential_id": "cred-2", "application_credential_secret": "a secret"},
]


def test_all_failures_say_the_same(browser: Browser, keystone: Keystone) -> None:
    answers = [problem(browser.send("POST", SESSION, body), 401) for body in FAILURES]
    assert answers == answers[:1] * len(FAILURES)
    for keystone.rejection in (400, 403, 404):
        assert problem(browser.send("POST", SESSION, FAILURES[1]), 401) == answers[0]
    assert answers[0]["code"] == "sign_in_failed"
    assert not browser.is_signed_in()
    assert tokens_of(keystone, "alice") == {}


@pytest.mark.parametrize(
    "body",
    [{}, {"user": "a"}, {"user": "a", "password": ""}, {**ALICE, **CREDENTIAL}, {**ALICE, "x": 1}],
)
def test_rejects_a_malformed_sign_in(
    browser: Browser, keystone: Keystone, body: dict[str, Any]
) -> None:
    problem(browser.send("POST", SESSION, body), 400)
    assert keystone.asked == []


def test_signing_out_revokes_the_tokens(browser: Browser, keystone: Keystone) -> None:
    browser.sign_in(**ALICE, project="lab")
    stolen = browser.cookie
    assert browser.send("DELETE", SESSION).status_code == 204
    assert tokens_of(keystone, "alice") == {}
    browser.cookie = stolen
    problem(browser.send("GET", "/v2/leases"), 401)
    assert not browser.is_signed_in()


def test_a_revoked_token_ends_the_session(browser: Browser, keystone: Keystone) -> None:
    browser.sign_in(**ALICE, project="lab")
    for token in tokens_of(keystone, "alice"):
        keystone.tokens.pop(token)
    problem(browser.send("GET", "/v2/leases"), 401)
    found = problem(browser.send("PUT", SESSION, {"project": "ops"}), 401)
    assert found["code"] == "unauthenticated", "and not that the user has no role there"
    response = browser.send("GET", SESSION)
    assert not response.get_json()["signed_in"]
    assert "Max-Age=0" in response.headers["Set-Cookie"]


def test_a_session_ends_with_its_token(
    browser: Browser, keystone: Keystone, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = clock.now() + timedelta(hours=1)
    issue = keystone.issue
    monkeypatch.setattr(
        keystone,
        "issue",
        lambda *args, **scope: issue(
            *args, **scope, expires_at=f"{ends:%Y-%m-%dT%H:%M:%S}.000000Z"
        ),
    )
    assert browser.sign_in(**ALICE, project="lab")["me"]["expires_at"] == f"{ends:%FT%TZ}"
    clock.advance(3600)
    problem(browser.send("GET", "/v2/leases"), 401)


def test_a_failing_keystone_is_no_failure_of_the_user(
    make_secured: MakeSecured, keystone: Keystone
) -> None:
    browser = Browser(make_secured(keystone_authtoken__auth_url="http://127.0.0.1:1/v3"))
    for _ in range(attempts.PER_USER_AND_ADDRESS + 1):
        found = problem(browser.send("POST", SESSION, ALICE), 503)
        assert found["code"] == "identity_unavailable"


def test_a_session_survives_a_failing_keystone(browser: Browser, keystone: Keystone) -> None:
    browser.sign_in(**ALICE, project="lab")
    keystone.is_broken = True
    problem(browser.send("GET", "/v2/leases"), 503)
    problem(browser.send("GET", SESSION), 503)
    assert browser.send("DELETE", SESSION, headers={CSRF: "x"}).status_code == 403
    keystone.is_broken = False
    assert browser.is_signed_in()


def test_a_token_that_is_too_large_for_a_cookie_is_refused(
    browser: Browser, keystone: Keystone
) -> None:
    keystone.token_size = 2000
    found = problem(browser.send("POST", SESSION, {**ALICE, "project": "lab"}), 400)
    assert found["code"] == "session_too_large"
    assert "Fernet or JWS" in found["detail"]
    assert tokens_of(keystone, "alice") == {}, "revoked"
    keystone.token_size = 1000
    browser.sign_in(**ALICE, project="lab")
    assert len(browser.cookie) < 4096


def test_guesses_of_a_password_are_limited(browser: Browser, clock: ManualClock) -> None:
    wrong = {**ALICE, "password": "wrong"}
    for _ in range(attempts.PER_USER_AND_ADDRESS):
        problem(browser.send("POST", SESSION, wrong), 401)
    response = browser.send("POST", SESSION, {**ALICE, "user": "Alice"})
    found = problem(response, 429)
    assert found["code"] == "too_many_sign_ins"
    assert int(response.headers["Retry-After"]) == attempts.PERIOD
    browser.sign_in(user="bob", password="b0b's")
    elsewhere = Browser(browser._story, address="192.0.2.9")
    elsewhere.sign_in(**ALICE, project="lab")
    clock.advance(attempts.PERIOD)
    browser.sign_in(**ALICE, project="lab")


@pytest.fixture
def _few_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the failures to numbers that take few requests to reach."""
    monkeypatch.setattr(attempts, "PER_USER", 5)
    monkeypatch.setattr(attempts, "PER_ADDRESS", 8)


@pytest.mark.usefixtures("_few_guesses")
def test_guesses_from_many_addresses_and_of_many_users_are_limited(secured: Story) -> None:
    def guess(user: str, address: str) -> int:
        body = {"user": user, "password": "wrong"}
        return Browser(secured, address=address).send("POST", SESSION, body).status_code

    by_many = [guess("alice", f"192.0.2.{n}") for n in range(attempts.PER_USER + 1)]
    assert by_many == [401] * attempts.PER_USER + [429]
    of_many = [guess(f"user-{n}", f"2001:db8::{n:x}") for n in range(attempts.PER_ADDRESS + 1)]
    assert of_many == [401] * attempts.PER_ADDRESS + [429], "a /64 is one address"


@pytest.mark.usefixtures("_few_guesses")
@pytest.mark.parametrize("proxies", [0, 1])
def test_failures_count_for_the_client_of_a_trusted_proxy(
    make_secured: MakeSecured, proxies: int
) -> None:
    secured = make_secured(api__trusted_proxies=proxies)

    def guess(user: str, client: str) -> int:
        # A client can send the header, too; the proxy appends the address that it sees.
        forwarded = {"X-Forwarded-For": f"198.51.100.{user}, {client}"}
        body = {"user": user, "password": "wrong"}
        proxy = Browser(secured, address="192.0.2.1")
        return proxy.send("POST", SESSION, body, forwarded).status_code

    many = [guess(str(n), "203.0.113.5") for n in range(attempts.PER_ADDRESS + 1)]
    assert many[-2:] == [401, 429]
    assert guess("another", "203.0.113.6") == (401 if proxies else 429)


def test_sign_ins_at_once_are_limited(secured: Story, keystone: Keystone) -> None:
    """Each one occupies a thread while Keystone hashes the password: a quarter of them may."""
    keystone.held = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(Browser(secured).send, "POST", SESSION, {**ALICE, "project": "lab"})
            for _ in range(2)
        ]
        arrived = "POST /v3/auth/tokens"
        eventually(lambda: keystone.asked.count(arrived) == len(waiting), "they reach Keystone")
        problem(Browser(secured).send("POST", SESSION, {**ALICE, "project": "lab"}), 429)
        keystone.held.set()
        assert [done.result().status_code for done in waiting] == [200, 200]
    Browser(secured).sign_in(**ALICE, project="lab")


def test_no_secret_is_logged(
    secured: Story, keystone: Keystone, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    browser = Browser(secured)
    for body in (*FAILURES, CREDENTIAL, ALICE):
        browser.csrf = browser.send("POST", SESSION, body).get_json().get("csrf")
    tokens = list(keystone.tokens)
    browser.ok("PUT", SESSION, {"project": "ops"})
    browser.ok("GET", "/v2/leases")
    secrets = {ALICE["password"], "wrong", "a secret", browser.cookie, str(browser.csrf)}
    browser.send("DELETE", SESSION)
    logged = "\n".join(
        f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records
    )
    assert "/v3/auth/tokens" in logged, "the clients of Keystone log at DEBUG"
    found = {secret for secret in {*secrets, *tokens, *keystone.tokens} if secret in logged}
    assert found == set()


def test_cross_site_requests_do_not_reach_keystone(browser: Browser, keystone: Keystone) -> None:
    browser.sign_in(**ALICE, project="lab")
    keystone.asked.clear()
    foreign = {"Origin": "http://evil.example", CSRF: str(browser.csrf)}
    for method, path in (("POST", "/v2/leases"), ("PUT", SESSION), ("DELETE", SESSION)):
        assert browser.send_exactly(method, path, {}, foreign).status_code == 403
    problem(browser.send_exactly("POST", SESSION, ALICE, foreign), 403)
    browser.cookie = "rubbish"
    problem(browser.send("GET", "/v2/leases"), 401)
    assert keystone.asked == []


def test_forged_identity_headers_do_not_help(browser: Browser) -> None:
    forged = {"X-Identity-Status": "Confirmed", "X-User-Id": "boss", "X-Roles": "admin"}
    forged |= {"X-Project-Id": "ops", "X-User-Name": "boss"}
    browser.sign_in(**ALICE, project="lab")
    me = browser.send("GET", "/v2/me", headers=forged).get_json()
    assert (me["user"]["id"], me["project"]["id"], me["roles"]) == (
        "alice",
        "lab",
        ["member", "reader"],
    )
    session = browser.send("GET", SESSION, headers=forged).get_json()
    assert session["user"]["id"] == "alice"
    other = Browser(browser._story)
    assert not other.send("GET", SESSION, headers=forged).get_json()["signed_in"]
    problem(other.send("GET", "/v2/me", headers=forged), 401)


def test_a_cookie_from_before_keystone_was_configured_is_rejected(
    browser: Browser, make_story: MakeStory
) -> None:
    """The key is the same, and the session names a user whom nobody has checked."""
    unchecked = Browser(make_story())
    unchecked.sign_in(user="boss", project="ops", roles=["admin"])
    browser.cookie = unchecked.cookie
    forged = {"X-User-Id": "boss", "X-Project-Id": "ops", "X-Roles": "admin"}
    problem(browser.send("GET", "/v2/leases", headers=forged), 401)
    assert not browser.send("GET", SESSION, headers=forged).get_json()["signed_in"]


def test_a_legacy_token_header_takes_precedence_of_the_cookie(browser: Browser) -> None:
    browser.sign_in(**ALICE, project="lab")
    for token in ("", "rubbish"):
        problem(browser.send("GET", "/v2/me", headers={"X-Storage-Token": token}), 401)


def test_without_common_keys_nobody_signs_in(
    make_secured: MakeSecured, monkeypatch: pytest.MonkeyPatch, keystone: Keystone
) -> None:
    monkeypatch.setattr("climate.api.session.keys._is_of_one_machine", lambda _: False)
    browser = Browser(make_secured())
    assert not browser.session()["signed_in"]
    found = problem(browser.send("POST", SESSION, {**ALICE, "project": "lab"}), 503)
    assert "session_key_file" in found["detail"]
    assert keystone.asked == []
