"""Requests that pages of other sites send with the session of a user (CSRF)."""

import pytest

from tests.conftest import MakeStory
from tests.support.browser import CSRF, SESSION, Browser
from tests.support.service import Story, problem

OWN = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
CHANGES = [
    ("POST", "/v2/leases"),
    ("PATCH", "/v2/leases/x"),
    ("DELETE", "/v2/leases/x"),
    ("PUT", "/v1/leases/x"),
    ("PUT", SESSION),
    ("DELETE", SESSION),
]
FOREIGN = [
    {},
    {"Sec-Fetch-Site": "same-origin"},
    {"Origin": ""},
    {"Origin": "null"},
    {"Origin": "http://evil.example"},
    {"Origin": "http://localhost:8080"},
    {"Origin": "http://localhost.evil.example"},
    {"Origin": "http://evil.example/localhost"},
    {"Origin": "ftp://localhost"},
    {"Origin": "//localhost"},
    {"Origin": "http://["},
    {**OWN, "Sec-Fetch-Site": "same-site"},
    {**OWN, "Sec-Fetch-Site": "cross-site"},
    {**OWN, "Sec-Fetch-Site": "none"},
]


def is_unchanged(story: Story) -> bool:
    return bool(story.ok("GET", "/v2/leases")["leases"] == [])


@pytest.mark.parametrize("origin", FOREIGN)
def test_rejects_a_change_from_another_site(browser: Browser, origin: dict[str, str]) -> None:
    browser.sign_in()
    secret = {CSRF: str(browser.csrf)}
    for method, path in CHANGES:
        response = browser.send_exactly(method, path, {}, {**origin, **secret})
        assert response.status_code == 403, path
        assert response.headers["Climate-Error-Code"] == "cross_site_request"
    assert browser.is_signed_in()


@pytest.mark.parametrize("secret", [None, "", "x", "ä", "\xff" * 32])
def test_rejects_a_change_without_the_secret(browser: Browser, secret: str | None) -> None:
    browser.sign_in()
    headers = OWN if secret is None else {**OWN, CSRF: secret}
    for method, path in CHANGES:
        response = browser.send_exactly(method, path, {}, headers)
        assert response.status_code == 403, path
        assert response.headers["Climate-Error-Code"] == "cross_site_request"
    assert browser.is_signed_in()


def test_a_secret_belongs_to_one_session(browser: Browser, story: Story) -> None:
    other = Browser(story)
    other.sign_in(user="eve", project="x")
    browser.sign_in()
    stolen = {**OWN, CSRF: str(other.csrf)}
    problem(browser.send_exactly("POST", "/v2/leases", story.asking(), stolen), 403)


def test_reading_needs_no_secret(browser: Browser) -> None:
    browser.sign_in()
    for method in ("GET", "HEAD"):
        assert browser.send_exactly(method, "/v2/leases").status_code == 200


@pytest.mark.parametrize("origin", FOREIGN)
def test_another_site_cannot_sign_a_user_in(browser: Browser, origin: dict[str, str]) -> None:
    body = {"user": "mallory", "project": "trap"}
    problem(browser.send_exactly("POST", SESSION, body, origin), 403)
    assert not browser.is_signed_in()


def test_a_form_cannot_sign_in_or_change_anything(browser: Browser, story: Story) -> None:
    """A form sends no JSON; one that looks like JSON is sent as text."""
    text = b'{"user": "mallory", "project": "trap", "roles": ["admin"]}'
    for media_type in ("text/plain", "application/x-www-form-urlencoded", None):
        for path in (SESSION, "/v2/leases"):
            response = browser.http.post(
                path, data=text, content_type=media_type, headers=OWN, base_url=browser.base_url
            )
            assert response.status_code in {400, 415}, media_type
    assert not browser.is_signed_in()
    assert is_unchanged(story)


def test_only_the_secure_origin_counts_over_https(story: Story) -> None:
    browser = Browser(story, "https://localhost")
    browser.sign_in()
    plain = {"Origin": "http://localhost", CSRF: str(browser.csrf)}
    problem(browser.send_exactly("POST", "/v2/leases", story.asking(), plain), 403)


def test_the_origin_of_a_site_behind_a_tls_proxy_is_accepted(
    make_story: MakeStory,
) -> None:
    """The proxy speaks http to the service, and passes the Host header."""
    story = make_story(api__serve_unauthenticated_to_the_network=True)
    browser = Browser(story, "http://climate.example")
    body = {"user": "alice", "project": "lab"}
    response = browser.send("POST", SESSION, body, {"Origin": "https://climate.example"})
    assert response.status_code == 200
    cookie = response.headers["Set-Cookie"]
    assert cookie.startswith("__Host-climate=")
    assert "Secure" in cookie


def test_sign_in_over_plain_http_beyond_loopback_is_rejected(make_story: MakeStory) -> None:
    story = make_story(api__serve_unauthenticated_to_the_network=True)
    browser = Browser(story, "http://climate.example")
    found = problem(browser.send("POST", SESSION, {"user": "alice", "project": "lab"}), 403)
    assert "over https" in found["detail"]


def test_a_name_that_resolves_to_this_machine_reaches_no_session(browser: Browser) -> None:
    """DNS rebinding: the page and the Host header have the name of the attacker's site."""
    rebound = Browser(browser._story, "http://evil.example")
    for method in ("GET", "POST", "PUT", "DELETE"):
        body = {"user": "mallory", "project": "trap"}
        problem(rebound.send(method, SESSION, None if method == "GET" else body), 403)
    remote = Browser(browser._story, address="192.0.2.7")
    problem(remote.send("GET", SESSION), 403)
