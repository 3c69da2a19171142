"""Is the process alive, can it do its work, and where can it be reached."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from climate import service as parts
from climate import serving
from climate.db import schema
from climate.service import Manager
from tests.clients import at, moment
from tests.conftest import MakeStory
from tests.process import Service, eventually, free_port
from tests.service import Story


@pytest.fixture
def manager(story: Story) -> Iterator[Manager]:
    """Return a manager at work in this process."""
    made = parts.make_manager(story.conf, story.runtime)
    made.start()
    eventually(lambda: made.dispatcher.last_tick is not None, "the first look")
    yield made
    made.stop()


def app(story: Story, manager: Manager) -> FlaskClient:
    """Return the API in front of that manager."""
    return parts.make_api(story.conf, story.runtime, manager).test_client()


def test_a_service_with_all_it_needs_is_ready(story: Story, manager: Manager) -> None:
    answer = app(story, manager).get("/readyz")
    assert answer.status_code == 200
    assert answer.get_json() == {
        "status": "ready",
        "checks": {"database": "ok", "schema": "ok", "manager": "ok"},
    }


def test_a_manager_that_has_not_looked_yet_is_not_ready(story: Story) -> None:
    idle = parts.make_manager(story.conf, story.runtime)
    assert not_ready(app(story, idle))["manager"] == "has not looked for due events yet"


def test_a_manager_that_stopped_looking_is_not_ready(story: Story, manager: Manager) -> None:
    manager.stop()
    story.clock.advance(60)
    checks = not_ready(app(story, manager))
    assert checks["manager"] == "last looked for due events 60 s ago"


def test_an_api_without_a_manager_is_ready(story: Story) -> None:
    assert story.ok("GET", "/readyz")["checks"] == {"database": "ok", "schema": "ok"}


def test_a_database_without_our_schema_is_not_ready(story: Story) -> None:
    schema.downgrade(story.runtime.database, "base")
    assert "run 'climate-db-manage upgrade'" in not_ready(story.http)["schema"]


def test_a_process_that_is_not_ready_is_alive(story: Story) -> None:
    schema.downgrade(story.runtime.database, "base")
    assert not_ready(story.http)
    assert story.ok("GET", "/healthz") == {"status": "ok"}


def not_ready(http: FlaskClient) -> dict[str, Any]:
    """Return the checks of a service that must not be ready."""
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert answer.get_json()["status"] == "not ready"
    return dict(answer.get_json()["checks"])


@pytest.mark.parametrize("host", ["localhost", "::1", "127.0.0.2"])
def test_every_name_of_the_loopback_can_be_listened_on(host: str, make_story: MakeStory) -> None:
    story = make_story(DEFAULT__host=host, DEFAULT__port=free_port())
    serving.check_address(story.conf)
    with serving.bound(story.conf, story.http.application) as server:
        assert server


def test_a_heads_up_tells_the_seconds_that_are_left(
    service: Service, lease: dict[str, Any]
) -> None:
    now = dt.datetime.now(dt.UTC)
    dates = {"start_date": at(now, 20), "end_date": at(now, 50)}
    service.ok("PUT", f"/v1/leases/{lease['id']}", dates)
    eventually(lambda: len(service.told(lease["id"])) == 3, "the heads-up")
    [heads_up] = [
        found
        for found in service.ok("GET", "/v2/notifications?limit=1000")["notifications"]
        if found["lease_id"] == lease["id"] and found["event_type"].endswith("before_start_lease")
    ]
    start = moment(heads_up["payload"]["start_date"])
    left = (start - dt.datetime.fromisoformat(heads_up["created_at"])).total_seconds()
    assert heads_up["payload"]["starts_in"] == pytest.approx(left, abs=1)
