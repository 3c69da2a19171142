"""The calendar of 10,000 hosts: what it shows, fetches, builds and keeps while one moves in it."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from benchmarks.calendar.console import (
    HOSTS,
    MOTIONS,
    compare_frames,
    serving_calendar,
    until_loaded,
)
from tests.browser.chromium import Browser
from tests.support.process import Service

# In the order of the rows, which is that of the names.
NAMES = sorted(f"host-{number}" for number in range(1, HOSTS + 1))
# Of one jump: a window of a week may touch two request windows, and the rows in sight two blocks.
MOST_REQUESTS = 4
MOST_ROWS = 100
MOST_CELLS = 1_500
_VIEW = "const view = document.querySelector('.calendar').view;"
_IN_SIGHT = (
    _VIEW
    + """
return view.itemsInSight().map(({ index }) => [index, view.data.row(index)?.name ?? null]);"""
)
# Each row of the grid: its place in the calendar, and the name that a screen reader says first.
_GRID = """
return [...document.querySelectorAll('.calendar-cells-body [role=row]')].map((row) =>
  [row.ariaRowIndex - 2, row.querySelector('[role=rowheader]').textContent]);"""
_RESTS = (
    f"{_VIEW} const says = view.grid.body.textContent;"
    "return !view.moving && !view.data.running && view.grid.isInPlace()"
    " && says !== '' && !says.includes('Loading');"
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return a service with the large calendar, which no test changes."""
    with serving_calendar(tmp_path_factory.mktemp("large")) as started:
        yield started


def settled(browser: Browser) -> None:
    """Wait until the calendar rests, and canvas and grid show what is in sight."""
    browser.until(lambda: browser.js(_RESTS), "the calendar rests")


def rows_in_sight(browser: Browser) -> list[int]:
    """Return the numbers of the rows in sight, after a check of their names."""
    settled(browser)
    shown = browser.js(_IN_SIGHT)
    assert shown == [[number, NAMES[number]] for number, _ in shown]
    said = browser.js(_GRID)
    wrong = [row for row in said if NAMES[row[0]] not in row[1].replace(",", " ").split()]
    assert wrong == []
    return [number for number, _ in shown]


def calendar_requests(browser: Browser) -> list[str]:
    """Return the requests for rows since the last call."""
    return [url for url in browser.requested() if urlsplit(url).path == "/v2/calendar"]


def elements(browser: Browser) -> dict[str, int]:
    script = (
        "const count = (css) => document.querySelectorAll(`.calendar ${css}`).length;"
        "return {rows: count('[role=row]'), cells: count('[role=gridcell]')};"
    )
    return dict(browser.js(script))


def scroll(browser: Browser, part: float) -> None:
    """Move the scroll bar until that part of all rows, from 0 to 1, is above the sight."""
    script = f"{_VIEW} view.element.scrollTop = arguments[0] * view.layout.height;"
    browser.js(script, part)


def heap(browser: Browser) -> int:
    """Return the bytes that scripts hold after a collection."""
    command: Any = browser.driver.execute_cdp_cmd
    command("HeapProfiler.collectGarbage", {})
    metrics = command("Performance.getMetrics", {})["metrics"]
    return int(next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize"))


def test_jumps_show_the_rows_of_their_place_and_fetch_no_others(browser: Browser) -> None:
    until_loaded(browser)
    assert rows_in_sight(browser)[0] == 0
    browser.js("document.querySelector('.calendar-scroll').focus()")
    calendar_requests(browser)
    last = HOSTS - 1
    jumps: dict[str, tuple[Callable[[], object], int]] = {
        "to the end": (lambda: browser.keys("Ctrl+End"), last),
        "to the start": (lambda: browser.keys("Ctrl+Home"), 0),
        "to the middle": (lambda: scroll(browser, 0.5), HOSTS // 2),
        "to the bottom": (lambda: scroll(browser, 1), last),
        "to a quarter": (lambda: scroll(browser, 0.25), HOSTS // 4),
        "to a month": (lambda: browser.click("Month"), HOSTS // 4),
        "back to a week": (lambda: browser.click("Week"), HOSTS // 4),
    }
    for name, (jump, row) in jumps.items():
        jump()
        assert row in rows_in_sight(browser), name
        assert len(calendar_requests(browser)) <= MOST_REQUESTS, name
        built = elements(browser)
        assert 0 < built["rows"] < MOST_ROWS, name
        assert 0 < built["cells"] < MOST_CELLS, name
    assert browser.js(f"{_VIEW} return view.state.zoom") == "week"


def test_jumps_do_not_fill_the_memory(browser: Browser) -> None:
    until_loaded(browser)
    browser.driver.execute_cdp_cmd("Performance.enable", {})
    held = {}
    for jump in range(1, 41):
        scroll(browser, jump * 0.618 % 1)
        settled(browser)
        if jump in {10, 40}:
            held[jump] = heap(browser)
    assert held[40] <= 2 * held[10]


@pytest.mark.nightly(reason="depends on the speed of the machine")
@pytest.mark.timeout(600)
def test_frames_come_as_on_an_empty_page(browser: Browser) -> None:
    found = compare_frames(browser, frames=200, rounds=2)
    assert {motion: found[motion] for motion in MOTIONS if found[motion]["ratio"] > 1.5} == {}
