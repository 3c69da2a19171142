"""Health checks: /healthz says that the process runs, /readyz that it can work."""

from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from climate import bootstrap as parts
from climate.api import http_server
from climate.bootstrap import Manager
from climate.db.engine import schema
from tests.conftest import MakeStory
from tests.support.process import eventually, free_port
from tests.support.service import Story


@pytest.fixture
def manager(story: Story) -> Iterator[Manager]:
    """Return a manager at work in this process."""
    made = parts.make_manager(story.conf, story.runtime)
    made.start()
    eventually(lambda: made.dispatcher.last_tick is not None, "the first look")
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
    manager.stop()
    story.clock.advance(60)
    checks = not_ready(app(story, manager))
    assert checks["manager"] == "last queried for due events 60 s ago"


def test_an_api_without_a_manager_is_ready(story: Story) -> None:
    assert story.ok("GET", "/readyz")["checks"] == {"database": "ok", "schema": "ok"}


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
        with http_server.bound(story.conf, story.http.application) as server:
            assert server
