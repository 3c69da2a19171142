"""/v1/leases: the exact answers, and which requests are rejected with which message."""

import uuid
from typing import Any

from tests.conftest import MakeStory
from tests.support.bodies import ONLY_SIM_4, put, rejected_put, times_of_day
from tests.support.service import Story, host_reservation

INVALID_DATES = [
    *("NOW", "tomorrow", "2050-13-35 13:13", "2050-02-30 12:00", "2050-01-01T12:00"),
    *("2050-01-01 12:00:00", "2050-01-01", "12050-01-01 12:00", 20500101, True),
    ["2050-01-01 12:00"],
]


def rejected(story: Story, **fields: Any) -> str:
    """Send a malformed request for a lease; check the whole answer and return the message."""
    response = story.call("POST", "/v1/leases", {**story.lease_body(), **fields})
    body = response.get_json()
    assert response.status_code == 400, body
    message = str(body["error_message"])
    assert body == {"error_code": 400, "error_message": message, "error_name": 400}
    return message


def event(lease_id: str, id_: str, time: str, event_type: str) -> dict[str, Any]:
    return {
        "id": id_,
        "lease_id": lease_id,
        "event_type": event_type,
        "time": f"2030-01-15T{time}:00.000000",
        "status": "UNDONE",
        "created_at": "2030-01-15 12:00:00",
        "updated_at": None,
    }


def test_a_created_lease_is_answered_shown_and_listed_alike(story: Story) -> None:
    reservation = host_reservation(1, 2, resource_properties=ONLY_SIM_4, before_end="snapshot")
    body = story.lease_body(120, 240, before_end_date=None, reservations=[reservation])
    response = story.call("POST", "/v1/leases", body, token="user1:proj1")
    assert response.status_code == 201
    assert response.mimetype == "application/json"
    lease = response.get_json()["lease"]
    ids = [part["id"] for part in [lease, *lease["reservations"], *lease["events"]]]
    assert len({uuid.UUID(id_) for id_ in ids}) == len(ids)
    events = [
        ("13:00", "before_start_lease"),
        ("13:50", "before_start_lease"),
        ("13:59", "before_start_lease"),
        ("14:00", "start_lease"),
        ("15:00", "before_end_lease"),
        ("16:00", "end_lease"),
    ]
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
                "resource_properties": ONLY_SIM_4,
                "before_end": "snapshot",
                "match": "targeted",
            }
        ],
        "events": [event(ids[0], id_, *known) for id_, known in zip(ids[2:], events, strict=True)],
    }
    assert story.lease(lease["id"]) == lease
    assert story.ok("GET", "/v1/leases") == {"leases": [lease]}


def test_every_database_keeps_names_and_the_order_of_reservations(story_everywhere: Story) -> None:
    story = story_everywhere
    longest = "\N{SNOWMAN}\N{PARTY POPPER}" * 40
    requested = [host_reservation(1, maximum) for maximum in (3, 1, 2)]
    created = story.reserve(120, 240, name=longest, reservations=requested)
    shown = story.lease(created["id"])
    assert (shown, shown["name"]) == (created, longest)
    assert [reservation["max"] for reservation in shown["reservations"]] == [3, 1, 2]
    assert story.ok("GET", "/v1/leases") == {"leases": [created]}


def test_rejects_missing_null_and_malformed_parameters(story: Story) -> None:
    for key in ("name", "start_date", "end_date"):
        body = story.lease_body()
        del body[key]
        assert story.refused(400, "POST", "/v1/leases", body) == f"Missing parameter {key}"
        assert key in rejected(story, **{key: None})
    message = story.refused(400, "POST", "/v1/leases", {})
    assert message == "Missing parameter start_date, name, end_date"
    for name in ("", "x" * 81, 5, ["x"]):
        assert "name" in rejected(story, name=name)
    for key in ("start_date", "end_date", "before_end_date"):
        for value in INVALID_DATES:
            message = rejected(story, **{key: value})
            known = f"{value} is an invalid date. Required format: %Y-%m-%d %H:%M"
            assert message.startswith(known), "blazar-tempest-plugin compares this text"
    assert rejected(story, before_end_date="now").startswith("now is an invalid date.")
    for key in ("reservations", "events"):
        for value in (None, {}, "x", [1], [None], [[]]):
            assert key in rejected(story, **{key: value})
    assert story.ok("GET", "/v1/leases") == {"leases": []}


def test_rejects_dates_in_the_wrong_order(story: Story) -> None:
    order, past = "End date must be later than start date.", "Start date must be later than current"
    for start, end, message in [
        ("2030-01-15 14:00", "2030-01-15 13:00", order),
        ("2030-01-15 14:00", "2030-01-15 14:00", order),
        ("now", "now", order),
        ("2030-01-15 11:59", "2030-01-15 14:00", f"{past} date:"),
        ("2030-01-15 10:00", "2030-01-15 11:00", f"{past} date:"),
    ]:
        assert rejected(story, start_date=start, end_date=end).startswith(f"{message} ")
    for time in ("12:59", "13:00", "14:00", "14:01"):
        assert "before_end_lease" in rejected(story, before_end_date=f"2030-01-15 {time}")
    assert story.ok("GET", "/v1/leases") == {"leases": []}


def test_dates_are_minutes_and_now_is_the_current_minute(story: Story) -> None:
    story.clock.advance(59)
    for start in ("2030-01-15 12:00", "now"):
        lease = story.reserve(start_date=start)
        assert (lease["start_date"], lease["status"]) == ("2030-01-15T12:00:00.000000", "PENDING")
    unpadded = story.reserve(start_date="2050-1-1 9:5", end_date="2050-1-2 9:5")
    assert unpadded["start_date"] == "2050-01-01T09:05:00.000000"
    for empty in (None, ""):
        lease = story.reserve(60, 240, before_end_date=empty, reservations=[])
        assert times_of_day(lease, "before_end_lease") == ["15:00"]
    chosen = story.reserve(60, 240, before_end_date="2030-01-15 15:59", reservations=[])
    assert times_of_day(chosen, "before_end_lease") == ["15:59"]
    assert "before_end_date" not in chosen


def test_ignores_keys_that_the_user_cannot_set(story: Story) -> None:
    forged: dict[str, Any] = {
        "id": "mine",
        "status": "ACTIVE",
        "degraded": True,
        "project_id": "theirs",
    }
    requested = [host_reservation(id="mine", status="active")]
    lease = story.reserve(**forged, reservations=requested)
    assert (lease["status"], lease["degraded"], lease["project_id"]) == ("PENDING", False, "admin")
    assert "mine" not in {lease["id"], lease["reservations"][0]["id"]}
    assert lease["reservations"][0]["status"] == "pending"
    ignored = {**forged, "user_id": "other", "trust_id": "other", "anything": ["else"]}
    for key in ("start_date", "end_date", "before_end_date"):
        for empty in (None, ""):
            assert put(story, lease, **ignored, **{key: empty}) == lease
    assert put(story, lease) == lease
    assert story.event_types(lease["id"]) == ["lease.create"]


def test_lists_resource_types_and_rejects_unknown_ones(story: Story) -> None:
    assert story.ok("GET", "/v1/plugins", token="bob:lab:reader") == {"plugins": ["physical:host"]}
    body = story.lease_body(reservations=[{"min": 1, "max": 1}])
    message = story.refused(400, "POST", "/v1/leases", body)
    assert message == "Missing parameter resource_type"
    for resource_type in ("no:such", "", None, 5, "x" * 65):
        rejected(story, reservations=[host_reservation(resource_type=resource_type)])
    body = story.lease_body(reservations=[host_reservation(resource_type="no:such")])
    response = story.call("POST", "/v1/leases", body)
    assert "no:such resource type is not supported" in response.get_json()["error_message"]
    assert response.headers["Climate-Error-Code"] == "unsupported_resource_type"


def test_rejects_malformed_events_of_users(story: Story) -> None:
    def rejected_events(*events: dict[str, Any]) -> str:
        body = story.lease_body(60, 240, events=list(events))
        return story.refused(400, "POST", "/v1/leases", body)

    date = story.date(90)
    for kind in ("start_lease", "end_lease", "update_lease", "before_end_lease.stop"):
        assert kind in rejected_events({"event_type": kind, "event_date": date})
    for wrong in ("", "Mine", "two words", "x" * 65, "9lives", "\u2603", 5, None):
        assert "event_type" in rejected_events({"event_type": wrong, "event_date": date})
    incomplete_events: list[dict[str, Any]] = [
        {"event_type": "mine"},
        {"event_type": "mine", "event_date": None},
        {"event_type": "mine", "time": ""},
        {"event_date": "2030-01-15 13:30"},
    ]
    for incomplete in incomplete_events:
        assert rejected_events(incomplete).startswith("Missing parameter events.0")
    for value in ("now", "2030-01-15T13:30", "soon", 5):
        message = rejected_events({"event_type": "mine", "event_date": value})
        assert "is an invalid date" in message
    many = [{"event_type": f"mine.{number}", "event_date": date} for number in range(101)]
    assert "events" in rejected_events(*many)
    lease = story.reserve(60, 240, events=many[:-1])
    kinds = [event["event_type"] for event in lease["events"]]
    assert sum(kind.startswith("mine.") for kind in kinds) == 100
    assert len(story.ok("GET", "/v1/leases")["leases"]) == 1


def test_rejects_malformed_changes_and_changes_nothing(story: Story) -> None:
    lease, other = story.reserve(60, 240), story.reserve(60, 240)
    for name in ("", "x" * 81, 5, None):
        assert "name" in rejected_put(story, lease, name=name)
    order = "End date must be later than"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"start_date": "2030-01-15 11:59"}, "Start date must be later than current date"),
        ({"start_date": "2030-01-15 16:00"}, order),
        ({"end_date": "2030-01-15 13:00"}, order),
        ({"end_date": "2030-01-15 12:59"}, order),
        ({"end_date": "2030-01-15 11:00"}, order),
        ({"end_date": "now"}, order),
        ({"start_date": "now", "end_date": "now"}, order),
        ({"start_date": "soon"}, "soon is an invalid date. Required format: %Y-%m-%d %H:%M"),
        ({"end_date": 5}, "5 is an invalid date."),
        ({"before_end_date": "now"}, "now is an invalid date."),
        *(
            ({"before_end_date": story.date(minutes)}, "A before_end_lease event must be")
            for minutes in (0, 59, 60, 240, 241)
        ),
    ]
    for dates, message in cases:
        assert rejected_put(story, lease, **dates).startswith(message)
    foreign = other["reservations"][0]["id"]
    malformed: list[Any] = [None, {}, "x", [1], [None]]
    for reservations, message in [
        *((value, "reservations") for value in malformed),
        ([{"min": 1}], "Missing parameter"),
        ([{"id": None, "min": 1}], "id"),
        ([{"id": "nope"}], "nope"),
        ([{"id": foreign}], foreign),
    ]:
        assert message in rejected_put(story, lease, reservations=reservations)


def test_delete_answers_204_without_a_body(story: Story) -> None:
    path = f"/v1/leases/{story.reserve()['id']}"
    response = story.call("DELETE", path)
    assert (response.status_code, response.get_data()) == (204, b"")
    assert "Content-Type" not in response.headers
    for unknown in (path, "/v1/leases/nope"):
        id_ = unknown.rpartition("/")[2]
        for method, body in (("GET", None), ("PUT", {"name": "new"}), ("DELETE", None)):
            message = story.refused(404, method, unknown, body)
            assert message == f"Object with {{'lease_id': '{id_}'}} not found"


def test_a_lease_may_last_until_the_end_of_the_calendar(make_story: MakeStory) -> None:
    story = make_story(DEFAULT__cleaning_time=30)
    story.register(1)
    lease = story.reserve(0, end_date="9999-12-31 23:59")
    assert lease["end_date"] == "9999-12-31T23:59:00.000000"
    assert times_of_day(lease, "before_end_lease") == ["22:59"]
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    other = story.lease_body(start_date="9999-12-31 23:58", end_date="9999-12-31 23:59")
    story.refused(409, "POST", "/v1/leases", other)
    story.clock.advance(60)
    put(story, lease, before_end_date="9999-12-31 23:58")
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    story.run()
    story.refused(404, "GET", f"/v1/leases/{lease['id']}")
