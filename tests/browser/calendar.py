"""The calendar as a person sees it: where bars and hours are, and the card beside a selection."""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from selenium.webdriver.remote.webelement import WebElement

from tests.browser.chromium import Browser
from tests.support.process import Service

HOUR = dt.timedelta(hours=1)
CARD = ".reserve-card"
_VIEW = "const view = document.querySelector('.calendar').view;"

Point = tuple[float, float]


def next_day() -> dt.datetime:
    """Return 00:00 UTC of tomorrow, which the week of the calendar may not show yet."""
    today = dt.datetime.now(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today + dt.timedelta(days=1)


def text_of(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def book(
    service: Service,
    token: str,
    name: str,
    start: dt.datetime | str,
    end: dt.datetime,
    hosts: int = 1,
) -> dict[str, Any]:
    """Create a lease of hosts by the API, as the user and project of a token."""
    body = {
        "name": name,
        "start": start if isinstance(start, str) else text_of(start),
        "end": text_of(end),
        "reservations": [
            {"resource_type": "physical:host", "params": {"min": hosts, "max": hosts}}
        ],
    }
    return dict(Service(service.port, token).ok("POST", "/v2/leases", body))


def leases(service: Service, token: str = "alice:lab") -> list[dict[str, Any]]:
    """Return the leases of a project by their start."""
    return list(Service(service.port, token).ok("GET", "/v2/leases?sort=start")["leases"])


@dataclass(frozen=True, slots=True)
class Calendar:
    """The calendar page of a browser, scrolled to a day."""

    browser: Browser
    day: dt.datetime

    @classmethod
    def open(cls, browser: Browser, day: dt.datetime, zoom: str = "Day") -> "Calendar":
        """Open the page at a day, and wait until the rows are there."""
        browser.open("/console/")
        browser.click(zoom)
        calendar = cls(browser, day)
        calendar.show(day)
        browser.find("[role=grid] [role=rowheader]")
        return calendar

    def show(self, moment: dt.datetime) -> None:
        self.browser.js(f"{_VIEW} view.goTo(arguments[0])", _epoch(moment))

    def band(self, hours: float) -> Point:
        """Return the middle of the band at so many hours after the start of the day."""
        return self._point({"place": "band", "rows": []}, hours)

    def row(self, resource_id: str, hours: float) -> Point:
        """Return the middle of a row at so many hours after the start of the day."""
        return self._point({"place": "rows", "rows": [resource_id]}, hours)

    def reserve_by_drag(self, name: str, first: float, last: float) -> None:
        """Drag over the band, and reserve under this name."""
        self.browser.drag([self.band(first), self.band((first + last) / 2), self.band(last)])
        self.card("fits")
        self.browser.fill("Name", name)
        self.submit()
        self.card("done")

    def submit(self) -> None:
        """Click the button of the card that sends the request."""
        self.browser.find(f"{CARD} [data-action=reserve]").click()

    def card(self, state: str) -> WebElement:
        """Wait until the card beside the selection has a state."""
        return self.browser.find(f'{CARD}[data-state="{state}"]')

    def cells(self, text: str) -> list[str]:
        """Return the accessible names of the cells that contain a text."""
        script = (
            "return [...document.querySelectorAll('[role=gridcell]')]"
            ".map((cell) => cell.getAttribute('aria-label') || cell.textContent)"
        )
        return [name for name in self.browser.js(script) if text in name]

    def shows(self, text: str) -> str:
        """Wait for a cell whose name contains a text, and return its name."""
        return self.browser.until(lambda: self.cells(text), f"a cell says {text!r}")[0]

    def _point(self, overlay: dict[str, Any], hours: float) -> Point:
        start = self.day + hours * HOUR
        marked = {**overlay, "start": _epoch(start), "end": _epoch(start + 0.1 * HOUR)}
        script = (
            f"{_VIEW} const box = view.anchor(arguments[0]);"
            "return [view.xOf(arguments[0].start), (box.top + box.bottom) / 2]"
        )
        x, y = self.browser.js(script, marked)
        return x, y


def _epoch(moment: dt.datetime) -> int:
    """Return a moment as JavaScript counts, in milliseconds."""
    return round(moment.timestamp() * 1000)
