"""The calendar as a person uses it: where its times and rows are, and its card."""

from datetime import UTC, datetime, timedelta
from typing import Any

import requests

from tests.browser.chromium import Browser
from tests.support.process import Service

_VIEW = "const view = document.querySelector('.calendar').view;"
_ROW = (
    _VIEW
    + """
const box = view.element.getBoundingClientRect();
for (let y = view.size.top + 1; y < view.size.height; y += 4) {
  const hit = view.hit(box.left + view.size.left + 20, box.top + y);
  if (hit.area === 'row' && hit.row.name === arguments[0]) return box.top + y + 10;
}
return null;"""
)
_HOLDER = (
    _VIEW
    + """
for (let index = 0; index < (view.data.total ?? 0); index += 1) {
  const own = view.intervals(index).some(({ lease }) => lease && lease.name === arguments[0]);
  if (own) return view.data.row(index).name;
}
return null;"""
)


class Calendar:
    """The calendar in a browser. Times are hours from the start of the present hour."""

    def __init__(self, browser: Browser, service: Service) -> None:
        self.browser = browser
        self.service = service
        self.hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        browser.until(self._is_loaded, "the calendar is loaded")

    def _is_loaded(self) -> bool:
        script = (
            "const view = document.querySelector('.calendar')?.view;"
            "return Boolean(view?.size) && view.data.total !== null"
            " && view.leastFree(view.from, view.to) !== null;"
        )
        return bool(self.browser.js(script))

    # Places

    def time(self, hours: float) -> datetime:
        return self.hour + timedelta(hours=hours)

    def x(self, hours: float) -> float:
        milliseconds = self.time(hours).timestamp() * 1000
        return float(self.browser.js(f"{_VIEW} return view.xOf(arguments[0])", milliseconds))

    @property
    def band(self) -> float:
        """The height of the middle of the band."""
        script = (
            f"{_VIEW} const top = view.element.getBoundingClientRect().top;"
            "return top + view.size.axis + view.size.band / 2;"
        )
        return float(self.browser.js(script))

    def row(self, name: str) -> float:
        """The height of the row of a host."""
        return float(self.browser.until(lambda: self.browser.js(_ROW, name), f"row {name}"))

    def holder(self, lease: str) -> str:
        """The name of a host whose row shows a lease of one's own."""
        return str(self.browser.until(lambda: self.browser.js(_HOLDER, lease), f"bar of {lease}"))

    # What a person does

    def drag_band(self, start: float, end: float) -> None:
        y = self.band
        self.browser.drag([(self.x(start), y), (self.x(start) + 12, y), (self.x(end), y)])

    def drag_rows(self, first: str, last: str, start: float, end: float) -> None:
        points = [(self.x(start), self.row(first)), (self.x(start) + 12, self.row(first))]
        self.browser.drag([*points, (self.x(end), self.row(last))])

    def drag_bar(self, lease: str, start: float, end: float) -> None:
        """Drag in the row of a lease: from its end, or from within its bar."""
        y = self.row(self.holder(lease))
        # The last px of a bar belong to it; those after it are free.
        self.browser.drag([(self.x(start) - 2, y), (self.x(start) + 12, y), (self.x(end) - 2, y)])

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Send a touch event: ``Start``, ``Move`` or ``End``."""
        places = [{"x": x, "y": y} for x, y in points]
        self.browser.driver.execute_cdp_cmd(
            "Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": places}
        )

    def need(self, amount: int, properties: str = "") -> None:
        """Fill in the bar."""
        self.browser.fill("Amount", str(amount))
        if properties:
            self.browser.fill("Conditions on properties", properties)
        self.browser.keys("Tab")

    def focus(self) -> None:
        """Put the focus into the grid."""
        self.browser.find(".calendar-scroll").send_keys("")
        self.browser.js("document.querySelector('.calendar-scroll').focus()")

    # What the page shows

    def card(self, state: str) -> str:
        """Wait until the card is in a state, and return its text."""
        return str(self.browser.find(f".reserve-card[data-state={state}]").text)

    def no_card(self) -> None:
        script = "return document.querySelector('.reserve-card').hidden"
        self.browser.until(lambda: self.browser.js(script), "the card is closed")

    def says(self, *words: str) -> bool:
        """Whether a cell of the grid has all these words in its accessible name."""
        script = (
            "return [...document.querySelectorAll('[role=gridcell]')]"
            ".map((cell) => cell.getAttribute('aria-label') || cell.textContent)"
        )
        return any(all(word in name for word in words) for name in self.browser.js(script))

    @property
    def selection(self) -> tuple[float, float] | None:
        """The window of what is selected, in hours; None if nothing is."""
        script = f"{_VIEW} return view.overlay && [view.overlay.start, view.overlay.end]"
        window = self.browser.js(script)
        first = self.hour.timestamp()
        return window and tuple((time / 1000 - first) / 3600 for time in window)

    # Other clients

    def book(
        self, name: str, start: float, end: float, hosts: int = 1, who: str = "bob:other"
    ) -> str:
        """Reserve hosts through the API as another client, and return the id of the lease."""
        body = {
            "name": name,
            "start": f"{self.time(start):%Y-%m-%dT%H:%M:%SZ}",
            "end": f"{self.time(end):%Y-%m-%dT%H:%M:%SZ}",
            "reservations": [
                {"resource_type": "physical:host", "params": {"min": hosts, "max": hosts}}
            ],
        }
        return str(self.send("POST", "/v2/leases", body, who)["id"])

    def leases(self, who: str = "alice:lab") -> list[tuple[str, float, float]]:
        """The name, start and end of each lease of a project."""
        found = self.send("GET", "/v2/leases", None, who)["leases"]
        hours = self._hours
        return [(each["name"], hours(each["start"]), hours(each["end"])) for each in found]

    def _hours(self, text: str) -> float:
        return (datetime.fromisoformat(text) - self.hour) / timedelta(hours=1)

    def send(self, method: str, path: str, body: Any = None, who: str = "alice:lab") -> Any:
        """Send a request that must succeed."""
        answer = requests.request(
            method,
            f"{self.service.url}{path}",
            json=body,
            headers={"X-Auth-Token": who},
            timeout=30,
        )
        assert answer.status_code < 400, answer.text
        return answer.json() if answer.content else None
