"""A service for each test, and browsers whose pages must log no error and request no other site."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.browser.chromium import Browser, chromium
from tests.support.process import Service, standalone

OpenBrowser = Callable[..., Browser]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Return a service with 16 simulated hosts, without authentication."""
    with standalone(tmp_path) as (started, _):
        yield started


@pytest.fixture
def open_browser(service: Service, tmp_path: Path) -> Iterator[OpenBrowser]:
    """Return a function that starts a browser; its pages are checked after the test."""
    opened: list[Browser] = []
    numbers = itertools.count()
    with ExitStack() as stack:

        def start(zone: str = "Europe/Berlin") -> Browser:
            profile = tmp_path / f"chromium-{next(numbers)}"
            browser = stack.enter_context(chromium(service.url, profile, zone))
            opened.append(browser)
            return browser

        yield start
        for browser in opened:
            check(browser, service)


@pytest.fixture
def browser(open_browser: OpenBrowser) -> Browser:
    """Return a browser in which alice of the project lab has signed in."""
    started = open_browser()
    started.sign_in()
    return started


def check(browser: Browser, service: Service) -> None:
    """Fail if a page logged an error or requested anything of another site."""
    assert browser.console_errors() == []
    own = (f"{service.url}/", "data:", "blob:", "about:", "chrome:")
    assert [url for url in browser.requested() if not url.startswith(own)] == []
