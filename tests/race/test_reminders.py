"""Managers write the reminders of one subscriber at the same moment."""

from collections import Counter
from collections.abc import Iterator

import pytest

from climate.manager.notifications.reminders import remind
from tests.race.crowd import Crowd, at_work, wait_for_all
from tests.support.emitters import log
from tests.support.receiver import SECRET
from tests.support.service import Story

LEASES = 5
ROUNDS = 4


@pytest.fixture
def here(database_url: str) -> Iterator[Story]:
    """Return the service in this process."""
    with at_work(database_url) as story:
        yield story


def _remind(_number: int, url: str, minutes: float) -> int:
    with at_work(url) as story:
        story.clock.advance(60 * minutes)
        wait_for_all()
        return remind(story.runtime.store)


def test_each_reminder_is_written_once(crowd: Crowd, database_url: str, here: Story) -> None:
    leads = [3600 - 600 * turn for turn in range(ROUNDS)]
    body = {"url": "https://example.org/", "secret": SECRET, "before_start_leads": leads}
    here.ok("POST", "/v2/subscriptions", body)
    here.register(LEASES)
    ids = [here.reserve(120, 180, name=str(number))["id"] for number in range(LEASES)]
    for turn in range(ROUNDS):
        assert sum(crowd.do(_remind, database_url, 61 + 10 * turn)) == LEASES
    here.relay.flush()
    written = Counter(
        item["lease_id"] for item in log(here) if item["event_type"] == "lease.reminder"
    )
    assert written == dict.fromkeys(ids, ROUNDS)
