"""Whole stories in the console: a lease from its first drag to its end, and a race of two users."""

import datetime as dt
from typing import Any

from tests.browser.calendar_page import Calendar
from tests.browser.chromium import Browser
from tests.browser.conftest import OpenBrowser
from tests.support.process import Service

# ``climate-standalone`` registers so many hosts.
HOSTS = 8


def test_a_lease_is_dragged_starts_is_prolonged_ended_and_deleted_without_a_reload(
    browser: Browser, service: Service
) -> None:
    calendar = Calendar(browser, service)
    browser.js("window.kept = 'the same page'")
    calendar.book("in the way", 3, 30, hosts=HOSTS)
    soon = (dt.datetime.now(dt.UTC) - calendar.hour) / dt.timedelta(hours=1)
    # Not yet free for so long: the refusal offers what is shorter.
    calendar.drag_band(soon + 0.05, 6)
    assert "other projects" in calendar.card("refused")
    browser.keys("Esc")
    lease_id = calendar.book("night run", soon + 5 / 3600, 2, who="alice:lab")
    browser.until(lambda: calendar.says("night run", "running"), "the calendar shows the start")
    calendar.drag_bar("night run", 2, 3)
    calendar.card("fits")
    browser.keys("Enter")
    calendar.card("done")
    assert [(name, end) for name, _, end in calendar.leases()] == [("night run", 3)]
    browser.click("Open night run")
    browser.click("End now")
    browser.find("dialog button.danger").click()
    browser.shows("Ended\nDelete")  # the state of the lease, which follows the history
    assert browser.path == f"/console/leases/{lease_id}"
    browser.click("Delete")
    browser.find("dialog button.danger").click()
    browser.shows("The lease is deleted.")
    assert browser.path == "/console/leases"
    assert browser.js("return window.kept") == "the same page"


def test_two_users_drag_over_the_last_host_and_one_is_refused(
    open_browser: OpenBrowser, service: Service
) -> None:
    users = {"alice": "lab", "bob": "other"}
    calendars = []
    for user, project in users.items():
        browser = open_browser()
        browser.sign_in(user, project)
        calendars.append(Calendar(browser, service))
    first, second = calendars
    first.book("most", 20, 40, hosts=HOSTS - 1, who="carol:third")
    for calendar in calendars:
        calendar.drag_band(24, 30)
        calendar.card("fits")
    first.browser.find("[data-action=reserve]").click()
    first.card("done")
    # The second card learns of it from the change, or from the answer to its own request.
    send = "document.querySelector('[data-action=reserve]')?.click()"
    second.browser.js(send)
    second.card("refused")
    assert len(first.leases()) == 1
    assert second.leases("bob:other") == []


def test_a_lease_waits_for_capacity_and_starts_when_another_lease_ends(
    open_browser: OpenBrowser, service: Service
) -> None:
    alice = Service(service.port, "alice:lab")
    full = _full(alice)
    browser = open_browser()
    browser.sign_in("bob", "other")
    browser.open("/console/new")
    browser.fill("Name", "patient")
    browser.shows("One host too few")
    browser.click("Wait for capacity")
    browser.shows("Leases that wait already may come first.")
    assert browser.axe() == []
    browser.keys("Enter")  # on the button that sends the form
    browser.shows("climate books an earlier start if others end early.")
    assert browser.axe() == []
    alice.ok("PATCH", f"/v2/leases/{full}", {"end": "now"})
    browser.shows("Running")
    browser.shows("Moved to an earlier time")


def test_how_long_a_lease_waits_is_chosen_and_changed(
    open_browser: OpenBrowser, service: Service
) -> None:
    alice = Service(service.port, "alice:lab")
    _full(alice)
    for number in range(5):
        alice.ok("POST", "/v2/leases", _asking(f"before-{number}", start="asap", wait={}))
    browser = open_browser()
    browser.sign_in()
    browser.open("/console/new?start=asap&wait=3600&amount=8")
    browser.fill("Name", "last")
    browser.fill("Priority", "0")
    browser.find("#reserve").click()
    browser.shows("position 6 in the wait list")
    browser.click("Change")
    browser.fill("Priority", "9")
    assert browser.axe() == []
    browser.find("dialog button[type=submit]").click()
    browser.shows("position 1 in the wait list")
    browser.open("/console/leases?state=waiting")
    browser.shows("position 1 in the wait list")
    assert browser.axe() == []


def test_an_offer_is_held_accepted_and_released(
    open_browser: OpenBrowser, service: Service
) -> None:
    browser = open_browser()
    browser.sign_in()
    for name in ("first", "second"):
        browser.open("/console/new")
        browser.fill("Name", name)
        browser.shows("This fits.")
        browser.click("Hold for some minutes")
        browser.shows("held until")
    assert browser.axe() == []
    browser.click("Release")
    browser.hides("first")
    browser.click("Accept")
    browser.shows("Running")
    held = Service(service.port, "alice:lab").ok("GET", "/v2/offers")
    assert held["offers"] == []


def _full(service: Service) -> str:
    """Reserve all hosts for two hours, and return the id of the running lease."""
    made = service.ok("POST", "/v2/leases", _asking("in the way", start="now"))
    service.until_lease_is(made["id"], "ACTIVE")
    return str(made["id"])


def _asking(name: str, **fields: Any) -> dict[str, Any]:
    params = {"min": HOSTS, "max": HOSTS}
    reservations = [{"resource_type": "physical:host", "params": params}]
    return {"name": name, "duration": 7200, "reservations": reservations, **fields}


def test_a_user_starts_and_stops_volumes_of_a_lease(browser: Browser, service: Service) -> None:
    silver = {"gigabytes": 100, "volumes": 10}
    resource = {"resource_type": "virtual:volume", "name": "silver", "properties": silver}
    service.ok("POST", "/v2/resources", resource)
    volumes = {"volume_type": "silver", "amount": 1, "size": 1, "on_start": "manual"}
    lease = Service(service.port, "alice:lab").ok(
        "POST",
        "/v2/leases",
        {
            "name": "on demand",
            "start": "now",
            "duration": 3600,
            "reservations": [{"resource_type": "virtual:volume", "params": volumes}],
        },
    )
    browser.open(f"/console/leases/{lease['id']}")
    browser.shows("Stopped")
    browser.click("Start Volumes")
    browser.shows("Started")
    browser.click("Stop Volumes")
    browser.find("dialog button.danger").click()
    browser.shows("Stopped")
