"""A service of this process on the loopback, a client of it, and the ``climate`` command."""

import io
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import pytest

from climate.client import Client, connect, transport
from climate.client.commands import app
from tests.api.session.conftest import keystone, make_secured, secured  # noqa: F401 - fixtures
from tests.support.loopback import served
from tests.support.service import Story


@dataclass(frozen=True)
class Answer:
    """The exit status of a command, and what it wrote."""

    code: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.errors
        return json.loads(self.output)


Climate = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries follow each other at once."""
    monkeypatch.setattr(transport, "_FIRST_PAUSE", 0.001)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables with which a developer uses the command in the same terminal."""
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def url(story: Story) -> Iterator[str]:
    """Return the URL of a service with hosts sim-1 .. sim-4, at noon of 2030-01-15."""
    with served(story) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def client(url: str) -> Client:
    return connect(auth_type="none", endpoint=url, environ={})


@pytest.fixture
def climate(url: str, monkeypatch: pytest.MonkeyPatch) -> Climate:
    """Return the ``climate`` command, in this process; a user in Berlin runs it."""
    monkeypatch.setenv("OS_AUTH_TYPE", "none")
    monkeypatch.setenv("OS_ENDPOINT", url)
    monkeypatch.setenv("CLIMATE_TIME_ZONE", "Europe/Berlin")
    monkeypatch.setenv("COLUMNS", "80")
    return run


def run(*arguments: str) -> Answer:
    """Run the ``climate`` command in this process."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors), _logging_kept():
        try:
            code = app.main(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return Answer(code, output.getvalue(), errors.getvalue())


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Undo what cliff does to the root logger, which is for a process of its own.

    The server of this process warns of waiting requests, which the command must not show.
    """
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
