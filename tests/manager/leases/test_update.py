"""Changes of a lease's name and dates: what may change in which status."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from climate.api.v1 import leases as v1_leases
from climate.api.v2.leases import views as v2_leases
from climate.manager.leases import create
from climate.manager.wait_list import displacing
from tests.support.bodies import change_of, pool_of, put, rejected_put, times_of_day
from tests.support.service import Story, host_reservation


def lease_in_error(story: Story) -> dict[str, Any]:
    lease = story.reserve(0, 240)
    story.cloud._failure_rate = 1.0
    for _ in range(7):
        story.at(1)
    story.cloud._failure_rate = 0.0
    return story.lease(lease["id"])


def test_a_lease_can_be_renamed_in_every_stable_status(story: Story) -> None:
    pending, active, over = story.reserve(60, 240), story.reserve(0, 240), story.reserve(0, 1)
    story.run()
    story.at(1)
    failed = lease_in_error(story)
    expected = {"PENDING": pending, "ACTIVE": active, "TERMINATED": over, "ERROR": failed}
    for status, lease in expected.items():
        assert story.lease(lease["id"])["status"] == status
        renamed = put(story, lease, name=f"was {status}")
        assert (renamed["name"], renamed["status"]) == (f"was {status}", status)
        assert story.event_types(lease["id"])[-1] == "lease.update"
    # A lease in ERROR gets no more hosts, but it may end later or now.
    more = change_of(failed, max=2)
    assert "ERROR" in rejected_put(story, failed, 409, reservations=more)
    assert times_of_day(put(story, failed, end_date=story.date(300)), "end_lease") == ["17:08"]
    put(story, failed, end_date="now")
    story.run()
    assert story.lease(failed["id"])["status"] == "TERMINATED"


def test_only_the_name_of_a_finished_lease_can_change(story: Story) -> None:
    over = story.reserve(0, 60)
    story.run()
    story.at(60)
    late = story.reserve(0, 60)
    story.run()
    story.clock.advance(3700)  # the end of the second lease is due, but not processed
    for lease in (over, late):
        for change in (
            {"name": "new", "end_date": story.date(60)},
            {"end_date": "now"},
            {"before_end_date": story.date(30)},
            {"reservations": change_of(lease, max=2)},
        ):
            assert "only its name" in rejected_put(story, lease, **change)
        put(story, lease, name="still possible")


def test_a_pending_lease_moves_with_its_events(story: Story) -> None:
    lease = story.reserve(120, 240)
    moved = put(story, lease, start_date=story.date(600), end_date="2030-01-16 00:00")
    assert moved["start_date"] == "2030-01-15T22:00:00.000000"
    assert moved["end_date"] == "2030-01-16T00:00:00.000000"
    assert moved["updated_at"] == "2030-01-15 12:00:00"
    assert times_of_day(moved, "before_start_lease") == ["21:00", "21:50", "21:59"]
    for event_type, time in [
        *(("start_lease", "22:00"), ("before_end_lease", "23:00"), ("end_lease", "00:00"))
    ]:
        assert times_of_day(moved, event_type) == [time]


def test_a_lease_starts_at_its_new_start(story: Story) -> None:
    later, sooner, now = story.reserve(60, 240), story.reserve(120, 240), story.reserve(60, 240)
    story.clock.advance(59)
    moved = put(story, now, start_date="now")
    assert moved["start_date"] == "2030-01-15T12:00:00.000000"
    story.run()
    assert story.lease(now["id"])["status"] == "ACTIVE"
    story.clock.advance(1)
    put(story, later, start_date=story.date(119))
    put(story, sooner, start_date=story.date(59))
    story.at(59)
    statuses = [story.lease(lease["id"])["status"] for lease in (later, sooner)]
    assert statuses == ["PENDING", "ACTIVE"]
    story.at(60)
    assert story.lease(later["id"])["status"] == "ACTIVE"


def test_an_active_lease_keeps_its_start_and_may_end_later_or_sooner(story: Story) -> None:
    lease = story.reserve(0, 240)
    for _ in range(2):  # due, then active
        assert "start date" in rejected_put(story, lease, start_date=story.date(30))
        story.run()
    longer = put(story, lease, start_date=story.date(0), end_date=story.date(360))
    assert times_of_day(longer, "end_lease") == ["18:00"]
    sooner = put(story, lease, end_date=story.date(120))
    assert times_of_day(sooner, "end_lease") == ["14:00"]
    assert times_of_day(sooner, "before_end_lease") == ["13:00"]
    assert sooner["status"] == "ACTIVE"
    story.clock.advance(10 * 60)
    message = rejected_put(story, lease, end_date=story.date(-1))
    assert message.startswith("End date must be later")
    story.until(story.clock.now() + dt.timedelta(minutes=110), step=600)
    assert story.lease(lease["id"])["status"] == "TERMINATED"


@pytest.mark.parametrize("end", ["now", "2030-01-15 12:10"])
def test_an_end_in_the_current_minute_ends_the_lease_now(story_everywhere: Story, end: str) -> None:
    story = story_everywhere
    lease = story.reserve(0, 240)
    story.run()
    story.clock.advance(10 * 60 + 42.5)
    assert put(story, lease, end_date=end)["end_date"] == "2030-01-15T12:10:42.500000"
    story.run()
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert pool_of(story, lease) == []
    again = story.reserve(0, 60, reservations=[host_reservation(4, 4)])
    assert len(story.hosts_of(again["id"])) == 4


def test_a_lease_can_end_now_although_the_clock_was_set_back(story: Story) -> None:
    story.clock.advance(30)
    lease = story.reserve(0, 240)
    story.run()
    story.clock.advance(-10)
    put(story, lease, end_date="now")
    story.run()
    assert story.lease(lease["id"])["status"] == "TERMINATED"


def test_a_lease_that_is_starting_cannot_be_changed(story: Story) -> None:
    lease = story.reserve(0, 240)
    story.cloud._failure_rate = 1.0
    story.run()
    assert story.lease(lease["id"])["status"] == "STARTING"
    for change in ({"name": "new"}, {"end_date": story.date(300)}):
        assert "STARTING" in rejected_put(story, lease, 409, **change)
    response = story.call("PUT", f"/v1/leases/{lease['id']}", {"name": "new"})
    assert response.headers["Climate-Error-Code"] == "lease_busy"


# Dates are judged at the arrival of a request, although looking things up takes two seconds.

LAST_SECOND = "2030-01-15T12:00:59Z"


@pytest.fixture
def slow_story(story: Story, monkeypatch: pytest.MonkeyPatch) -> Story:
    """Return a service in the last second of a minute whose requests take two seconds."""

    def delayed(use_case: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            story.clock.advance(2)
            return use_case(*arguments, **options)

        return called

    for module, name in (
        (create, "create_lease"),
        (displacing, "create_lease"),
        (v1_leases, "update_lease"),
        (v2_leases, "update_lease"),
    ):
        monkeypatch.setattr(module, name, delayed(getattr(module, name)))
    story.clock.advance(59)
    return story


def test_a_slow_request_starts_a_lease_at_its_arrival(slow_story: Story) -> None:
    for start in ("now", "2030-01-15 12:00"):
        lease = slow_story.reserve(start_date=start, reservations=[])
        assert lease["start_date"] == "2030-01-15T12:00:00.000000"
        assert slow_story.clock.now().minute == 1
        slow_story.clock.step(-2)
    body = slow_story.asking()
    asap = {"start": "asap", "duration": 600, "end_by": slow_story.moment(60)}
    earliest = {**{key: body[key] for key in body if key != "end"}, **asap}
    for request in ({**body, "start": "now"}, {**body, "start": LAST_SECOND}, earliest):
        assert slow_story.ok("POST", "/v2/leases", request)["start"] == LAST_SECOND
        slow_story.clock.step(-2)
    slow_story.clock.advance(1)
    problem = slow_story.problem(
        400, "POST", "/v2/leases", {**slow_story.asking(), "start": LAST_SECOND}
    )
    assert problem["code"] == "invalid_date"


@pytest.mark.parametrize("api", ["v1", "v2"])
def test_a_slow_request_starts_or_ends_a_lease_now(slow_story: Story, api: str) -> None:
    def move_to_now(lease: dict[str, Any], date: str) -> None:
        slow_story.clock.advance(59 - slow_story.clock.now().second)
        if api == "v1":
            slow_story.ok("PUT", f"/v1/leases/{lease['id']}", {f"{date}_date": "now"})
        else:
            slow_story.ok("PATCH", f"/v2/leases/{lease['id']}", {date: "now"})
        slow_story.run()

    lease = slow_story.reserve(60, 120)
    move_to_now(lease, "start")
    assert slow_story.lease(lease["id"])["status"] == "ACTIVE"
    slow_story.at(10)
    move_to_now(lease, "end")
    assert slow_story.lease(lease["id"])["status"] == "TERMINATED"
