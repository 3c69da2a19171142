"""Reserving in the calendar: by mouse, touch and keys; refusals, races, lost answers."""

import time
from collections.abc import Callable

import pytest

from tests.browser.calendar_page import Calendar
from tests.browser.chromium import PHONE, Browser
from tests.browser.conftest import OpenBrowser
from tests.support.process import Service

# ``climate-standalone`` registers so many hosts.
HOSTS = 8


@pytest.fixture
def calendar(browser: Browser, service: Service) -> Calendar:
    return Calendar(browser, service)


def by_mouse(calendar: Calendar) -> None:
    calendar.drag_band(24, 30)


def by_keys(calendar: Calendar) -> None:
    calendar.focus()
    browser = calendar.browser
    browser.keys("Shift+Right")
    start, end = calendar.selection or (0, 0)
    browser.keys("Ctrl+Right", *["Left"] * round(start), *["Shift+Right"] * round(6 - end + start))
    browser.keys("Enter")


def by_touch(calendar: Calendar) -> None:
    y = calendar.band
    calendar.touch("Start", (calendar.x(24), y))
    calendar.browser.until(lambda: calendar.selection, "the long press selects")
    calendar.touch("Move", (calendar.x(24) + 20, y))
    calendar.touch("Move", (calendar.x(30), y))
    calendar.touch("End")


def by_taps(calendar: Calendar) -> None:
    y = calendar.band
    for hours in (24, 30):
        calendar.touch("Start", (calendar.x(hours), y))
        calendar.touch("End")
        calendar.card("fits")


def by_fields(calendar: Calendar) -> None:
    calendar.drag_band(40, 42)
    calendar.card("fits")
    calendar.browser.click("Set times and amount")
    # The browser is in Berlin.
    zone = "return new Date(arguments[0]).toLocaleString('sv', {timeZone: 'Europe/Berlin'})"
    for label, hours in (("Start (Berlin time)", 24), ("End (Berlin time)", 30)):
        local = calendar.browser.js(zone, calendar.time(hours).timestamp() * 1000)
        calendar.browser.fill(label, local.replace(" ", "T")[:16])


@pytest.mark.parametrize("way", [by_mouse, by_keys, by_touch, by_taps, by_fields])
def test_every_way_to_select_gives_the_same_lease(
    calendar: Calendar, way: Callable[[Calendar], None]
) -> None:
    browser = calendar.browser
    way(calendar)
    browser.until(lambda: calendar.selection == (24, 30), "six hours from tomorrow are selected")
    assert f"{HOSTS} of {HOSTS} are free all through" in calendar.card("fits")
    browser.fill("Name", "ablation-1")
    browser.keys("Enter")
    calendar.card("done")
    assert calendar.leases() == [("ablation-1", 24, 30)]
    assert "Reserved: ablation-1" in browser.announced
    assert browser.axe("'.reserve-card'") == []


@pytest.mark.parametrize(
    ("letter", "said", "start", "end", "hosts"),
    [
        ("A", "3 hours later", 27, 31, HOSTS),
        ("B", "1 hour instead of 4", 24, 25, HOSTS),
        ("C", "7 hosts instead of 8", 24, 28, HOSTS - 1),
    ],
)
def test_accepts_each_alternative_of_a_refusal(
    calendar: Calendar, letter: str, said: str, start: float, end: float, hosts: int
) -> None:
    browser = calendar.browser
    calendar.book("ablation-7", 25, 27, who="alice:lab")
    calendar.need(HOSTS)
    calendar.drag_band(24, 28)
    card = calendar.card("refused")
    assert "One host too few" in card
    assert "In the way: your lease ablation-7." in card
    assert said in card
    assert browser.axe("'.reserve-card'") == []
    browser.until(lambda: "One host too few" in browser.announced, "the refusal is announced")
    browser.keys(letter)
    calendar.card("fits")
    browser.keys("Enter")
    calendar.card("done")
    [lease] = [each for each in calendar.leases() if each[0] != "ablation-7"]
    assert lease[1:] == (start, end)
    listed = calendar.send("GET", "/v2/leases")["leases"]
    [params] = [each["reservations"][0]["params"] for each in listed if each["name"] == lease[0]]
    assert (params["min"], params["max"]) == (hosts, hosts)


def test_reserves_the_rows_that_were_dragged_over(calendar: Calendar) -> None:
    calendar.drag_rows("sim-2", "sim-4", 24, 30)
    assert "These 3 hosts for 6 hours" in calendar.card("fits")
    calendar.browser.keys("Enter")
    calendar.card("done")
    [lease] = calendar.send("GET", "/v2/leases")["leases"]
    listed = calendar.send("GET", f"/v2/leases/{lease['id']}/resources")["resources"]
    assert sorted(each["name"] for each in listed) == ["sim-2", "sim-3", "sim-4"]


def test_reserves_from_the_field_of_the_amount_and_closes_the_fields(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.drag_band(24, 30)
    calendar.card("fits")
    browser.click("Set times and amount")
    browser.fill("Number of hosts", "2")
    browser.keys("Enter")
    assert "Number of hosts" not in calendar.card("done")
    assert browser.js("return document.activeElement.textContent") == "Close"


def test_proposes_no_name_of_the_user_before(calendar: Calendar, service: Service) -> None:
    browser = calendar.browser
    for user in ("alice", "bob"):
        calendar.drag_band(24, 30)
        calendar.card("fits")
        assert browser.field("Name").get_attribute("value") == f"{user}-1"
        browser.keys("Enter")
        calendar.card("done")
        browser.driver.delete_all_cookies()
        browser.sign_in("bob", "other")
        calendar = Calendar(browser, service)


def test_finds_the_soonest_windows(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.book("all", 2, 6, hosts=HOSTS)
    calendar.need(2)
    browser.fill("Duration", "4 h")
    browser.keys("Enter")
    assert "2 hosts for 4 hours" in calendar.card("fits")
    start, _ = calendar.selection or (0, 0)
    assert start == pytest.approx(6, abs=0.1)
    browser.keys("Enter")
    calendar.card("done")
    assert [each[2] - each[1] for each in calendar.leases()] == [4]


def test_moves_and_prolongs_a_lease_by_dragging(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.book("nightly", 24, 30, hosts=2, who="alice:lab")
    calendar.drag_bar("nightly", 27, 30)
    assert "Move 3 hours later" in calendar.card("fits")
    browser.keys("Enter")
    calendar.card("done")
    assert calendar.leases() == [("nightly", 27, 33)]
    browser.keys("Esc")
    calendar.no_card()
    calendar.book("next", 33, 40, hosts=HOSTS - 2)
    calendar.drag_bar("nightly", 33, 36)
    card = calendar.card("fits")
    assert "Prolong by 3 hours" in card
    assert "It may get other hosts." in card
    browser.keys("Enter")
    calendar.card("done")
    assert calendar.leases() == [("nightly", 27, 36)]


def test_moves_and_shortens_a_lease_by_keys(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.book("nightly", 24, 30, who="alice:lab")
    host = calendar.holder("nightly")
    calendar.focus()
    browser.js(
        "const view = document.querySelector('.calendar').view;"
        "view.grid.focusHit({area: 'row', row: {index: view.data.indexOf(arguments[0])},"
        " time: arguments[1]})",
        host.removeprefix("sim-"),
        calendar.time(25).timestamp() * 1000,
    )
    browser.keys("m", "Right", "Right", "Enter")
    calendar.card("fits")
    browser.keys("Enter")
    calendar.card("done")
    assert calendar.leases() == [("nightly", 26, 32)]
    browser.keys("Esc", "e", "Left", "Enter")
    assert "Shorten by 1 hour" in calendar.card("fits")
    browser.keys("Enter")
    calendar.card("done")
    assert calendar.leases() == [("nightly", 26, 31)]


def test_says_what_changed_when_a_change_is_out_of_date(calendar: Calendar) -> None:
    browser = calendar.browser
    lease = calendar.book("nightly", 24, 30, who="alice:lab")
    calendar.drag_bar("nightly", 30, 34)
    calendar.card("fits")
    calendar.send("PATCH", f"/v2/leases/{lease}", {"name": "weekly"})
    browser.keys("Enter")
    browser.shows("its name is now weekly")
    assert "Prolong by 4 hours" in calendar.card("fits")
    browser.keys("Enter")
    calendar.card("done")
    assert calendar.leases() == [("weekly", 24, 34)]


def test_says_so_when_somebody_takes_what_the_pointer_holds(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.need(HOSTS)
    y = calendar.band
    browser.press((calendar.x(24), y), (calendar.x(24) + 12, y), (calendar.x(30), y))
    label = "return document.querySelector('.calendar').view.overlay?.label"
    browser.until(lambda: ": 8 free throughout" in str(browser.js(label)), "it fits")
    assert " to " in browser.js(label).split(": ")[0]
    calendar.book("rival", 25, 26)
    browser.until(lambda: "7 free throughout" in str(browser.js(label)), "it fits no longer")
    assert calendar.selection == (24, 30)
    browser.release()
    card = calendar.card("refused")
    assert "Taken " in card
    assert "s ago." in card
    assert "In the way: other projects." in card


def test_keeps_a_typed_name_through_a_refusal_and_tells_when_it_fits(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.need(HOSTS)
    calendar.drag_band(24, 30)
    calendar.card("fits")
    browser.fill("Name", "big")
    rival = calendar.book("rival", 25, 26)
    calendar.card("refused")
    assert browser.js("return document.activeElement.dataset.field") == "name"
    browser.click("Tell me when it fits")
    browser.shows("The check is repeated with each change")
    calendar.send("DELETE", f"/v2/leases/{rival}", who="bob:other")
    assert "It fits now." in calendar.card("fits")
    browser.until(lambda: "It fits now." in browser.announced, "the change is announced")
    browser.click("Reserve Enter")
    calendar.card("done")
    assert calendar.leases() == [("big", 24, 30)]


def test_sends_a_request_again_with_the_same_key_when_the_answer_is_lost(
    calendar: Calendar,
) -> None:
    browser = calendar.browser
    calendar.drag_band(24, 30)
    calendar.card("fits")
    browser.js(
        """
        const send = window.fetch;
        window.keys = [];
        window.fetch = async (path, request) => {
          const key = request.headers["Idempotency-Key"];
          const answer = await send(path, request);
          if (key && window.keys.push(key) === 1) throw new TypeError("lost");
          return answer;
        };
        """
    )
    browser.keys("Enter")
    assert "It is not known whether this was reserved" in calendar.card("unknown")
    browser.click("Try again")
    calendar.card("done")
    first, second = browser.js("return window.keys")
    assert first == second
    assert len(calendar.leases()) == 1


def test_keeps_the_selection_while_one_signs_in_again(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.drag_band(24, 30)
    calendar.card("fits")
    browser.fill("Name", "kept")
    browser.driver.delete_all_cookies()
    browser.keys("Enter")
    browser.shows("Sign in again")
    browser.fill("User", "alice")
    browser.fill("Project", "lab")
    browser.find("dialog [type=submit]").click()
    calendar.card("done")
    assert calendar.leases() == [("kept", 24, 30)]


def test_says_what_is_wrong_with_what_was_typed_into_the_bar(calendar: Calendar) -> None:
    browser = calendar.browser
    calendar.need(1, "vcpus >=")
    browser.shows('Write a value after "vcpus >=".')
    assert browser.axe("'.calendar-bar'") == []
    calendar.need(1, "vcpu >= 4")
    browser.shows("did you mean vcpus?")
    calendar.need(1, "vcpus >= 64")
    browser.hides("did you mean")
    browser.until(lambda: browser.js("return location.search").find("properties") > 0, "address")
    calendar.drag_band(24, 30)
    assert "2 of 2 are free all through" in calendar.card("fits")


def test_reserves_on_a_phone_in_a_sheet(open_browser: OpenBrowser, service: Service) -> None:
    browser = open_browser()
    browser.resize(PHONE)
    browser.driver.execute_cdp_cmd(
        "Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2}
    )
    browser.sign_in()
    calendar = Calendar(browser, service)
    calendar.touch("Start", (calendar.x(2), calendar.band))
    calendar.touch("End")
    calendar.card("fits")
    sheet = "const box = document.querySelector('.reserve-card').getBoundingClientRect();"
    assert browser.js(f"{sheet} return [box.left, box.right, box.bottom]") == [0, *PHONE]
    assert browser.js(f"{sheet} return box.top") > calendar.band
    assert browser.js("return document.documentElement.scrollWidth") == PHONE[0]
    handle = browser.find("[data-handle=end]")
    assert handle.size == {"width": 44, "height": 44}
    middle = (handle.location["x"] + 22, handle.location["y"] + 22)
    calendar.touch("Start", middle)
    calendar.touch("Move", (calendar.x(5), middle[1]))
    calendar.touch("End")
    browser.until(lambda: calendar.selection == (2, 5), "the handle moves the end")
    calendar.card("fits")
    browser.click("Reserve")
    calendar.card("done")
    assert [each[1:] for each in calendar.leases()] == [(2, 5)]


def test_a_drag_by_touch_scrolls_and_selects_nothing(
    open_browser: OpenBrowser, service: Service
) -> None:
    browser = open_browser()
    browser.resize(PHONE)
    browser.driver.execute_cdp_cmd(
        "Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2}
    )
    browser.sign_in()
    calendar = Calendar(browser, service)
    before = calendar.x(2)
    y = calendar.band
    calendar.touch("Start", (300, y))
    for step in range(1, 12):
        calendar.touch("Move", (300 - 12 * step, y))
        time.sleep(0.02)  # A finger takes its time; without it this is a fling.
    calendar.touch("End")
    browser.until(lambda: calendar.x(2) < before - 50, "the calendar scrolls")
    calendar.no_card()
