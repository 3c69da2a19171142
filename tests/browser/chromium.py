"""A headless Chromium with the console open, and what a person does in it."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import selenium_axe_python
from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from tests.support import servers
from tests.support.process import eventually

DESKTOP = (1440, 900)
PHONE = (390, 844)
# Without the last flags, Chromium looks for updates and servers of its vendor.
_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run"
    " --disable-dev-shm-usage --force-device-scale-factor=1"
    " --disable-background-networking --disable-component-update --disable-sync"
)
_WAITING = (
    NoSuchElementException,
    StaleElementReferenceException,
    ElementNotInteractableException,
    ElementClickInterceptedException,
)
# What Chromium answers if a new page replaces the element at the very moment of the query.
_REPLACED = "does not belong to the document"
# The rules of WCAG 2.2, levels A and AA, and axe's best practices.
_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

T = TypeVar("T")


class Browser:
    """A browser with one user; each one has its own cookies and storage."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url
        self._requests: list[str] = []

    # What the page shows

    @property
    def text(self) -> str:
        """The text of the page that a person can see."""
        return str(self.driver.find_element(By.TAG_NAME, "body").text)

    @property
    def path(self) -> str:
        return str(self.driver.execute_script("return location.pathname"))

    @property
    def announced(self) -> str:
        """The text that a screen reader says last."""
        region = self.driver.find_element(By.ID, "announcer")
        return str(region.get_attribute("textContent"))

    def js(self, script: str, *arguments: Any) -> Any:
        """Run a function body in the page, and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def until(self, condition: Callable[[], T | None], what: str) -> T:
        """Return the first true value of ``condition``, which may meet absent elements."""

        def tried() -> T | None:
            try:
                return condition()
            except _WAITING:
                return None
            except WebDriverException as error:
                if _REPLACED not in str(error):
                    raise
                return None

        try:
            found = eventually(tried, what, within=30)
        except AssertionError as error:
            raise AssertionError(f"{error}\nThe page at {self.path} shows:\n{self.text}") from None
        return found

    def shows(self, text: str) -> None:
        """Wait until the page shows a text."""
        self.until(lambda: text in self.text, f"the page shows {text!r}")

    def hides(self, text: str) -> None:
        """Wait until the page shows a text no longer."""
        self.until(lambda: text not in self.text, f"the page no longer shows {text!r}")

    def find(self, css: str) -> WebElement:
        """Wait for a visible element that a CSS selector names."""

        def visible() -> WebElement | None:
            found = self.driver.find_elements(By.CSS_SELECTOR, css)
            return next((element for element in found if element.is_displayed()), None)

        return self.until(visible, f"there is a visible {css}")

    def named(self, name: str, css: str = "button, a, [role=tab], summary") -> WebElement:
        """Wait for a visible control by its accessible name."""

        def visible() -> WebElement | None:
            for element in self.driver.find_elements(By.CSS_SELECTOR, css):
                if element.is_displayed() and element.accessible_name == name:
                    return element
            return None

        return self.until(visible, f"there is a control named {name!r}")

    def field(self, label: str) -> WebElement:
        """Wait for a visible field by its label."""
        return self.named(label, "input, select, textarea")

    # What a person does

    def open(self, path: str) -> None:
        self.driver.get(f"{self.url}{path}")

    def click(self, name: str) -> None:
        """Click a button or a link by its accessible name."""

        def clicked() -> bool:
            self.named(name).click()
            return True

        self.until(clicked, f"{name!r} can be clicked")

    def fill(self, label: str, text: str) -> None:
        """Replace the content of a field, or choose an option of a list."""
        element = self.field(label)
        if element.tag_name == "select":
            Select(element).select_by_visible_text(text)
            return
        if element.get_attribute("type") in {"datetime-local", "date", "time"}:
            script = (
                "arguments[0].value = arguments[1];"
                "for (const name of ['input', 'change'])"
                " arguments[0].dispatchEvent(new Event(name, {bubbles: true}));"
            )
            self.js(script, element, text)
            return
        element.send_keys(Keys.CONTROL, "a")
        element.send_keys(text)

    def keys(self, *keys: str) -> None:
        """Press keys one after the other; ``Shift+Left`` presses both at once."""
        for combination in keys:
            *held, last = combination.split("+") if len(combination) > 1 else [combination]
            chain = ActionChains(self.driver, duration=0)
            for name in held:
                chain.key_down(_key(name))
            chain.send_keys(_key(last))
            for name in reversed(held):
                chain.key_up(_key(name))
            chain.perform()

    def drag(self, points: Sequence[tuple[float, float]], pause: float = 0.02) -> None:
        """Press the mouse at the first point, move through the others, and release it."""
        chain = self._to(ActionChains(self.driver, duration=30), points[0]).click_and_hold()
        for point in points[1:]:
            self._to(chain, point).pause(pause)
        chain.release().perform()

    def press(self, point: tuple[float, float], *more: tuple[float, float]) -> None:
        """Press the mouse at a point, move it, and keep it pressed."""
        chain = self._to(ActionChains(self.driver, duration=30), point).click_and_hold()
        for other in more:
            self._to(chain, other).pause(0.02)
        chain.perform()

    def release(self) -> None:
        ActionChains(self.driver, duration=0).release().perform()

    def _to(self, chain: ActionChains, point: tuple[float, float]) -> ActionChains:
        x, y = round(point[0]), round(point[1])
        chain.w3c_actions.pointer_action.move_to_location(x, y)  # type: ignore[no-untyped-call]
        chain.w3c_actions.key_action.pause()
        return chain

    def sign_in(self, user: str = "alice", project: str = "lab", role: str = "member") -> None:
        """Sign in to a service without authentication, and wait for the page."""
        self.open("/console/")
        self.fill("User", user)
        self.fill("Project", project)
        self.fill("Role", role)
        self.click("Sign in")
        self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, ".top nav"), "signed in")

    def resize(self, size: tuple[int, int]) -> None:
        """Set the size of the view port in CSS pixels, as for a device."""
        width, height = size
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 700,
        )

    def emulate(self, **features: str) -> None:
        """Set media features, such as ``prefers_color_scheme="dark"``."""
        listed = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self._command("Emulation.setEmulatedMedia", features=listed)

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        assert self.driver.save_screenshot(str(path))

    # What must hold on each page

    def axe(self, context: str = "document") -> list[str]:
        """Return axe's violations, each with its elements.

        The debugging protocol runs axe outside of the page's Content-Security-Policy.
        """
        self._command("Runtime.evaluate", expression=_axe())
        script = (
            "const done = arguments[arguments.length - 1];"
            f"axe.run({context}, {{runOnly: {{type: 'tag', values: {json.dumps(_TAGS)}}}}})"
            ".then(done, (error) => done({violations: [{id: String(error), nodes: []}]}));"
        )
        result = self.driver.execute_async_script(script)
        return [
            f"{found['id']}: {[node['html'][:200] for node in found['nodes']]}"
            for found in result["violations"]
        ]

    def console_errors(self) -> list[str]:
        """Return the errors that Chromium logged, without answers that are refusals."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [
            entry["message"]
            for entry in entries
            if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]
        ]

    def requested(self) -> list[str]:
        """Return the addresses that the pages have requested since the last call."""
        addresses = []
        entries = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        for entry in entries:
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                addresses.append(message["params"]["request"]["url"])
        return addresses

    def _command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)


_KEYS = {
    "Ctrl": Keys.CONTROL,
    "Esc": Keys.ESCAPE,
    "Left": Keys.ARROW_LEFT,
    "Right": Keys.ARROW_RIGHT,
    "Up": Keys.ARROW_UP,
    "Down": Keys.ARROW_DOWN,
    "PageUp": Keys.PAGE_UP,
    "PageDown": Keys.PAGE_DOWN,
}


def _key(name: str) -> str:
    return name if len(name) == 1 else str(_KEYS.get(name) or getattr(Keys, name.upper()))


@cache
def _axe() -> str:
    folder = Path(selenium_axe_python.__file__).parent
    [script] = folder.rglob("axe.min.js")
    return script.read_text(encoding="utf-8")


def why_absent() -> str | None:
    """Return why no browser can be driven, or None."""
    absent = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"no {' and no '.join(absent)} on this machine" if absent else None


@contextmanager
def chromium(url: str, profile: Path, zone: str = "Europe/Berlin") -> Iterator[Browser]:
    """Start Chromium with a new profile, and end it."""
    if reason := why_absent():
        servers.absent("chromium", reason)
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in _FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={profile}")
    options.add_argument("about:blank")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        browser = Browser(driver, url)
        browser.resize(DESKTOP)
        driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": zone})
        yield browser
    finally:
        driver.quit()
