"""How smooth is the calendar in a browser? ``python -m benchmarks console [--rounds N] ...``.

Runs climate-api on the calendar of ``benchmarks.admission``, and Chromium with the console. Prints
one JSON object a line:

* ``frames``, for each motion: the intervals between animation frames in milliseconds, while the
  calendar moves in each frame (``p50``, ``p95``), and in the same loop on an empty page
  (``empty_p50``, ``empty_p95``). Calendar and empty page take turns. ``ratio`` is ``p95`` by
  ``empty_p95``, and ``late_pct`` the share of intervals longer than 25 ms.
* ``first_view``: milliseconds from the navigation of a signed-in user, with an empty cache, to the
  first paint (``paint``), to the first rows (``rows``) and to rows and band (``whole``): medians,
  and the highest in ``highest``.

``load`` is the load average of the machine at the end. Needs chromium and chromium-driver.
"""

import argparse
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.calendar.book import calendar
from benchmarks.calendar.load import load
from climate.db.engine import schema
from climate.db.engine.database import Database
from tests.browser.chromium import Browser, chromium, why_absent
from tests.support.process import Service, free_port, running

HOSTS = 10_000
BOOKINGS = 100_000
# Milliseconds between two frames of which the second came late: at 60 a second, one was left out.
LATE = 25
# What moves the calendar in frame number ``n`` of ``frames``.
MOTIONS = {
    "scroll": "view.element.scrollTop += 60;",
    "fling": "view.element.scrollTop += 1200;",
    "pan": "view.element.scrollLeft += 20;",
    "zoom": "view.setScale(view.scale * (n < frames / 2 ? 0.98 : 1 / 0.98), middle);",
}
_IS_LOADED = (
    "const view = document.querySelector('.calendar')?.view;"
    "return Boolean(view?.size) && view.data.row(0) !== null && !view.data.running"
    " && view.leastFree(view.from, view.to) !== null;"
)
_START = """
const view = document.querySelector('.calendar').view;
view.addEventListener("viewchange", () => { drawn += 1; });
const box = view.element.getBoundingClientRect();
const middle = box.left + view.size.left + view.size.body / 2;
view.element.scrollTop = 0;
"""
_LOOP = """
const done = arguments[arguments.length - 1];
const frames = arguments[0];
let drawn = 0;
%s
const intervals = [];
let before = null;
let n = 0;
const step = (now) => {
  if (before !== null) intervals.push(now - before);
  before = now;
  n += 1;
  if (n > frames) return done({ intervals, drawn });
  %s
  requestAnimationFrame(step);
};
requestAnimationFrame(step);
"""
# Notes in which frame the page first shows the rows, and the band too; a frame later it is painted.
_WATCH = """
window.firstView = {};
const look = () => {
  const view = document.querySelector('.calendar')?.view;
  const seen = window.firstView;
  if (seen.rowsFound) seen.rows ??= performance.now();
  if (seen.wholeFound && seen.rows) { seen.whole = performance.now(); return; }
  if (view?.size && view.data.row(0)) seen.rowsFound = true;
  if (seen.rowsFound && view.leastFree(view.from, view.to) !== null) seen.wholeFound = true;
  requestAnimationFrame(look);
};
if (location.pathname.startsWith('/console')) requestAnimationFrame(look);
"""
_FIRST_VIEW = """
const { rows, whole } = window.firstView;
if (!whole) return null;
const paint = performance.getEntriesByName('first-contentful-paint')[0].startTime;
return { paint, rows, whole };
"""


@contextmanager
def serving_calendar(home: Path, hosts: int = HOSTS, bookings: int = BOOKINGS) -> Iterator[Service]:
    """Run climate-api, without managers, on a database in ``home`` with a calendar from tomorrow.

    The hosts are host-1, host-2 and so on. The simulated cloud does not have them, so a manager
    would find them all unusable.
    """
    database = Database(f"sqlite:///{home}/calendar.sqlite")
    schema.upgrade(database)
    load(database, calendar(hosts, bookings))
    database.dispose()
    config = home / "calendar.conf"
    config.write_text(f"[database]\nconnection = sqlite:///{home}/calendar.sqlite\n")
    service = Service(free_port())
    given = ("--config-file", str(config), "--port", str(service.port))
    with running(home, "climate-api", *given) as program:
        program.says("climate is ready at")
        yield service


def until_loaded(browser: Browser) -> None:
    """Wait until the calendar shows what is in sight."""
    browser.until(lambda: browser.js(_IS_LOADED), "the calendar is loaded")


def frame_intervals(browser: Browser, frames: int, motion: str | None) -> list[float]:
    """Return the milliseconds between frames in which the page does a motion, or none."""
    loop = _LOOP % ((_START, MOTIONS[motion]) if motion else ("", ""))
    found = browser.driver.execute_async_script(loop, frames)
    assert not motion or found["drawn"] > frames / 2, f"{motion} drew {found['drawn']} pictures"
    return [float(each) for each in found["intervals"]]


def compare_frames(browser: Browser, frames: int, rounds: int) -> dict[str, dict[str, float]]:
    """Measure all motions and, in turns, an empty page; return the figures of each motion.

    ``frames`` are those of a motion in one round. The browser has signed in.
    """
    moving: dict[str, list[float]] = defaultdict(list)
    still: dict[str, list[float]] = defaultdict(list)
    browser.driver.set_script_timeout(120)
    for _ in range(rounds):
        for motion in MOTIONS:
            browser.driver.get("about:blank")
            still[motion] += frame_intervals(browser, frames, None)
            browser.open("/console/")
            until_loaded(browser)
            moving[motion] += frame_intervals(browser, frames, motion)
    return {motion: _figures(moving[motion], still[motion]) for motion in MOTIONS}


def _figures(moving: Sequence[float], still: Sequence[float]) -> dict[str, float]:
    p95, empty_p95 = percentile(moving, 95), percentile(still, 95)
    return {
        "p50": round(median(moving), 1),
        "p95": round(p95, 1),
        "empty_p50": round(median(still), 1),
        "empty_p95": round(empty_p95, 1),
        "ratio": round(p95 / empty_p95, 2),
        "late_pct": round(100 * sum(each > LATE for each in moving) / len(moving), 1),
    }


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that ``percent`` of the values do not exceed."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def first_views(browser: Browser, times: int) -> list[Mapping[str, float]]:
    """Open the console with an empty cache, and return the milliseconds of each time."""
    command = browser.driver.execute_cdp_cmd
    watch = command("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
    found = []
    for _ in range(times):
        browser.driver.get("about:blank")
        command("Network.clearBrowserCache", {})
        browser.open("/console/")
        found.append(browser.until(lambda: browser.js(_FIRST_VIEW), "rows and band are drawn"))
    command("Page.removeScriptToEvaluateOnNewDocument", watch)
    return found


def _median_view(found: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    names = ("paint", "rows", "whole")
    return {
        **{name: round(median(each[name] for each in found)) for name in names},
        "highest": {name: round(max(each[name] for each in found)) for name in names},
    }


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser("benchmarks.calendar.console", description=__doc__)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--bookings", type=int, default=BOOKINGS)
    parser.add_argument("--frames", type=int, default=200, help="frames of a motion in a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--times", type=int, default=5, help="how often the console is opened")
    given = parser.parse_args()
    if reason := why_absent():
        raise SystemExit(f"not measured: {reason}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with (
            serving_calendar(home, given.hosts, given.bookings) as service,
            chromium(service.url, home / "profile") as browser,
        ):
            browser.sign_in()
            views = _median_view(first_views(browser, given.times))
            _print("first_view", {"times": given.times, **views})
            found = compare_frames(browser, given.frames, given.rounds)
            for motion, figures in found.items():
                _print("frames", {"motion": motion, **figures})


def _print(case: str, figures: Mapping[str, Any]) -> None:
    load_average = round(os.getloadavg()[0], 1)
    print(json.dumps({"case": case, **figures, "load": load_average}), flush=True)


if __name__ == "__main__":
    main()
