"""A host that is restricted to one project while another project books it."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.race.crowd import Crowd, at_work, wait_for_all
from tests.support.service import Story, hosts

RESOURCES, LEASES = "/v2/resources", "/v2/leases"
OTHER = "omar:other:member"
RESTRICTED = {"resources__project_restrictions": True}
ROUNDS = 8


@pytest.fixture
def here(database_url: str) -> Iterator[Story]:
    """Return the service in this process."""
    with at_work(database_url, **RESTRICTED) as story:
        yield story


def _restrict_or_book(number: int, url: str, path: str, day: int) -> tuple[str, int]:
    with at_work(url, **RESTRICTED) as story:
        times: dict[str, Any] = {"start": story.moment(day), "end": story.moment(day + 60)}
        body = story.asking(reservations=[hosts(1, 1)], **times)
        wait_for_all()
        if number % 2:
            restriction = {"properties": {"allowed_projects": ["lab"]}}
            return "PATCH", story.call("PATCH", path, restriction).status_code
        return "POST", story.call("POST", LEASES, body, token=OTHER).status_code


def test_either_the_restriction_or_the_booking_succeeds(
    crowd: Crowd, database_url: str, here: Story
) -> None:
    here.register(1)
    (host,) = here.ok("GET", RESOURCES)["resources"]
    path = f"{RESOURCES}/{host['id']}"
    for turn in range(ROUNDS):
        here.ok("PATCH", path, {"properties": {"allowed_projects": None}})
        answers = crowd.do(_restrict_or_book, database_url, path, 60 + turn * 100)
        assert {status for _, status in answers} <= {200, 201, 409}
        booked, restricted = ("POST", 201) in answers, ("PATCH", 200) in answers
        assert booked != restricted, Counter(answers)
        for lease in here.ok("GET", LEASES)["leases"]:
            assert here.call("DELETE", f"{LEASES}/{lease['id']}").status_code == 204
