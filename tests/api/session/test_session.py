"""Sessions without authentication: sign-in, the cookie, and protection against CSRF."""

from typing import Any

from werkzeug.test import TestResponse

from tests.conftest import MakeStory
from tests.support.service import Story, problem

SESSION = "/console/session"
ORIGIN = {"Origin": "http://localhost"}
ALICE = {"user": "alice", "project": "lab"}


def sign_in(story: Story, body: Any = None, **headers: str) -> dict[str, Any]:
    """Sign in; the client of the story keeps the cookie. Returns the body."""
    response = story.call("POST", SESSION, body or ALICE, headers={**ORIGIN, **headers})
    assert response.status_code == 200, response.get_data(as_text=True)
    return dict(response.get_json())


def by_page(story: Story, method: str, path: str, body: Any = None, **headers: str) -> TestResponse:
    """Send a request as the console does."""
    csrf = story.call("GET", SESSION).get_json()["csrf"]
    return story.call(method, path, body, headers={**ORIGIN, "X-Climate-Csrf": csrf, **headers})


def test_a_browser_signs_in_uses_v2_and_signs_out(story: Story) -> None:
    before = story.ok("GET", SESSION)
    assert (before["signed_in"], before["authentication"], before["me"]) == (False, "none", None)
    answer = sign_in(story)
    me = answer["me"]
    assert answer["signed_in"]
    assert (me["user"]["id"], me["project"]["id"], me["roles"]) == (
        "alice",
        "lab",
        ["member", "reader"],
    )
    assert answer == story.ok("GET", SESSION)
    created = by_page(story, "POST", "/v2/leases", story.asking())
    assert created.status_code == 201, created.get_data(as_text=True)
    assert created.get_json()["project_id"] == "lab"
    assert by_page(story, "DELETE", SESSION).status_code == 204
    assert not story.ok("GET", SESSION)["signed_in"]
    problem(by_page_without_session(story), 401)


def by_page_without_session(story: Story) -> TestResponse:
    return story.call("GET", "/v2/leases", headers={"X-Climate-Csrf": "of the old session"})


def test_me_shows_what_the_caller_may_do(story: Story) -> None:
    reader = story.ok("GET", "/v2/me", token="bob:lab:reader")
    assert reader["allowed"]["leases:get"]
    assert not reader["allowed"]["leases:post"]
    assert story.ok("GET", "/v2/me")["allowed"]["readiness:put"]


def test_a_disabled_console_has_no_routes_and_no_sessions(make_story: MakeStory) -> None:
    story = make_story(console__enabled=False)
    assert story.call("GET", SESSION).status_code == 404
    assert story.call("GET", "/console/").status_code == 404
    assert story.call("GET", "/", headers={"Accept": "text/html"}).status_code == 300
