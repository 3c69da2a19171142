"""POST /v1/leases: dates, before_end_date, and the lease that is answered."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.service import Story, host_reservation

MakeStory = Callable[..., Story]

BIG = '["==", "$vcpus", "64"]'  # of sim-1 .. sim-4 only sim-4


def refused(story: Story, **fields: Any) -> str:
    """Ask for a lease that is malformed; return the message, after a look at the whole answer."""
    response = story.call("POST", "/v1/leases", {**story.lease_body(), **fields})
    body = response.get_json()
    assert response.status_code == 400, body
    assert body == {
        "error_code": 400,
        "error_message": body["error_message"],
        "error_name": 400,
    }
    assert story.ok("GET", "/v1/leases") == {"leases": []}
    return str(body["error_message"])


def times(lease: dict[str, Any], kind: str) -> list[str]:
    """Return when the events of a kind are due."""
    return [event["time"] for event in lease["events"] if event["event_type"] == kind]


def test_the_answer_is_the_lease_as_clients_parse_it(story: Story) -> None:
    asked = host_reservation(1, 2, resource_properties=BIG, before_end="snapshot")
    body = story.lease_body(120, 240, before_end_date=None, reservations=[asked])
    response = story.call("POST", "/v1/leases", body, token="user1:proj1")
    assert response.status_code == 201
    assert response.mimetype == "application/json"
    lease = response.get_json()["lease"]
    ids = [one["id"] for one in [lease, *lease["reservations"], *lease["events"]]]
    assert len({uuid.UUID(id_) for id_ in ids}) == len(ids)
    assert lease == {
        "id": ids[0],
        "name": "lease",
        "user_id": "user1",
        "project_id": "proj1",
        "start_date": "2030-01-15T14:00:00.000000",
        "end_date": "2030-01-15T16:00:00.000000",
        "trust_id": None,
        "status": "PENDING",
        "degraded": False,
        "created_at": "2030-01-15 12:00:00",
        "updated_at": None,
        "reservations": [
            {
                "id": ids[1],
                "lease_id": ids[0],
                "resource_id": lease["reservations"][0]["resource_id"],
                "resource_type": "physical:host",
                "status": "pending",
                "missing_resources": False,
                "resources_changed": False,
                "created_at": "2030-01-15 12:00:00",
                "updated_at": None,
                "min": 1,
                "max": 2,
                "hypervisor_properties": "",
                "resource_properties": BIG,
                "before_end": "snapshot",
            }
        ],
        "events": [
            {
                "id": id_,
                "lease_id": ids[0],
                "event_type": kind,
                "time": f"2030-01-15T{time}:00.000000",
                "status": "UNDONE",
                "created_at": "2030-01-15 12:00:00",
                "updated_at": None,
            }
            for id_, (time, kind) in zip(
                ids[2:],
                [
                    ("13:00", "before_start_lease"),
                    ("13:50", "before_start_lease"),
                    ("13:59", "before_start_lease"),
                    ("14:00", "start_lease"),
                    ("15:00", "before_end_lease"),
                    ("16:00", "end_lease"),
                ],
                strict=True,
            )
        ],
    }


def test_what_was_answered_is_what_is_shown_and_listed(story_everywhere: Story) -> None:
    story = story_everywhere
    made = story.reserve(120, 240, reservations=[host_reservation(), host_reservation(1, 2)])
    assert story.lease(made["id"]) == made
    assert story.ok("GET", "/v1/leases") == {"leases": [made]}


def test_dates_out_of_order_are_refused(story: Story) -> None:
    for start, end, message in [
        ("2030-01-15 14:00", "2030-01-15 13:00", "End date must be later than start date."),
        ("2030-01-15 14:00", "2030-01-15 14:00", "End date must be later than start date."),
        ("now", "now", "End date must be later than start date."),
        ("2030-01-15 11:59", "2030-01-15 14:00", "Start date must be later than current date"),
        ("2030-01-15 10:00", "2030-01-15 11:00", "Start date must be later than current date"),
    ]:
        assert refused(story, start_date=start, end_date=end) == message


def test_a_date_of_another_format_is_refused(story: Story) -> None:
    for key in ["start_date", "end_date", "before_end_date"]:
        for value in [
            "NOW",
            "tomorrow",
            "2050-13-35 13:13",
            "2050-02-30 12:00",
            "2050-01-01T12:00",
            "2050-01-01 12:00:00",
            "2050-01-01",
            "12050-01-01 12:00",
            20500101,
            True,
            ["2050-01-01 12:00"],
        ]:
            message = refused(story, **{key: value})
            assert message == f"{value} is an invalid date. Required format: %Y-%m-%d %H:%M"


def test_null_for_what_is_required_is_refused(story: Story) -> None:
    for key in ["name", "start_date", "end_date"]:
        assert key in refused(story, **{key: None})


def test_the_current_minute_is_not_the_past(story: Story) -> None:
    story.clock.advance(59)
    lease = story.reserve(start_date="2030-01-15 12:00")
    assert lease["start_date"] == "2030-01-15T12:00:00.000000"


def test_now_is_the_current_minute(story: Story) -> None:
    story.clock.advance(59)
    lease = story.reserve(start_date="now")
    assert lease["start_date"] == "2030-01-15T12:00:00.000000"
    assert lease["status"] == "PENDING"
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_dates_need_no_zero_padding(story: Story) -> None:
    lease = story.reserve(start_date="2050-1-1 9:5", end_date="2050-1-2 9:5")
    assert lease["start_date"] == "2050-01-01T09:05:00.000000"


def test_a_missing_parameter_is_named(story: Story) -> None:
    for missing in ["name", "start_date", "end_date"]:
        body = story.lease_body()
        del body[missing]
        assert story.refused(400, "POST", "/v1/leases", body) == f"Missing parameter {missing}"


def test_all_missing_parameters_are_named(story: Story) -> None:
    message = story.refused(400, "POST", "/v1/leases", {})
    assert message == "Missing parameter start_date, name, end_date"


def test_a_name_is_a_text_of_1_to_80_characters(story: Story) -> None:
    for name in ["", "x" * 81, 5, ["x"]]:
        assert "name" in refused(story, name=name)


def test_the_longest_name_fits_every_database(story_everywhere: Story) -> None:
    name = "\N{SNOWMAN}\N{PARTY POPPER}" * 40
    lease = story_everywhere.reserve(name=name)
    assert story_everywhere.lease(lease["id"])["name"] == name


def test_two_leases_may_have_the_same_name(story: Story) -> None:
    assert story.reserve(name="twin")["id"] != story.reserve(name="twin")["id"]


def test_a_lease_may_last_until_the_end_of_the_calendar(make_story: MakeStory) -> None:
    story = make_story(DEFAULT__cleaning_time=30)
    story.register(1)
    lease = story.reserve(0, end_date="9999-12-31 23:59")
    assert lease["end_date"] == "9999-12-31T23:59:00.000000"
    assert times(lease, "before_end_lease") == ["9999-12-31T22:59:00.000000"]
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    other = story.lease_body(start_date="9999-12-31 23:58", end_date="9999-12-31 23:59")
    story.refused(409, "POST", "/v1/leases", other)
    story.clock.advance(60)
    path = f"/v1/leases/{lease['id']}"
    story.ok("PUT", path, {"before_end_date": "9999-12-31 23:58"})
    story.ok("DELETE", path)
    story.run()
    story.refused(404, "GET", path)


def test_before_end_must_be_inside_the_lease(story: Story) -> None:
    for before_end in [
        "2030-01-15 12:59",
        "2030-01-15 13:00",
        "2030-01-15 14:00",
        "2030-01-15 14:01",
    ]:
        assert "before_end_date" in refused(story, before_end_date=before_end)


def test_before_end_is_a_date_and_never_now(story: Story) -> None:
    assert refused(story, before_end_date="now").startswith("now is an invalid date.")


@pytest.mark.parametrize("before_end", [None, ""])
def test_without_a_date_before_end_is_an_hour_before_the_end(
    story: Story, before_end: str | None
) -> None:
    lease = story.reserve(60, 240, before_end_date=before_end)
    assert times(lease, "before_end_lease") == ["2030-01-15T15:00:00.000000"]


def test_before_end_may_be_chosen(story: Story) -> None:
    lease = story.reserve(60, 240, before_end_date="2030-01-15 15:59")
    assert times(lease, "before_end_lease") == ["2030-01-15T15:59:00.000000"]
    assert "before_end_date" not in lease


def test_before_end_of_a_short_lease_comes_right_after_its_start(story: Story) -> None:
    lease = story.reserve(0, 30)
    assert times(lease, "before_end_lease") == times(lease, "start_lease")
    story.run()
    assert story.told(lease["id"]) == [
        "lease.create",
        "lease.event.start_lease",
        "lease.event.before_end_lease",
    ]


def test_before_end_can_be_off_unless_a_date_is_given(make_story: MakeStory) -> None:
    story = make_story(manager__minutes_before_end_lease=0)
    story.register(2)
    assert times(story.reserve(60, 240), "before_end_lease") == []
    chosen = story.reserve(60, 240, before_end_date="2030-01-15 15:30")
    assert times(chosen, "before_end_lease") == ["2030-01-15T15:30:00.000000"]


def test_keys_that_are_not_the_users_are_ignored(story: Story) -> None:
    forged = {"id": "mine", "status": "ACTIVE", "degraded": True, "project_id": "theirs"}
    lease = story.reserve(**forged, reservations=[host_reservation(id="mine", status="active")])
    assert lease["id"] != "mine"
    assert (lease["status"], lease["degraded"]) == ("PENDING", False)
    assert lease["project_id"] == "admin"
    assert lease["reservations"][0]["id"] != "mine"
    assert lease["reservations"][0]["status"] == "pending"
