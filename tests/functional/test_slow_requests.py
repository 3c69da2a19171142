"""A minute that ends while a request is dealt with: what was the present is not refused as past."""

from collections.abc import Callable
from typing import Any

import pytest

from climate.manager import leases, updates
from tests.support.service import Story

ASKED = "2030-01-15T12:00:59Z"


@pytest.fixture(autouse=True)
def slow(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests be looked at for two seconds, as where a cloud is asked about them."""

    def later(use_case: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            story.clock.advance(2)
            return use_case(*args)

        return called

    monkeypatch.setattr(leases, "create", later(leases.create))
    monkeypatch.setattr(updates, "update", later(updates.update))


def last_second(story: Story) -> None:
    """Let it be the last second of a minute."""
    story.clock.advance(59 - story.clock.now().second)


@pytest.fixture(params=["v1", "v2"])
def move_to_now(request: pytest.FixtureRequest, story: Story) -> Callable[[str, str], Any]:
    """Return what has a lease's ``start`` or ``end`` be now, by either API."""
    if request.param == "v1":
        return lambda id_, what: story.ok("PUT", f"/v1/leases/{id_}", {f"{what}_date": "now"})
    return lambda id_, what: story.ok("PATCH", f"/v2/leases/{id_}", {what: "now"})


@pytest.mark.parametrize("start", ["now", "2030-01-15 12:00"])
def test_a_v1_lease_starts_in_the_minute_in_which_it_was_asked_for(
    story: Story, start: str
) -> None:
    last_second(story)
    assert story.reserve(start_date=start)["start_date"] == "2030-01-15T12:00:00.000000"
    assert story.clock.now().minute == 1


@pytest.mark.parametrize("fields", [{"start": "now"}, {"start": ASKED}])
def test_a_v2_lease_starts_in_the_second_in_which_it_was_asked_for(
    story: Story, fields: dict[str, Any]
) -> None:
    last_second(story)
    assert story.ok("POST", "/v2/leases", {**story.asking(), **fields})["start"] == ASKED


def test_a_lease_as_soon_as_possible_starts_at_once(story: Story) -> None:
    last_second(story)
    body = {**story.asking(), "start": "asap", "duration": 600, "end_by": story.moment(60)}
    del body["end"]
    assert story.ok("POST", "/v2/leases", body)["start"] == ASKED


def test_what_was_past_when_it_was_asked_for_is_refused(story: Story) -> None:
    story.clock.advance(60)
    refusal = story.problem(400, "POST", "/v2/leases", {**story.asking(), "start": ASKED})
    assert refusal["code"] == "invalid_date"


def test_a_lease_ends_now(story: Story, move_to_now: Callable[[str, str], Any]) -> None:
    running = story.reserve(1, 60)["id"]
    story.at(10)
    last_second(story)
    move_to_now(running, "end")
    story.run()
    assert story.lease(running)["status"] == "TERMINATED"


def test_a_lease_is_brought_forward_to_now(
    story: Story, move_to_now: Callable[[str, str], Any]
) -> None:
    lease = story.reserve(60, 120)
    last_second(story)
    move_to_now(lease["id"], "start")
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
