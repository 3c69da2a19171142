"""No request gets a 500, whatever is in it; and a refused one changes nothing."""

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from climate.api.app import OPEN, ROUTES
from tests.functional import wild
from tests.support import rows
from tests.support.service import Story

REQUEST_ID = re.compile(r"req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# The servers refuse what SQLite swallows, but each request takes them longer.
TIMES_AS_MANY = {"sqlite": 3, "postgresql": 1, "mariadb": 1}
# These show all there is.
READINGS = [
    wild.Request("GET", path)
    for method, path, *_ in (*OPEN, *ROUTES)
    if method == "GET" and "<" not in path
]


class World:
    """A service with leases in every stable state, which can be put back as it was."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.ids = {"host": story.ok("GET", "/v1/os-hosts")["hosts"][0]["id"]}
        for name, lease in _leases(story).items():
            self.ids[name] = lease["id"]
            self.ids[f"{name} reservation"] = lease["reservations"][0]["id"]
        story.ok("PUT", f"/v1/os-hosts/{self.ids['host']}", {"gpu": "a100"})
        hosts = {host["id"] for host in story.ok("GET", "/v1/os-hosts")["hosts"]}
        self.ids["free host"] = min(hosts - self._taken())
        story.published()
        self.rows = rows.dump(story.runtime.database)

    def _taken(self) -> set[str]:
        found = self.story.ok("GET", "/v1/os-hosts/allocations")["allocations"]
        return {host["resource_id"] for host in found if host["reservations"]}

    def send(self, request: wild.Request) -> wild.Answer:
        """Send a request to the service."""
        app = self.story.http.application
        return wild.send(app, request.filled_in(self.ids))

    def is_untouched(self) -> bool:
        """Tell whether all rows are what they were in the beginning."""
        return rows.dump(self.story.runtime.database) == self.rows

    def put_back(self) -> None:
        """Make the rows those that they were in the beginning."""
        rows.put_back(self.story.runtime.database, self.rows)


def _leases(story: Story) -> dict[str, dict[str, Any]]:
    """Make a lease that is over, one that failed, one that is active, one that is pending."""
    made = {"over": story.reserve(0, 1)}
    story.run()
    story.at(1)
    made["failed"] = story.reserve(0, 600)
    story.cloud._failure_rate = 1.0
    for _ in range(7):
        story.at(1)
    story.cloud._failure_rate = 0.0
    made["active"] = story.reserve(0, 600)
    story.run()
    made["pending"] = story.reserve(60, 120)
    wanted = {"over": "TERMINATED", "failed": "ERROR", "active": "ACTIVE", "pending": "PENDING"}
    assert {name: story.lease(one["id"])["status"] for name, one in made.items()} == wanted
    return made


@pytest.fixture
def world(story_everywhere: Story) -> World:
    """Return such a service on each database in turn."""
    return World(story_everywhere)


def check(request: wild.Request, answer: wild.Answer) -> None:
    """Check what is true of every answer."""
    assert answer.status < 500, answer
    assert REQUEST_ID.fullmatch(answer.headers["X-Openstack-Request-Id"]), answer
    if answer.status < 400 or request.method == "HEAD":
        return
    body = json.loads(answer.body)
    assert isinstance(body, dict), answer
    if request.path.startswith("/v2"):
        assert answer.headers["Content-Type"] == "application/problem+json", answer
        assert body["status"] == answer.status, answer
        assert body["code"], answer
    else:
        assert answer.headers["Content-Type"] == "application/json", answer
        assert body["error_message"], answer


def attempt(world: World, request: wild.Request) -> None:
    """Send a request and check the answer, and that all can still be read."""
    answer = world.send(request)
    check(request, answer)
    if world.is_untouched():
        return
    try:
        assert answer.status < 400, "a refused request has changed something"
        for reading in READINGS:
            check(reading, world.send(reading))
    finally:
        world.put_back()


def test_sound_requests_are_sound(world: World) -> None:
    """The fuzzing starts from these, so it reaches what lies behind the validation."""
    for (method, template), bodies in wild.SOUND.items():
        for body in bodies:
            names = {"lease_id": "@pending@", "host_id": "@free host@", "name": "gpu"}
            if "active" in json.dumps(body):
                names["lease_id"] = "@active@"
            path = re.sub(r"<(\w+)>", lambda found: names[found[1]], template)  # noqa: B023
            answer = world.send(wild.Request(method, path, body=json.dumps(body).encode()))
            assert answer.status < 300, (method, path, body, answer)
            world.put_back()


@pytest.mark.parametrize("route", wild.SOUND)
def test_sound_bodies_are_for_routes_that_exist(route: tuple[str, str]) -> None:
    assert route in {(method, path) for method, path, *_ in ROUTES}


def test_noise_is_answered_wherever_a_body_is_read(world: World) -> None:
    known = {"lease_id": "@pending@", "host_id": "@free host@", "name": "gpu"}
    for method, template, *_ in ROUTES:
        if method in {"POST", "PUT", "PATCH"}:
            path = re.sub(r"<(\w+)>", lambda found: known.get(found[1], "x"), template)
            for noise in wild.NOISE:
                attempt(world, wild.Request(method, path, body=noise))


def test_no_request_is_too_strange(world: World, backend: str) -> None:
    @settings(
        max_examples=TIMES_AS_MANY[backend] * settings.default.max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(wild.requests())
    def strange(request: wild.Request) -> None:
        attempt(world, request)

    strange()
