"""Concurrent requests with one idempotency key are processed once."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from climate.db.leases import idempotency
from tests.race.crowd import SIZE, Crowd, at_work, wait_for_all
from tests.support.service import Story, hosts

LEASES = "/v2/leases"
HOSTS = 4
KEYS = 3
# Without the guard a race must be lost; otherwise the test repeats it.
TRIES = 8


@pytest.fixture
def here(database_url: str) -> Iterator[Story]:
    """Return the service in this process, with hosts."""
    with at_work(database_url) as story:
        story.register(HOSTS)
        yield story


def _send_keyed(
    _number: int, url: str, first: int, wanted: int, protected: bool
) -> list[tuple[int, str]]:
    """Send a request for ``wanted`` hosts under each key; return status and lease."""
    with _claim(active=protected), at_work(url) as story:
        answers = []
        for key in range(first, first + KEYS):
            start = 60 + 120 * key
            body = story.asking(start, start + 60, reservations=[hosts(wanted, wanted)])
            wait_for_all()
            answer = story.call("POST", LEASES, body, headers={"Idempotency-Key": f"key {key}"})
            answers.append((answer.status_code, answer.get_data(as_text=True)))
        return answers


@contextmanager
def _claim(*, active: bool) -> Iterator[None]:
    """Look a key up without claiming it, unless ``active``."""
    kept = idempotency.claim
    if not active:
        idempotency.claim = lambda *_: None
    try:
        yield
    finally:
        idempotency.claim = kept


def _rename(number: int, url: str, path: str, tag: str) -> int:
    """Rename the lease if its ETag still matches."""
    with at_work(url) as story:
        wait_for_all()
        return story.call(
            "PATCH", path, {"name": f"by {number}"}, headers={"If-Match": tag}
        ).status_code


def _count(story: Story) -> int:
    return len(story.ok("GET", LEASES)["leases"])


@pytest.mark.parametrize("wanted", [1, HOSTS])
def test_each_key_makes_one_lease_and_every_request_gets_its_response(
    crowd: Crowd, here: Story, database_url: str, wanted: int
) -> None:
    """All hosts are requested, so a second request that searches too early finds none."""
    answers = crowd.do(_send_keyed, database_url, 0, wanted, True)
    for same in zip(*answers, strict=True):
        assert len(set(same)) == 1, Counter(status for status, _ in same)
        assert same[0][0] == 201
    assert _count(here) == KEYS


def test_without_the_claim_a_key_makes_several_leases(
    crowd: Crowd, here: Story, database_url: str
) -> None:
    for attempt in range(TRIES):
        crowd.do(_send_keyed, database_url, attempt * KEYS, 1, False)
        if _count(here) > (attempt + 1) * KEYS:
            return
    pytest.fail("no second lease was seen, so this stress proves nothing")


def test_one_of_many_changes_with_the_same_etag_succeeds(
    crowd: Crowd, here: Story, database_url: str
) -> None:
    made: Any = here.call("POST", LEASES, here.asking())
    path, tag = made.headers["Location"], made.headers["ETag"]
    answers = Counter(crowd.do(_rename, database_url, path, tag))
    assert answers == {200: 1, 412: SIZE - 1}
