"""Random requests: none gets a 500, and a rejected one changes nothing."""

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from climate.api.app import OPEN, ROUTES
from tests.api import random_requests
from tests.support import rows
from tests.support.service import Story

# A request takes longer on the servers, which reject values that SQLite accepts.
EXAMPLES = {"sqlite": 2, "postgresql": 1, "mariadb": 1}
READ_REQUESTS = [
    random_requests.Request("GET", path)
    for method, path, *_ in (*OPEN, *ROUTES)
    if method == "GET" and "<" not in path
]


# Bytes of a body that is long to read.
LONG = 10_000


class Sandbox:
    """A service with leases in every stable status, whose rows can be restored."""

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

    def send(self, request: random_requests.Request) -> random_requests.Answer:
        app = self.story.http.application
        return random_requests.send(app, request.filled_in(self.ids))

    def is_untouched(self) -> bool:
        """Return whether all rows are as in the beginning."""
        return rows.dump(self.story.runtime.database) == self.rows

    def restore(self) -> None:
        rows.put_back(self.story.runtime.database, self.rows)


def _leases(story: Story) -> dict[str, dict[str, Any]]:
    """Create a lease that is over, one in ERROR, one that is active and one that is pending."""
    created = {"over": story.reserve(0, 1)}
    story.run()
    story.at(1)
    created["failed"] = story.reserve(0, 600)
    story.cloud._failure_rate = 1.0
    for _ in range(7):
        story.at(1)
    story.cloud._failure_rate = 0.0
    created["active"] = story.reserve(0, 600)
    story.run()
    created["pending"] = story.reserve(60, 120)
    expected = {"over": "TERMINATED", "failed": "ERROR", "active": "ACTIVE", "pending": "PENDING"}
    assert {name: story.lease(lease["id"])["status"] for name, lease in created.items()} == expected
    return created


@pytest.fixture
def sandbox(story_everywhere: Story) -> Sandbox:
    """Return such a service on each database."""
    return Sandbox(story_everywhere)


def attempt(sandbox: Sandbox, request: random_requests.Request) -> None:
    """Send a request, check the answer, and check that everything can still be read."""
    answer = sandbox.send(request)
    random_requests.check(request, answer)
    if sandbox.is_untouched():
        return
    try:
        assert answer.status < 400, "a rejected request has changed something"
        for reading in READ_REQUESTS:
            random_requests.check(reading, sandbox.send(reading))
    finally:
        sandbox.restore()


KNOWN = {"lease_id": "@pending@", "host_id": "@free host@", "name": "gpu"}


def test_valid_requests_are_accepted(sandbox: Sandbox) -> None:
    """The random requests start from these, so that they get past the validation."""
    assert random_requests.VALID.keys() <= {(method, path) for method, path, *_ in ROUTES}
    for (method, template), bodies in random_requests.VALID.items():
        for body in bodies:
            is_active = "active" in json.dumps(body)
            names = {**KNOWN, "lease_id": "@active@"} if is_active else KNOWN
            path = re.sub(r"<(\w+)>", lambda found: names[found[1]], template)  # noqa: B023
            encoded = json.dumps(body).encode()
            answer = sandbox.send(random_requests.Request(method, path, body=encoded))
            assert answer.status < 300, (method, path, body, answer)
            sandbox.restore()


def test_noise_gets_an_answer_from_every_route_with_a_body(sandbox: Sandbox) -> None:
    seen: set[str] = set()
    for method, template, *_ in ROUTES:
        if method in {"POST", "PUT", "PATCH"}:
            path = re.sub(r"<(\w+)>", lambda found: KNOWN.get(found[1], "x"), template)
            version = template.split("/")[1]
            # All routes of a version share the limits of a body: one takes what is long to read.
            noises = [
                noise for noise in random_requests.NOISE if len(noise) < LONG or version not in seen
            ]
            seen.add(version)
            for noise in noises:
                request = random_requests.Request(method, path, body=noise)
                answer = sandbox.send(request)
                random_requests.check(request, answer)
                if answer.status < 400:
                    sandbox.restore()
            assert sandbox.is_untouched(), path


def test_no_random_request_gets_a_500_or_changes_rows_when_rejected(
    sandbox: Sandbox, backend: str
) -> None:
    default = settings.default
    assert default is not None

    @settings(
        max_examples=EXAMPLES[backend] * default.max_examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(random_requests.requests())
    def send(request: random_requests.Request) -> None:
        attempt(sandbox, request)

    send()
