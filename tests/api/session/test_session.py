"""Sessions without authentication: sign-in, use of v2, sign-out."""

import pytest

from tests.conftest import MakeStory
from tests.support.browser import CSRF, SESSION, Browser
from tests.support.service import Story, problem


def test_a_browser_signs_in_uses_the_api_and_signs_out(browser: Browser) -> None:
    before = browser.session()
    assert (before["signed_in"], before["authentication"], before["me"]) == (False, "none", None)
    answer = browser.sign_in()
    me = answer["me"]
    assert answer["signed_in"]
    assert (answer["user"], answer["project"]) == (me["user"], me["project"])
    assert me["csrf"] == answer["csrf"]
    assert me["roles"] == ["member", "reader"]
    assert answer == browser.session()
    story = browser._story
    lease = browser.ok("POST", "/v2/leases", story.asking())
    assert (lease["user_id"], lease["project_id"]) == ("alice", "lab")
    assert browser.send("GET", f"/v1/leases/{lease['id']}").status_code == 200
    assert browser.send("DELETE", SESSION).status_code == 204
    assert not browser.session()["signed_in"]


def test_a_session_changes_its_project(browser: Browser) -> None:
    browser.sign_in(user="boss", project="ops", roles=["Admin"])
    changed = browser.ok("PUT", SESSION, {"project": "lab"})
    assert (changed["user"]["id"], changed["project"]["id"]) == ("boss", "lab")
    assert browser.session()["me"]["roles"] == ["admin"]


def test_a_reader_who_sends_requests_of_administrators_is_rejected(browser: Browser) -> None:
    me = browser.sign_in(user="eve", project="lab", roles=["reader"])["me"]
    assert me["allowed"]["leases:get"]
    assert not any(me["allowed"][rule] for rule in ("leases:post", "resources:post", "oshosts:get"))
    for method, path, body in (
        ("POST", "/v2/leases", {"name": "x"}),
        ("POST", "/v2/resources", {"resource_type": "physical:host", "name": "sim-9"}),
        ("GET", "/v1/os-hosts", None),
        ("PATCH", "/v2/resources/1/readiness", {"set_aside": "x"}),
    ):
        assert browser.send(method, path, body).status_code == 403, path


def test_me_shows_the_caller_of_a_token_and_what_it_may_do(story: Story) -> None:
    admin = story.ok("GET", "/v2/me")
    assert admin["allowed"]["readiness:put"]
    assert (admin["expires_at"], admin["authentication"]) == (None, "none")
    assert admin["resource_types"] == ["physical:host"]
    nobody = story.ok("GET", "/v2/me", token="x:lab:unknown")
    assert [rule for rule, is_allowed in nobody["allowed"].items() if is_allowed] == ["me:get"]


@pytest.mark.parametrize("token", ["", "bob:lab", "rubbish"])
def test_a_cookie_counts_only_without_a_token(browser: Browser, token: str) -> None:
    browser.sign_in()
    response = browser.send("GET", "/v2/me", headers={"X-Auth-Token": token})
    if token == "bob:lab":
        assert response.get_json()["user"]["id"] == "bob"
    else:
        problem(response, 401)
    created = browser.send_exactly("POST", "/v2/leases", {}, {"X-Auth-Token": "bob:lab"})
    assert created.status_code == 400, "a token needs no Origin"


def test_a_page_that_outlives_its_session_does_not_act_as_admin(browser: Browser) -> None:
    browser.sign_in()
    browser.http.delete_cookie("climate")
    for method, path in (("GET", "/v2/leases"), ("POST", "/v2/leases"), ("GET", "/v1/os-hosts")):
        response = browser.send(method, path, headers={CSRF: str(browser.csrf)})
        assert response.status_code == 401, path
    assert browser.send("PUT", SESSION, {"project": "lab"}).status_code == 401
    assert browser.send("DELETE", SESSION).status_code == 204, "there is nothing to end"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user": "a"},
        {"user": " ", "project": "lab"},
        {"user": "a" * 256, "project": "lab"},
        {"user": "a", "project": "lab", "roles": []},
        {"user": "a", "project": "lab", "roles": "admin"},
        {"user": "a", "project": "lab", "admin": True},
        {"user": "a\x00", "project": "lab"},
        {"user": "ü" * 255, "project": "ü" * 255, "roles": ["ü" * 255] * 20},
        {"application_credential_id": "x", "application_credential_secret": "y"},
        [],
    ],
)
def test_rejects_a_malformed_sign_in(browser: Browser, body: object) -> None:
    problem(browser.send("POST", SESSION, body), 400)
    assert not browser.is_signed_in()


def test_a_disabled_console_has_no_routes_and_no_sessions(
    make_story: MakeStory, browser: Browser
) -> None:
    browser.sign_in()
    disabled = Browser(make_story(console__enabled=False))
    disabled.cookie = browser.cookie
    assert disabled.send("GET", SESSION).status_code == 404
    assert disabled.send("GET", "/console/").status_code == 404
    assert disabled.send("GET", "/", headers={"Accept": "text/html"}).status_code == 300
    assert disabled.send("GET", "/v2/me").get_json()["user"]["id"] == "admin"
