"""Take the screenshots of README and docs: ``python -m tests.browser.screenshots [FOLDER]``.

Starts a service with a simulated cloud, fills it with leases of several projects, and opens its
pages in Chromium.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.browser.calendar_page import Calendar
from tests.browser.chromium import DESKTOP, PHONE, Browser, chromium
from tests.support.process import Service, standalone

FOLDER = Path("docs/images")
_SIZE = (1280, 720)
# Name, start and end in hours from now (0: now), hosts, and who reserves them.
_LEASES = [
    ("protein-fold", 0, 38, 2, "alice:lab"),
    ("nightly-train", 62, 82, 1, "alice:lab"),
    ("eval-suite", 90, 116, 2, "alice:lab"),
    ("a", 2, 20, 3, "bob:other"),
    ("b", 26, 50, 5, "bob:other"),
    ("c", 56, 76, 4, "carol:third"),
    ("d", 84, 100, 3, "carol:third"),
]


def main() -> None:
    """Take all screenshots into the folder that the command line names."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    with (
        tempfile.TemporaryDirectory() as home,
        standalone(Path(home)) as (service, _),
        chromium(service.url, Path(home) / "profile") as browser,
    ):
        browser.sign_in()
        calendar = Calendar(browser, service)
        ids = {lease[0]: _book(calendar, *lease) for lease in _LEASES}
        for theme in ("light", "dark"):
            browser.emulate(prefers_color_scheme=theme)
            _take(browser, folder, theme, ids["protein-fold"], service)


def _book(calendar: Calendar, name: str, start: float, end: float, hosts: int, who: str) -> str:
    if not start:
        start = (time.time() + 3 - calendar.hour.timestamp()) / 3600
    return calendar.book(name, start, end, hosts, who)


def _take(browser: Browser, folder: Path, theme: str, lease_id: str, service: Service) -> None:
    def shot(name: str) -> None:
        time.sleep(1)  # for what is drawn a moment after the data came
        browser.screenshot(folder / f"{name}-{theme}.png")

    browser.resize(_SIZE)
    browser.open("/console/")
    calendar = Calendar(browser, service)
    shot("calendar")
    browser.fill("Amount", "4")
    browser.keys("Tab")
    calendar.drag_band(28, 44)
    calendar.card("refused")
    shot("refusal")
    pages: dict[str, Callable[[], None]] = {
        f"/console/leases/{lease_id}": lambda: shot("lease"),
        "/console/new": lambda: shot("new-lease"),
    }
    for path, take in pages.items():
        browser.open(path)
        browser.find("main h1")
        take()
    browser.resize(PHONE)
    browser.open("/console/")
    Calendar(browser, service)
    shot("phone")
    browser.resize(DESKTOP)


if __name__ == "__main__":
    main()
