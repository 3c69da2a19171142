"""People reserve in the calendar: by mouse and by keys, with refusals and races."""

import datetime as dt
from typing import Any

from tests.browser.calendar import HOUR, Calendar, book, leases, next_day, text_of
from tests.browser.chromium import Browser
from tests.browser.conftest import OpenBrowser
from tests.support.process import Service

ALL = 8


def test_a_refused_selection_offers_an_alternative_that_one_key_accepts(
    browser: Browser, service: Service
) -> None:
    day = next_day()
    book(service, "bob:other", "secret-name", day + 10 * HOUR, day + 14 * HOUR, hosts=ALL)
    calendar = Calendar.open(browser, day)
    # The window is full: the refusal names nobody, and offers a window that is free.
    browser.drag([calendar.band(9), calendar.band(11), calendar.band(13)])
    card = calendar.card("refused")
    assert "other projects" in card.text
    assert "secret-name" not in browser.driver.page_source
    browser.keys("A")
    calendar.card("fits")
    browser.fill("Name", "night run")
    calendar.submit()
    calendar.card("done")
    [lease] = leases(service)
    assert (lease["name"], lease["status"]) == ("night run", "PENDING")
    assert lease["start"] >= text_of(day + 14 * HOUR) or lease["end"] <= text_of(day + 10 * HOUR)


def test_a_lease_becomes_active_is_prolonged_by_dragging_and_ended_without_reload(
    browser: Browser, service: Service
) -> None:
    now = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0)
    calendar = Calendar.open(browser, now)
    browser.js("window.kept = 'the same page'")
    browser.keys("Esc")
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=4)
    lease = book(service, "alice:lab", "quick", soon, now + 3 * HOUR)
    assert lease["status"] == "PENDING"
    calendar.shows("running")
    [row] = Service(service.port, "alice:lab").ok("GET", f"/v2/leases/{lease['id']}/resources")[
        "resources"
    ]
    browser.drag(
        [calendar.row(row["id"], 3), calendar.row(row["id"], 4), calendar.row(row["id"], 5)]
    )
    calendar.card("fits")
    calendar.submit()
    calendar.card("done")
    assert leases(service)[0]["end"] == text_of(now + 5 * HOUR).replace("Z", ".000000Z")
    browser.click("Open quick")
    browser.click("End now")
    browser.find("dialog")
    browser.named("End now", "dialog button").click()
    browser.shows("Ended")
    assert browser.js("return window.kept") == "the same page"


def test_two_users_drag_over_the_last_host_and_one_is_refused(
    open_browser: OpenBrowser, service: Service
) -> None:
    day = next_day()
    book(service, "carol:third", "most", day, day + 24 * HOUR, hosts=ALL - 1)
    first, second = open_browser(), open_browser()
    first.sign_in("alice", "lab")
    second.sign_in("bob", "other")
    calendars = [Calendar.open(browser, day) for browser in (first, second)]
    for calendar in calendars:
        calendar.browser.drag([calendar.band(8), calendar.band(9), calendar.band(12)])
        calendar.card("fits")
        calendar.browser.fill("Name", "last host")
    calendars[0].submit()
    calendars[0].card("done")
    # The other page learns of it before a click, or from the answer to the click.
    second.until(lambda: _is_refused(calendars[1]), "the second user sees that the host is taken")
    assert [lease["name"] for lease in leases(service)] == ["last host"]
    assert leases(service, "bob:other") == []


def _is_refused(calendar: Calendar) -> bool:
    buttons = calendar.browser.driver.find_elements("css selector", '[data-action="reserve"]')
    if buttons:
        buttons[0].click()
    return bool(calendar.browser.driver.find_elements("css selector", '[data-state="refused"]'))


def _held(service: Service, lease_id: str) -> list[dict[str, Any]]:
    """Return the hosts of a lease of alice."""
    owner = Service(service.port, "alice:lab")
    return list(owner.ok("GET", f"/v2/leases/{lease_id}/resources")["resources"])


def test_the_keyboard_alone_reserves_moves_and_deletes(browser: Browser, service: Service) -> None:
    day = next_day()
    Calendar.open(browser, day)
    calendar = Calendar(browser, day)
    browser.js("document.querySelector('.calendar').view.element.focus()")
    browser.find("[role=grid]")
    browser.keys("Ctrl+Home", "Shift+Right", "Shift+Right", "Shift+Right")
    calendar.card("fits")
    browser.until(lambda: "free" in browser.announced, "the selection is announced")
    browser.keys("Enter")
    browser.keys(*"by key", "Enter")
    calendar.card("done")
    [lease] = leases(service)
    assert lease["name"] == "by key"


def test_a_selection_on_a_row_reserves_that_host(browser: Browser, service: Service) -> None:
    day = next_day()
    calendar = Calendar.open(browser, day)
    admin = Service(service.port)
    [host] = admin.ok("GET", "/v2/resources?resource_type=physical:host&q=sim-5")["resources"]
    row = host["id"]
    browser.drag([calendar.row(row, 6), calendar.row(row, 7), calendar.row(row, 9)])
    calendar.card("fits")
    browser.fill("Name", "that one")
    calendar.submit()
    calendar.card("done")
    [lease] = leases(service)
    assert [host["name"] for host in _held(service, lease["id"])] == ["sim-5"]


def test_a_lost_answer_is_sent_again_and_reserves_once(browser: Browser, service: Service) -> None:
    day = next_day()
    calendar = Calendar.open(browser, day)
    browser.drag([calendar.band(8), calendar.band(9), calendar.band(12)])
    calendar.card("fits")
    browser.fill("Name", "once")
    # The request arrives, and its answer is lost.
    browser.js(
        "const send = window.fetch; window.fetch = async (path, request) => {"
        " const answer = await send(path, request);"
        " if (request.method === 'POST' && !path.includes('dry_run')) {"
        "  window.fetch = send; throw new TypeError('lost'); }"
        " return answer; }"
    )
    calendar.submit()
    calendar.card("unknown")
    browser.click("Try again")
    calendar.card("done")
    assert [lease["name"] for lease in leases(service)] == ["once"]
