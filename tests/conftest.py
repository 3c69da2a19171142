"""Fixtures for all tests: real databases, and a service on a manual clock.

A test that uses ``database_url`` runs on each database of CLIMATE_TEST_DATABASES; on PostgreSQL and
MariaDB it has the marker ``db``. If a server is absent, the test is skipped with a line that names
the server, or fails if CLIMATE_TEST_REQUIRE names it.
"""

import datetime as dt
import logging
import os
import shutil
import sqlite3
import ssl
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import settings
from oslo_config.cfg import ConfigOpts
from oslo_log.formatters import ContextFormatter

from climate.cmd import bootstrap, launch
from climate.config import registry as config_registry
from climate.db.engine import sqlite
from climate.db.engine.database import Database
from tests.support import broker, servers
from tests.support.bodies import copy_hosts
from tests.support.clock import ManualClock
from tests.support.service import Story

# No example has a deadline: its time depends on the machine. `make test-nightly` runs hypothesis'
# own (larger) number of examples.
settings.register_profile("quick", max_examples=20, deadline=None)
settings.register_profile("thorough", deadline=None)
settings.load_profile("thorough" if os.getenv("CLIMATE_TEST_THOROUGH") else "quick")

# No test cuts the power of its machine: SQLite need not wait for the disk in this process.
sqlite.SETTINGS = (*sqlite.SETTINGS, "synchronous=OFF")

MakeStory = Callable[..., Story]
NOON = dt.datetime(2030, 1, 15, 12, 0, 0, tzinfo=dt.UTC)


FOLDER = Path(__file__).parent
# `make test` installs no driver of browsers; `make test-browser` and `make test-openstack` do.
collect_ignore = [] if find_spec("selenium") else ["browser", "openstack/test_console_pages.py"]
# Markers of all tests in a folder.
MARKERS = {
    "race": pytest.mark.db,
    "system": pytest.mark.system,
    "faults": pytest.mark.faults,
    "clusters": pytest.mark.clusters,
    "browser": pytest.mark.browser,
    "openstack": pytest.mark.openstack,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need servers, before pytest selects by marker."""
    for item in items:
        callspec = getattr(item, "callspec", None)  # only parametrised tests have one
        if callspec is not None and callspec.params.get("backend", "sqlite") != "sqlite":
            item.add_marker(pytest.mark.db)
        marker = MARKERS.get(item.path.relative_to(FOLDER).parts[0])
        if marker is not None:
            item.add_marker(marker)


def pytest_collection_finish() -> None:
    """Keep the garbage collector off the modules of all tests, as our programs do with theirs."""
    launch.settle()


@pytest.fixture(scope="session", autouse=True)
def _skip_what_no_test_needs() -> Iterator[None]:
    """Skip the sync of each commit on SQLite (1 ms), and public certificates (25 ms per context).

    No test cuts the power, and none in this process connects to a public server.
    """

    def relax(connection: Any, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    sa.event.listen(sa.Engine, "connect", relax)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
        yield
    sa.event.remove(sa.Engine, "connect", relax)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an SQLite file that was migrated once; tests copy it."""
    path = tmp_path_factory.mktemp("template") / "climate.sqlite"
    servers.migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(params=[item for item in servers.BACKENDS if item in servers.CHOSEN])
def backend(request: pytest.FixtureRequest) -> str:
    """Name each database in turn; skip (or fail) if it is absent."""
    servers.need(request.param)
    return str(request.param)


@pytest.fixture
def database_url(backend: str, sqlite_template: Path, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an empty, migrated database of each kind."""
    if backend == "sqlite":
        path = tmp_path / "climate.sqlite"
        shutil.copy(sqlite_template, path)
        yield f"sqlite:///{path}"
    else:
        yield servers.clean(backend)


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """Return the URL of an empty, migrated SQLite database."""
    path = tmp_path / "climate.sqlite"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Return an empty, migrated database of each kind."""
    made = Database(database_url)
    yield made
    made.dispose()


@pytest.fixture
def programs() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands at noon of 2030-01-15 UTC."""
    return ManualClock(NOON)


def _story(url: str, clock: ManualClock, tmp_path: Path, **options: object) -> Story:
    conf = config_registry.new()
    # Without files there is nothing that config_registry.load() would have to check.
    conf([], project="climate", default_config_files=[], default_config_dirs=[], use_env=False)
    _set_up_logging(conf)
    conf.set_override("connection", url, group="database")
    conf.set_override("journal", str(tmp_path / "cloud"), group="simulated")
    conf.set_override("delete_wait", 0.0, group="api")
    for name, value in options.items():
        group, _, option = name.partition("__")
        conf.set_override(option, value, group=None if group == "DEFAULT" else group)
    runtime = bootstrap.make_runtime(conf, clock)
    return Story(conf, runtime, clock)


def _set_up_logging(conf: ConfigOpts) -> None:
    """Set logging up as programs do, unless an earlier service of this process has done that.

    As in programs, the root logger then has no other handlers, such as those of pytest.
    """
    own = [
        handler
        for handler in logging.root.handlers
        if isinstance(handler, logging.StreamHandler)
        and isinstance(handler.formatter, ContextFormatter)
    ]
    if [handler.stream for handler in own] == [sys.stderr]:
        logging.root.handlers[:] = own
    else:
        config_registry.set_up_logging(conf)


@pytest.fixture
def make_story(sqlite_url: str, clock: ManualClock, tmp_path: Path) -> Iterator[MakeStory]:
    """Return a maker of services on SQLite; options are given as group__option=value."""
    made: list[Story] = []

    def make(**options: object) -> Story:
        made.append(_story(sqlite_url, clock, tmp_path, **options))
        return made[-1]

    yield make
    for story in made:
        story.close()


@pytest.fixture
def make_story_everywhere(
    database_url: str, clock: ManualClock, tmp_path: Path
) -> Iterator[MakeStory]:
    made: list[Story] = []

    def make(**options: object) -> Story:
        made.append(_story(database_url, clock, tmp_path, **options))
        return made[-1]

    yield make
    for story in made:
        story.close()


@pytest.fixture(scope="session")
def hosts_template(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an SQLite file in which hosts sim-1 .. sim-4 are registered; tests copy it.

    Beside it is the journal of the cloud that has them.
    """
    folder = tmp_path_factory.mktemp("hosts")
    path = folder / "climate.sqlite"
    shutil.copy(sqlite_template, path)
    made = _story(f"sqlite:///{path}", ManualClock(NOON), folder)
    made.register(4)
    made.close()
    return path


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    """Return a service on SQLite with hosts sim-1 .. sim-4 registered, at noon."""
    copy_hosts(hosts_template, tmp_path)
    return make_story()


@pytest.fixture
def story_everywhere(
    backend: str, database_url: str, clock: ManualClock, hosts_template: Path, tmp_path: Path
) -> Iterator[Story]:
    """Return the same service on each database in turn."""
    if backend == "sqlite":
        copy_hosts(hosts_template, tmp_path)
    made = _story(database_url, clock, tmp_path)
    if backend != "sqlite":
        made.register(4)
    yield made
    made.close()


def pytest_sessionfinish() -> None:
    """Leave no databases behind on the servers."""
    servers.drop_all()


@pytest.fixture
def topic() -> Iterator[str]:
    """Return a topic at the broker that no other test uses."""
    servers.need("rabbitmq")
    name = f"climate-test-{uuid.uuid4().hex[:12]}"
    yield name
    broker.remove_queue(f"{name}.info")
