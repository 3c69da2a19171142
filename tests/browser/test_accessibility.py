"""Each page without violations of WCAG 2.2 AA, in both themes, on a desktop and on a phone."""

import datetime as dt

import pytest

from tests.browser.calendar import HOUR, Calendar, book, next_day
from tests.browser.chromium import DESKTOP, PHONE, Browser
from tests.browser.conftest import OpenBrowser
from tests.support.process import Service

# A name with markup, with characters that reverse the text, and as long as possible.
HOSTILE = "<img src=x onerror=alert(1)>\u202e'\"&amp; " + "W" * 45
NARROW = (320, 700)
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
        for tab in ("now", "preparations", "power", "failing", "leases", "notifications")
    ),
]


@pytest.fixture
def filled(service: Service) -> tuple[Service, str]:
    """Return a service with leases of two projects, and the id of the first one."""
    now = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    lease = book(service, "alice:lab", HOSTILE, "now", now + 30 * HOUR, hosts=2)
    book(service, "alice:lab", "later", now + 40 * HOUR, now + 60 * HOUR)
    book(service, "bob:other", "theirs", now + 5 * HOUR, now + 50 * HOUR, hosts=3)
    body = {"url": "http://127.0.0.1:9/hook", "event_types": []}
    Service(service.port, "alice:lab").ok("POST", "/v2/subscriptions", body)
    return service, str(lease["id"])


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
    day = next_day()
    book(service, "bob:other", "full", day + 10 * HOUR, day + 14 * HOUR, hosts=8)
    calendar = Calendar.open(browser, day)
    browser.drag([calendar.band(9), calendar.band(11), calendar.band(13)])
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
            lambda: browser.js("return document.body.textContent").count("<img src=x") or None,
            f"{path} shows the name of the lease",
        )
        assert shown
        assert browser.js("return document.querySelectorAll('img').length") == 0
        assert "\u202e" not in browser.js("return document.body.textContent")


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


def test_the_console_weighs_less_than_150_kilobytes(browser: Browser) -> None:
    """All files of the console together, as the browser receives them."""
    total = sum(_sizes(browser).values())
    assert total < 150_000


def _sizes(browser: Browser) -> dict[str, int]:
    """Return the compressed size of each file that the pages load, pages included."""
    for path in (*PAGES, "/console/leases/none", "/console/resources/0"):
        browser.open(path)
        _wait_until_loaded(browser)
    script = (
        "const done = arguments[arguments.length - 1];"
        "Promise.all([...arguments[0]].map(async (url) => {"
        " const answer = await fetch(url); const body = await answer.blob();"
        " const length = Number(answer.headers.get('Content-Length'));"
        " return [url, answer.headers.has('Content-Encoding') ? length : body.size]; }))"
        ".then((pairs) => done(Object.fromEntries(pairs)));"
    )
    urls = {url.partition("#")[0] for url in browser.requested() if "/console/static/" in url}
    assert len(urls) > 20
    sizes = browser.driver.execute_async_script(script, sorted(urls))
    return {str(url): int(size) for url, size in sizes.items()}


def _fits(browser: Browser) -> bool:
    """Return whether the page needs no sideways scrolling."""
    script = "return document.documentElement.scrollWidth <= window.innerWidth"
    return bool(browser.js(script))


def _wait_until_loaded(browser: Browser) -> None:
    script = (
        "return document.querySelector('main h1') && !document.querySelector('[aria-busy=true]')"
    )
    browser.until(lambda: browser.js(script, "[aria-busy=true]"), f"{browser.path} has loaded")
