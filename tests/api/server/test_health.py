"""Health checks: /healthz says that the process runs, /readyz that it can work."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from flask.testing import FlaskClient

from climate.api.server import http_server
from climate.cmd import bootstrap as parts
from climate.cmd.bootstrap import Manager
from climate.db import managers
from climate.db.engine import schema
from climate.db.engine.database import Database
from climate.manager.process.heartbeat import ManagerHeartbeat, find_beats
from climate.manager.process.periodic_task import Progress
from tests.conftest import MakeStory
from tests.support.process import eventually, free_port
from tests.support.service import Story


@pytest.fixture
def manager(story: Story) -> Iterator[Manager]:
    """Return a manager at work in this process."""
    made = parts.make_manager(story.conf, story.runtime)
    made.start()
    eventually(lambda: made.dispatcher.last_tick is not None, "the first look")
    eventually(lambda: find_beats(story.runtime.store).alive, "the first heartbeat")
    yield made
    made.stop()


def app(story: Story, manager: Manager) -> FlaskClient:
    return parts.make_api(story.conf, story.runtime, manager).test_client()


def test_a_service_with_database_and_manager_is_ready(story: Story, manager: Manager) -> None:
    answer = app(story, manager).get("/readyz")
    assert answer.status_code == 200
    assert answer.get_json() == {
        "status": "ready",
        "checks": {"database": "ok", "schema": "ok", "manager": "ok"},
    }


def test_a_manager_before_its_first_query_is_not_ready(story: Story) -> None:
    idle = parts.make_manager(story.conf, story.runtime)
    assert not_ready(app(story, idle))["manager"] == "has not queried for due events yet"


def test_a_manager_that_stopped_is_not_ready(story: Story, manager: Manager) -> None:
    manager.dispatcher.stop()
    story.clock.advance(60)
    checks = not_ready(app(story, manager))
    assert checks["manager"] == "last queried for due events 60 s ago"


def test_an_api_without_a_manager_is_ready(story: Story) -> None:
    assert story.ok("GET", "/readyz")["checks"] == {"database": "ok", "schema": "ok"}


def test_a_database_that_cannot_be_written_is_not_ready(
    story: Story, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.heartbeat.stop()
    trials = Mock(wraps=managers.try_write)
    monkeypatch.setattr(managers, "try_write", trials)
    with closed_for_writing(story.runtime.database):
        # No request has failed yet: the heartbeat is missing, so a trial write decides.
        assert not_ready(story.http)["database"] == "cannot be written (OperationalError)"
        assert story.ok("GET", "/healthz") == {"status": "ok"}
    story.clock.advance(5)
    assert story.ok("GET", "/readyz")["status"] == "ready"
    made = trials.call_count
    story.ok("GET", "/readyz")
    assert trials.call_count == made, "another trial within five seconds"
    manager.heartbeat.beat()
    with closed_for_writing(story.runtime.database):
        assert story.ok("GET", "/readyz")["status"] == "ready", "no sign of a failure yet"
        story.refused(503, "POST", "/v1/leases", story.lease_body())
        story.clock.advance(5)
        assert not_ready(story.http)["database"] == "cannot be written (OperationalError)"
    story.clock.advance(5)
    assert story.ok("GET", "/readyz")["status"] == "ready"


@contextmanager
def closed_for_writing(database: Database) -> Iterator[None]:
    """Make every write fail like on a full disk, on SQLite."""

    def set_query_only(connection: sa.Connection, state: str = "ON") -> None:
        connection.connection.dbapi_connection.execute(f"PRAGMA query_only = {state}")  # type: ignore[union-attr]

    sa.event.listen(database.engine, "begin", set_query_only)
    try:
        yield
    finally:
        sa.event.remove(database.engine, "begin", set_query_only)
        database.engine.dispose()


def test_an_api_warns_if_no_manager_works(story: Story) -> None:
    assert story.ok("GET", "/readyz")["warnings"] == ["no manager is running"]
    beat = ManagerHeartbeat(story.runtime.store, "manager-1", list).beat
    beat()
    assert "warnings" not in story.ok("GET", "/readyz")
    story.clock.advance(31)
    answer = story.ok("GET", "/readyz")
    assert (answer["status"], answer["warnings"]) == ("ready", ["no manager for 31 s"])


def test_an_api_warns_if_a_loop_of_a_manager_has_stalled(story: Story) -> None:
    ages = [("relay", 1.0, 31.0), ("inventory", 60.0, 299.0), ("deliveries", 1.0, 29.0)]
    loops = [Progress(name, interval, time.monotonic() - age) for name, interval, age in ages]
    for number, progress in enumerate([loops, []]):
        store = story.runtime.store
        ManagerHeartbeat(store, f"manager-{number}", progress.copy).beat()
    assert story.ok("GET", "/readyz")["warnings"] == [
        "relay has not succeeded for 31 s in 1 of 2 managers"
    ]


def test_each_loop_of_a_manager_reports_its_progress(story: Story, manager: Manager) -> None:
    (beat,) = find_beats(story.runtime.store).alive
    assert set(beat.loops) == {
        *("dispatcher", "renew claims", "remove old rows", "watch calls"),
        "remind subscribers",
        *("numbers", "relay", "deliveries", "inventory", "self-audit"),
        "wait list",
    }


def test_a_process_without_the_schema_is_alive_and_not_ready(story: Story) -> None:
    schema.downgrade(story.runtime.database, "base")
    assert "run 'climate-db-manage upgrade'" in not_ready(story.http)["schema"]
    assert story.ok("GET", "/healthz") == {"status": "ok"}


def not_ready(http: FlaskClient) -> dict[str, Any]:
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert answer.get_json()["status"] == "not ready"
    return dict(answer.get_json()["checks"])


def test_the_api_listens_on_every_name_of_the_loopback(make_story: MakeStory) -> None:
    for host in ("localhost", "::1", "127.0.0.2"):
        story = make_story(DEFAULT__host=host, DEFAULT__port=free_port())
        http_server.check_address(story.conf)
        with http_server.bound(story.conf, story.http.application):
            socket.create_connection((host, story.conf.port), 5).close()
