"""The session cookie: what it protects, and where browsers send it."""

import base64
import json
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from tests.api.random_requests import Request, send
from tests.conftest import MakeStory
from tests.support.browser import SESSION, Browser
from tests.support.clock import ManualClock
from tests.support.service import Story, problem


def rejected(browser: Browser) -> None:
    """Check that the cookie identifies nobody, and that the console removes it."""
    for method, path in (("GET", "/v2/leases"), ("POST", "/v2/leases"), ("GET", "/v1/os-hosts")):
        response = browser.send(method, path)
        assert response.status_code == 401, f"{path}: never the admin of a request without a token"
    response = browser.send("GET", SESSION)
    assert not response.get_json()["signed_in"]
    assert "Max-Age=0" in response.headers["Set-Cookie"]


def test_a_cookie_that_was_changed_is_rejected(browser: Browser) -> None:
    browser.sign_in()
    value = browser.cookie
    middle = len(value) // 2
    other = "A" if value[middle] != "A" else "B"
    plain = base64.urlsafe_b64encode(json.dumps({"user": "boss", "roles": ["admin"]}).encode())
    for changed in (
        value[:middle] + other + value[middle + 1 :],
        value[:-8],
        f"A{value}",
        "",
        "x",
        "{}",
        "ä",
        "\x7f",
        plain.decode(),
    ):
        browser.cookie = changed
        rejected(browser)
        browser.http.delete_cookie("climate")
    browser.cookie = value
    assert browser.is_signed_in()


def test_a_cookie_of_another_key_is_rejected(browser: Browser) -> None:
    content = {
        "csrf": "x",
        "expires_at": "2999-01-01T00:00:00Z",
        "user": "boss",
        "project": "ops",
        "roles": ["admin"],
    }
    browser.cookie = Fernet(Fernet.generate_key()).encrypt(json.dumps(content).encode()).decode()
    rejected(browser)


def test_the_cookie_shows_nothing(browser: Browser) -> None:
    browser.sign_in(user="very-secret-user", project="lab")
    value = browser.cookie
    assert b"very-secret" not in base64.urlsafe_b64decode(value)


def test_a_session_ends_after_its_hours(make_story: MakeStory, clock: ManualClock) -> None:
    browser = Browser(make_story(console__session_hours=2))
    me = browser.sign_in()["me"]
    assert me["expires_at"] == f"{clock.now() + timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}"
    clock.advance(2 * 3600 - 1)
    assert browser.is_signed_in()
    clock.advance(1)
    rejected(browser)


def test_any_process_with_the_keys_reads_the_cookie(make_story: MakeStory, tmp_path: Path) -> None:
    file = tmp_path / "session.keys"
    old, new = (Fernet.generate_key().decode() for _ in range(2))
    file.write_text(f"# keys\n\n{old}\n")
    file.chmod(0o600)
    first, second = (Browser(make_story(console__session_key_file=str(file))) for _ in range(2))
    first.sign_in()
    second.cookie = first.cookie
    assert second.is_signed_in()
    file.write_text(f"{new}\n{old}\n")
    assert second.is_signed_in(), "the old key still decrypts"
    second.sign_in()
    file.write_text(f"{new}\n")
    assert second.is_signed_in()
    rejected(first)


@pytest.mark.parametrize(
    ("base_url", "name", "is_secure"),
    [
        ("http://localhost", "climate", False),
        ("http://127.0.0.1:1234", "climate", False),
        ("http://[::1]:1234", "climate", False),
        ("https://localhost", "__Host-climate", True),
        ("https://climate.example", "__Host-climate", True),
    ],
)
def test_attributes_of_the_cookie(
    make_story: MakeStory, base_url: str, name: str, is_secure: bool
) -> None:
    browser = Browser(make_story(api__serve_unauthenticated_to_the_network=True), base_url)
    answer = browser.send("POST", SESSION, {"user": "alice", "project": "lab"})
    browser.csrf = answer.get_json()["csrf"]
    for response in (answer, browser.send("DELETE", SESSION)):
        assigned, *attributes = response.headers["Set-Cookie"].split("; ")
        assert assigned.partition("=")[0] == name
        expected = {"HttpOnly", "Path=/", "SameSite=Strict", *({"Secure"} if is_secure else ())}
        assert {item for item in attributes if item[:3] not in {"Max", "Exp"}} == expected


def test_the_name_for_loopback_does_not_count_elsewhere(make_story: MakeStory) -> None:
    story = make_story(api__serve_unauthenticated_to_the_network=True)
    local = Browser(story)
    local.sign_in()
    for site in ("https://climate.example", "http://climate.example", "https://localhost"):
        remote = Browser(story, site)
        response = remote.send("GET", "/v2/me", headers={"Cookie": f"climate={local.cookie}"})
        assert response.get_json()["user"]["id"] == "admin", "the cookie is ignored"


def test_a_cookie_is_ignored_where_no_identity_is_needed(story: Story) -> None:
    browser = Browser(story)
    browser.cookie = "rubbish"
    for path in ("/console/", "/healthz", "/v2/docs", "/v2/openapi.json"):
        assert browser.send("GET", path).status_code == 200, path
    problem(browser.send("GET", "/v2/me"), 401)


def test_cookies_of_others_that_are_not_utf_8_are_ignored(story: Story) -> None:
    browser = Browser(story)
    browser.sign_in()
    cookies = {"Cookie": f"other=\xff\xfe; climate={browser.cookie}"}
    answer = send(story.http.application, Request("GET", "/v2/me", "", cookies))
    assert json.loads(answer.body)["user"]["id"] == "alice"
