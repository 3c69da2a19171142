"""PUT /v1/leases/ID: names, dates and notices; what may change when, and that nothing else does."""

import datetime as dt
from typing import Any

import pytest

from tests.support.service import Story, host_reservation

IGNORED = {
    "id": "other",
    "status": "TERMINATED",
    "degraded": True,
    "user_id": "other",
    "project_id": "other",
    "trust_id": "other",
    "created_at": "2000-01-01 00:00:00",
    "anything": ["else"],
}


def put(story: Story, lease: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Change the lease and return it; what is answered is what is there."""
    answer = story.ok("PUT", f"/v1/leases/{lease['id']}", fields)
    assert answer == {"lease": story.lease(lease["id"])}
    return answer["lease"]


def refused(story: Story, lease: dict[str, Any], status: int = 400, **fields: Any) -> str:
    """Try a change that must be refused, and must change nothing at all."""
    before = everything(story)
    message = story.refused(status, "PUT", f"/v1/leases/{lease['id']}", fields)
    assert everything(story) == before
    return message


def everything(story: Story) -> list[Any]:
    """Return all that a refused request must leave alone."""
    return [
        story.ok("GET", "/v1/leases"),
        story.ok("GET", "/v1/os-hosts/allocations"),
        story.published(),
        story.cloud.effects(),
    ]


def times(lease: dict[str, Any], kind: str) -> list[str]:
    """Return the times of day at which the events of a kind are due."""
    return [one["time"][11:16] for one in lease["events"] if one["event_type"] == kind]


def in_error(story: Story) -> dict[str, Any]:
    """Return a lease whose start has failed for good."""
    lease = story.reserve(0, 240)
    story.cloud._failure_rate = 1.0
    for _ in range(7):
        story.at(1)
    story.cloud._failure_rate = 0.0
    return story.lease(lease["id"])


def test_an_empty_change_changes_nothing(story: Story) -> None:
    lease = story.reserve()
    before = everything(story)
    assert put(story, lease) == lease
    assert everything(story) == before


def test_keys_that_are_not_the_users_are_ignored(story: Story) -> None:
    lease = story.reserve()
    before = everything(story)
    assert put(story, lease, **IGNORED) == lease
    assert everything(story) == before


def test_a_lease_can_be_renamed_in_every_stable_status(story: Story) -> None:
    pending, active, over = story.reserve(60, 240), story.reserve(0, 240), story.reserve(0, 1)
    story.run()
    story.at(1)
    failed = in_error(story)
    leases = {
        "PENDING": pending,
        "ACTIVE": active,
        "TERMINATED": over,
        "ERROR": failed,
    }
    for status, lease in leases.items():
        assert story.lease(lease["id"])["status"] == status
        renamed = put(story, lease, name=f"was {status}")
        assert renamed["name"] == f"was {status}"
        assert renamed["status"] == status
        assert story.told(lease["id"])[-1] == "lease.update"


def test_a_name_must_be_a_name(story: Story) -> None:
    lease = story.reserve()
    for name in ["", "x" * 81, 5, None]:
        assert "name" in refused(story, lease, name=name)


def test_of_a_lease_that_is_over_only_the_name_can_change(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    story.at(60)
    for change in (
        {"name": "new", "end_date": story.date(60)},
        {"end_date": "now"},
        {"before_end_date": story.date(30)},
        {"reservations": [{"id": lease["reservations"][0]["id"], "max": 2}]},
    ):
        assert "only its name" in refused(story, lease, **change)


def test_a_lease_whose_end_has_passed_cannot_come_back(story: Story) -> None:
    lease = story.reserve(0, 60)
    story.run()
    story.clock.advance(3700)  # and the manager is late
    assert "only its name" in refused(story, lease, end_date=story.date(60))
    put(story, lease, name="still possible")


def test_a_pending_lease_can_move_as_a_whole(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(120, 240)
    moved = put(story, lease, start_date=story.date(600), end_date="2030-01-16 00:00")
    assert moved["start_date"] == "2030-01-15T22:00:00.000000"
    assert moved["end_date"] == "2030-01-16T00:00:00.000000"
    assert times(moved, "before_start_lease") == ["21:00", "21:50", "21:59"]
    assert times(moved, "start_lease") == ["22:00"]
    assert times(moved, "before_end_lease") == ["23:00"]
    assert times(moved, "end_lease") == ["00:00"]
    assert moved["updated_at"] == "2030-01-15 12:00:00"


def test_a_lease_starts_when_it_was_moved_to(story: Story) -> None:
    later, sooner = story.reserve(60, 240), story.reserve(120, 240)
    put(story, later, start_date=story.date(120))
    put(story, sooner, start_date=story.date(60))
    story.at(60)
    assert story.lease(later["id"])["status"] == "PENDING"
    assert story.lease(sooner["id"])["status"] == "ACTIVE"
    story.at(60)
    assert story.lease(later["id"])["status"] == "ACTIVE"


def test_a_pending_lease_can_be_brought_forward_to_now(story: Story) -> None:
    lease = story.reserve(60, 240)
    story.clock.advance(59)
    assert put(story, lease, start_date="now")["start_date"] == "2030-01-15T12:00:00.000000"
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_dates_of_a_pending_lease_must_be_in_order(story: Story) -> None:
    lease = story.reserve(60, 240)
    for dates, message in [
        ({"start_date": "2030-01-15 11:59"}, "Start date must be later than current date"),
        ({"start_date": "2030-01-15 16:00"}, "End date must be later than"),
        ({"end_date": "2030-01-15 13:00"}, "End date must be later than"),
        ({"end_date": "2030-01-15 12:59"}, "End date must be later than"),
        ({"end_date": "2030-01-15 11:00"}, "End date must be later than"),
        ({"end_date": "now"}, "End date must be later than"),
        ({"start_date": "now", "end_date": "now"}, "End date must be later than"),
        ({"start_date": "soon"}, "soon is an invalid date. Required format: %Y-%m-%d %H:%M"),
        ({"end_date": 5}, "5 is an invalid date."),
        ({"before_end_date": "now"}, "now is an invalid date."),
    ]:
        assert refused(story, lease, **dates).startswith(message)


def test_an_empty_date_keeps_the_date(story: Story) -> None:
    lease = story.reserve(60, 240)
    for key in ["start_date", "end_date", "before_end_date"]:
        for value in [None, ""]:
            assert put(story, lease, **{key: value}) == lease


def test_a_started_lease_keeps_its_start(story: Story) -> None:
    lease = story.reserve(0, 240)
    assert "start date" in refused(story, lease, start_date=story.date(30))
    story.run()
    assert "start date" in refused(story, lease, start_date=story.date(30))
    put(story, lease, start_date=story.date(0), end_date=story.date(300))


def test_a_started_lease_can_end_later_or_sooner(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 240)
    story.run()
    assert times(put(story, lease, end_date=story.date(360)), "end_lease") == ["18:00"]
    sooner = put(story, lease, end_date=story.date(120))
    assert times(sooner, "end_lease") == ["14:00"]
    assert times(sooner, "before_end_lease") == ["13:00"]
    assert sooner["status"] == "ACTIVE"
    story.until(story.clock.now() + dt.timedelta(minutes=120), step=600)
    assert story.lease(lease["id"])["status"] == "TERMINATED"


@pytest.mark.parametrize("end", ["now", "2030-01-15 12:10"])
def test_an_end_in_the_current_minute_ends_the_lease_now(story_everywhere: Story, end: str) -> None:
    story = story_everywhere
    lease = story.reserve(0, 240)
    story.run()
    story.clock.advance(10 * 60 + 42.5)
    ended = put(story, lease, end_date=end)
    assert ended["end_date"] == "2030-01-15T12:10:42.500000"
    story.run()
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert story.cloud.pool_hosts(lease["reservations"][0]["id"]) == []
    again = story.reserve(0, 60, reservations=[host_reservation(4, 4)])
    assert len(story.hosts_of(again["id"])) == 4


def test_an_end_before_the_current_minute_is_refused(story: Story) -> None:
    lease = story.reserve(0, 240)
    story.run()
    story.clock.advance(10 * 60)
    assert refused(story, lease, end_date=story.date(-1)).startswith("End date must be later")


def test_a_lease_can_end_now_although_the_clock_was_set_back(story: Story) -> None:
    story.clock.advance(30)
    lease = story.reserve(0, 240)
    story.run()
    story.clock.advance(-10)
    put(story, lease, end_date="now")
    story.run()
    assert story.lease(lease["id"])["status"] == "TERMINATED"


def test_before_end_must_stay_inside_the_lease(story: Story) -> None:
    lease = story.reserve(60, 240)
    for minutes in [0, 59, 60, 240, 241]:
        message = refused(story, lease, before_end_date=story.date(minutes))
        assert message.startswith("before_end_date must be")


def test_before_end_is_measured_by_the_new_dates(story: Story) -> None:
    lease = story.reserve(60, 240)
    moved = put(story, lease, end_date=story.date(600), before_end_date=story.date(500))
    assert times(moved, "before_end_lease") == ["20:20"]
    refused(story, lease, end_date=story.date(400), before_end_date=story.date(450))


def test_before_end_keeps_its_distance_from_the_end(story: Story) -> None:
    lease = story.reserve(60, 240, before_end_date=story.date(230))
    assert times(put(story, lease, end_date=story.date(300)), "before_end_lease") == ["16:50"]
    # and never comes before the start
    assert times(put(story, lease, end_date=story.date(65)), "before_end_lease") == ["13:00"]
    assert times(put(story, lease, end_date=story.date(300)), "before_end_lease") == ["16:50"]


def test_before_end_can_be_added_where_it_is_off(make_story: Any) -> None:
    story = make_story(manager__minutes_before_end_lease=0)
    story.register(1)
    lease = story.reserve(60, 240)
    put(story, lease, end_date=story.date(300))
    assert times(put(story, lease, before_end_date=story.date(200)), "before_end_lease") == [
        "15:20"
    ]


def test_a_lease_that_is_being_started_cannot_be_changed(story: Story) -> None:
    lease = story.reserve(0, 240)
    story.cloud._failure_rate = 1.0
    story.run()
    assert story.lease(lease["id"])["status"] == "STARTING"
    for change in ({"name": "new"}, {"end_date": story.date(300)}):
        assert "STARTING" in refused(story, lease, 409, **change)
    response = story.call("PUT", f"/v1/leases/{lease['id']}", {"name": "new"})
    assert response.headers["Climate-Error-Code"] == "lease_busy"


def test_a_lease_in_error_can_be_prolonged_and_shortened(story: Story) -> None:
    lease = in_error(story)
    assert times(put(story, lease, end_date=story.date(300)), "end_lease") == ["17:07"]
    put(story, lease, end_date="now")
    story.run()
    assert story.lease(lease["id"])["status"] == "TERMINATED"


def test_a_lease_that_is_not_there_cannot_be_changed(story: Story) -> None:
    message = story.refused(404, "PUT", "/v1/leases/nope", {"name": "new"})
    assert message == "Object with {'lease_id': 'nope'} not found"
