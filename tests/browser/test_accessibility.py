"""Each page without violations of WCAG 2.2 AA, in both themes, on a desktop and on a phone."""

import datetime as dt

import pytest

from tests.browser.calendar_page import Calendar
from tests.browser.chromium import DESKTOP, PHONE, Browser
from tests.browser.conftest import OpenBrowser
from tests.support.process import Service

# A name with markup, with characters that reverse the text, and as long as possible.
HOSTILE = "<img src=x onerror=alert(1)>\u202e'\"&amp; " + "W" * 30
NARROW = (320, 700)
# All texts of a page: those that it shows, and those that screen readers say.
_SAID = (
    "return document.body.textContent + [...document.querySelectorAll('[aria-label]')]"
    ".map((element) => element.getAttribute('aria-label')).join()"
)
PAGES = [
    "/console/",
    "/console/leases",
    "/console/new",
    "/console/resources",
    "/console/limits",
    "/console/subscriptions",
    "/console/feeds",
    *(
        f"/console/operations/{tab}"
        for tab in ("now", "ready", "power", "failing", "leases", "notifications", "utilisation")
    ),
]


@pytest.fixture
def filled(service: Service) -> tuple[Service, str]:
    """Return a service with leases of two projects, and the id of the first one."""
    lease = _book(service, "alice:lab", HOSTILE, 0, 30, hosts=2)
    _book(service, "alice:lab", "later", 40, 60)
    _book(service, "bob:other", "theirs", 5, 50, hosts=3)
    return service, lease


def _book(service: Service, token: str, name: str, start: int, end: int, hosts: int = 1) -> str:
    """Create a lease from so many hours after now, 0 meaning now; return its id."""
    now = dt.datetime.now(dt.UTC)
    first, last = (f"{now + dt.timedelta(hours=hour):%Y-%m-%dT%H:%M:%SZ}" for hour in (start, end))
    body = {
        "name": name,
        "start": first if start else "now",
        "end": last,
        "reservations": [{"resource_type": "physical:host", "params": {"min": 1, "max": hosts}}],
    }
    return str(Service(service.port, token).ok("POST", "/v2/leases", body)["id"])


def test_forms_take_keys_at_once(open_browser: OpenBrowser) -> None:
    browser = open_browser()
    browser.open("/console/")
    browser.find("input[name=user]")
    browser.keys("z")
    assert browser.js("return document.activeElement.value") == "z"
    browser.sign_in()
    browser.open("/console/feeds")
    browser.click("Create feed")
    browser.find("dialog select")
    assert browser.js("return document.activeElement.name") == "scope"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_violates_the_guidelines(
    open_browser: OpenBrowser, filled: tuple[Service, str], theme: str
) -> None:
    service, lease_id = filled
    browser = open_browser()
    browser.emulate(prefers_color_scheme=theme)
    browser.open("/console/")
    browser.field("User")
    found = {"sign-in": browser.axe()}
    browser.sign_in("root", "lab", "admin")
    host = service.ok("GET", "/v2/resources?limit=1")["resources"][0]["id"]
    for path in (*PAGES, f"/console/leases/{lease_id}", f"/console/resources/{host}"):
        for size in (DESKTOP, PHONE, NARROW):
            browser.resize(size)
            browser.open(path)
            _wait_until_loaded(browser)
            found[f"{path} {size[0]}"] = browser.axe()
            if size == NARROW and not _fits(browser):
                found[f"{path} is wider than the screen"] = ["scrolls sideways"]
    assert {page: violations for page, violations in found.items() if violations} == {}


def test_a_refusal_and_its_alternatives_violate_no_guideline(
    browser: Browser, service: Service
) -> None:
    calendar = Calendar(browser, service)
    calendar.book("full", 24, 30, hosts=8)
    calendar.drag_band(22, 28)
    calendar.card("refused")
    assert browser.axe() == []
    for size in (PHONE, NARROW):
        browser.resize(size)
        calendar.card("refused")
        assert browser.axe() == []
        assert _fits(browser)


def test_names_are_shown_as_text(open_browser: OpenBrowser, filled: tuple[Service, str]) -> None:
    _, lease_id = filled
    browser = open_browser()
    browser.sign_in()
    for path in ("/console/", "/console/leases", f"/console/leases/{lease_id}"):
        browser.open(path)
        _wait_until_loaded(browser)
        shown = browser.until(
            lambda: "<img src=x" in (text := str(browser.js(_SAID))) and text,
            f"{path} shows the name of the lease",
        )
        assert "\u202e" not in str(shown)
        assert browser.js("return document.querySelectorAll('img').length") == 0


def test_the_calendar_is_usable_on_a_phone(
    open_browser: OpenBrowser, filled: tuple[Service, str]
) -> None:
    browser = open_browser()
    browser.resize(PHONE)
    browser.sign_in()
    browser.find("#tabs nav")
    browser.find("[role=grid] [role=rowheader]")
    assert _fits(browser)
    small = browser.js(
        "return [...document.querySelectorAll('#tabs a, .calendar-bar button')]"
        ".filter((item) => item.offsetParent && item.getBoundingClientRect().height < 24)"
        ".map((item) => item.textContent)"
    )
    assert small == []


def _fits(browser: Browser) -> bool:
    """Return whether the page needs no sideways scrolling."""
    script = "return document.documentElement.scrollWidth <= window.innerWidth"
    return bool(browser.js(script))


def _wait_until_loaded(browser: Browser) -> None:
    script = (
        "return document.querySelector('main h1') && !document.querySelector('[aria-busy=true]')"
    )
    browser.until(lambda: browser.js(script, "[aria-busy=true]"), f"{browser.path} has loaded")
