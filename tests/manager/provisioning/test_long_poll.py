"""Long polling: provisioners that wait get new preparations at once, without a broker."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from climate.core.notifications.event_type import PREPARE
from tests.conftest import MakeStory
from tests.support.process import eventually
from tests.support.provisioners import plan, preparations, report
from tests.support.service import Story

Ask = Callable[[str], "Future[list[dict[str, Any]]]"]


@pytest.fixture
def everywhere(make_story_everywhere: MakeStory) -> Story:
    """Return a service with provisioning and two hosts on each database; nothing is polled."""
    made = make_story_everywhere(
        provisioning__enabled=True, provisioning__longest=1800.0, manager__poll_interval=30
    )
    made.register(2)
    return made


@pytest.fixture
def ask(everywhere: Story) -> Iterator[Ask]:
    """Return how to ask what is claimable, and wait for an answer elsewhere."""
    with ThreadPoolExecutor(1) as elsewhere:

        def begin(wait: str) -> "Future[list[dict[str, Any]]]":
            asked = elsewhere.submit(preparations, everywhere, f"claimable=true&wait={wait}")
            eventually(lambda: everywhere.runtime.latest._followers.total() == 1, "it waits")
            return asked

        yield begin


def prepared(story: Story) -> dict[str, Any]:
    """Return a preparation that was just asked for."""
    story.ok("POST", "/v2/leases", story.asking(20, 60))
    plan(story)
    story.relay.flush()
    return preparations(story)[-1]


def test_a_waiting_provisioner_gets_a_new_preparation(everywhere: Story, ask: Ask) -> None:
    asked = ask("60")
    made = prepared(everywhere)
    assert [item["id"] for item in asked.result(20)] == [made["id"]]


def test_a_waiting_provisioner_gets_a_released_preparation(everywhere: Story, ask: Ask) -> None:
    story = everywhere
    made = prepared(story)
    report(story, made, "accepted")
    asked = ask("60")
    report(story, made, "wanted")
    story.relay.flush()
    assert [item["id"] for item in asked.result(20)] == [made["id"]]
    report(story, made, "accepted")
    report(story, made, "failed", reason="no power")
    asked = ask("60")
    path = f"/v2/resources/{made['resource_id']}/readiness"
    story.ok("PATCH", path, {"set_aside": None})
    story.relay.flush()
    assert [item["id"] for item in asked.result(20)] == [made["id"]]
    told = [item for item in story.published() if item["event_type"] == f"node.{PREPARE}"]
    assert len(told) == 3


def test_a_waiting_provisioner_gets_an_expired_preparation(everywhere: Story, ask: Ask) -> None:
    story = everywhere
    made = prepared(story)
    report(story, made, "accepted", claim_seconds=10)
    story.clock.advance(9.7)
    asked = ask("60")
    story.clock.advance(1)
    assert [item["id"] for item in asked.result(20)] == [made["id"]]


def test_a_wait_without_a_result_ends_in_an_empty_answer(everywhere: Story) -> None:
    assert preparations(everywhere, "claimable=true&wait=1") == []


def test_a_preparation_that_exists_is_returned_without_waiting(make_story: MakeStory) -> None:
    story = make_story(provisioning__enabled=True, notifications__followers=0)
    story.register(1)
    rejection = story.problem(503, "GET", "/v2/preparations?wait=1")
    assert rejection["code"] == "too_many_followers"
    made = prepared(story)
    assert [item["id"] for item in preparations(story, "claimable=true&wait=60")] == [made["id"]]
