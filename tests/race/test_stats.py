"""Concurrent pushes of stats: the newest generation wins, whatever the order."""

from collections.abc import Iterator

import pytest

from tests.race.crowd import SIZE, Crowd, at_work, wait_for_all
from tests.support.service import Story

ROUNDS, HOSTS = 3, 4


@pytest.fixture
def here(database_url: str) -> Iterator[Story]:
    """Return the service in this process."""
    with at_work(database_url) as story:
        yield story


def _push(number: int, url: str, first: int) -> list[str]:
    generation = first + number
    with at_work(url) as story:
        wait_for_all()
        items = [
            {"resource": f"sim-{host}", "generation": generation, "stats": {"load": generation}}
            for host in range(1, HOSTS + 1)
        ]
        # Some processes name the resources in another order.
        body = {"items": items[:: -1 if number % 2 else 1]}
        answer = story.ok("POST", "/v2/resources/stats", body)["results"]
        return [each["result"] for each in answer]


def test_the_newest_generation_wins(crowd: Crowd, database_url: str, here: Story) -> None:
    here.register(HOSTS)
    for turn in range(ROUNDS):
        results = crowd.do(_push, database_url, 1 + turn * SIZE)
        assert {each for result in results for each in result} <= {"applied", "stale"}
        newest = (turn + 1) * SIZE
        assert results[-1] == ["applied"] * HOSTS
        loads = [host["load"] for host in here.ok("GET", "/v1/os-hosts")["hosts"]]
        assert loads == [str(newest)] * HOSTS
