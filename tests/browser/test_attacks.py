"""A form and a script of another site, in a real browser with a session, and the page of the API.

``localhost`` is another site than 127.0.0.1. Another port of 127.0.0.1 is the same site for
cookies, and another origin: there only climate's own checks protect the session.
"""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Browser, chromium
from tests.support.process import Service

_PAGE = b"<!doctype html><title>Another site</title><body><p>Another site</p></body>"


class _Handler(BaseHTTPRequestHandler):
    """Answers each request with a page that does nothing by itself."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def other_port() -> Iterator[int]:
    """Return the port of another web server on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def victim(service: Service, tmp_path: Path) -> Iterator[Browser]:
    """Return a browser in which an admin has signed in; its pages may log errors."""
    with chromium(service.url, tmp_path / "chromium") as browser:
        browser.sign_in("alice", "lab", "admin")
        yield browser


def _leases(service: Service) -> list[str]:
    return [lease["name"] for lease in service.ok("GET", "/v2/leases?all_projects=true")["leases"]]


def _of_a_lease(script: str) -> str:
    """Return the script with valid reservations: without protection, the service would accept."""
    host = '[{"resource_type": "physical:host", "params": {"min": 1, "max": 1}}]'
    return script.replace("RESERVATIONS", host)


_FORM = _of_a_lease("""
const form = document.createElement("form");
form.method = "POST";
form.action = arguments[0];
form.enctype = "text/plain";
const field = document.createElement("input");
field.name = '{"name": "attack", "start": "now", "duration": 60, "reservations": '
  + 'RESERVATIONS, "x": "';
field.value = '"}';
form.append(field);
document.body.append(form);
form.submit();
""")
_SCRIPT = _of_a_lease("""
const [url, method, headers, done] = arguments;
const body = method === "GET" ? undefined
  : JSON.stringify({ name: "attack", start: "now", duration: 60, reservations: RESERVATIONS });
fetch(url, { method, headers, body, credentials: "include" })
  .then((response) => response.text()).then(done, (error) => done(`failed: ${error}`));
""")


def is_at(browser: Browser, path: str) -> bool:
    return browser.path == path


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_form_and_a_script_of_another_site_change_nothing(
    service: Service, victim: Browser, other_port: int, host: str
) -> None:
    for path in ("/v2/leases", "/v1/leases", "/console/session"):
        victim.driver.get(f"http://{host}:{other_port}/")
        victim.js(_FORM, f"{service.url}{path}")
        victim.until(partial(is_at, victim, path), "the form was sent")
        assert "Only pages of this site" in victim.text or "of other sites" in victim.text
    victim.driver.get(f"http://{host}:{other_port}/")
    for headers in ({"Content-Type": "text/plain"}, {}, {"X-Climate-Csrf": "guess"}):
        for method, path in (("POST", "/v2/leases"), ("POST", "/console/session")):
            url = f"{service.url}{path}"
            read = victim.driver.execute_async_script(_SCRIPT, url, method, headers)
            assert read.startswith("failed"), "the script cannot read the answer"
    read = victim.driver.execute_async_script(_SCRIPT, f"{service.url}/v2/me", "GET", {})
    assert read.startswith("failed")
    assert _leases(service) == []
    victim.open("/console/")
    victim.until(lambda: victim.driver.find_element("css selector", ".top nav"), "signed in still")


_NEXT_READ = """
const [link, done] = arguments;
const fetched = window.fetch;
window.fetch = async (url, request) => {
  const answer = await fetched(url, request);
  if (request.method === "GET" && String(url).includes("/v2/")) done(answer.status);
  return answer;
};
document.querySelector(link).click();
"""


def test_a_page_that_outlives_its_session_reads_nothing(victim: Browser) -> None:
    """Without authentication, a request without session and secret would be one of an admin."""
    victim.driver.delete_all_cookies()
    link = 'nav a[href$="/console/leases"]'
    assert victim.driver.execute_async_script(_NEXT_READ, link) == 401


def test_scripts_cannot_read_the_cookie(victim: Browser) -> None:
    assert victim.js("return document.cookie") == ""
    [cookie] = victim.driver.get_cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("climate", True, "Strict")


def test_the_page_of_the_api_sends_requests_with_the_session(
    service: Service, browser: Browser
) -> None:
    browser.open("/v2/docs")
    browser.shows("Requests are sent as alice in project lab. This service does not check")
    browser.find("#operations-Leases-post_v2_leases .opblock-summary-control").click()
    button = browser.find("#operations-Leases-post_v2_leases .execute")
    browser.js("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click()", button)
    browser.until(lambda: _leases(service) == ["first lease"], "the lease was created")
    [lease] = service.ok("GET", "/v2/leases?all_projects=true")["leases"]
    assert (lease["user_id"], lease["project_id"]) == ("alice", "lab")
