"""/v2/leases: answers, changes, ETags, deletion and access."""

import re
from typing import Any

from werkzeug.test import TestResponse

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES
from tests.support.service import Story, hosts

LEASES = "/v2/leases"
ALICE, BOB, EVE = "alice:lab", "bob:lab:reader", "eve:other"
ADMIN = "boss:ops:admin"


def create(story: Story, first: float = 60, last: float = 120, **fields: Any) -> TestResponse:
    """Create a lease of Alice's, ``first`` to ``last`` minutes from now."""
    response = story.call("POST", LEASES, story.asking(first, last, **fields), token=ALICE)
    assert response.status_code == 201, response.get_data(as_text=True)
    return response


def test_a_created_lease_is_answered_and_shown_alike(story: Story) -> None:
    created = create(story)
    lease = created.get_json()
    (reservation,) = lease["reservations"]
    assert {**lease, "id": "", "events": [], "reservations": []} == {
        "id": "",
        "name": "lease",
        "user_id": "alice",
        "project_id": "lab",
        "start": "2030-01-15T13:00:00Z",
        "end": "2030-01-15T14:00:00Z",
        "booked_from": "2030-01-15T13:00:00Z",
        "start_when": "scheduled",
        "ready_at": None,
        "start_delayed_at": None,
        "started_at": None,
        "status": "PENDING",
        "degraded": False,
        "trust_lost": None,
        "reservations": [],
        "events": [],
        "waiting": None,
        "created_at": "2030-01-15T12:00:00Z",
        "updated_at": None,
    }
    assert {**reservation, "id": ""} == {
        "id": "",
        "resource_type": "physical:host",
        "status": "pending",
        "run_state": None,
        "params": {
            "min": 1,
            "max": 1,
            "hypervisor_properties": "",
            "resource_properties": "",
            "before_end": "default",
            "match": "targeted",
        },
        "details": {},
        "missing_resources": False,
        "resources_changed": False,
        "created_at": "2030-01-15T12:00:00Z",
        "updated_at": None,
    }
    start = next(event for event in lease["events"] if event["type"] == "start_lease")
    assert start == {
        "id": start["id"],
        "type": "start_lease",
        "at": "2030-01-15T13:00:00Z",
        "status": "UNDONE",
    }
    assert created.headers["Location"] == f"{LEASES}/{lease['id']}"
    shown = story.call("GET", created.headers["Location"], token=ALICE)
    assert (shown.status_code, shown.get_data()) == (200, created.get_data())
    assert shown.headers["ETag"] == created.headers["ETag"]
    v1 = story.lease(lease["id"])
    assert (v1["id"], v1["name"], v1["status"]) == (lease["id"], "lease", "PENDING")
    assert v1["start_date"] == "2030-01-15T13:00:00.000000"
    assert [event["id"] for event in v1["events"]] == [event["id"] for event in lease["events"]]
    assert story.ok("GET", f"{LEASES}/{story.reserve()['id']}")["start"] == "2030-01-15T13:00:00Z"


def test_times_are_seconds_in_utc_and_now_is_the_current_second(story: Story) -> None:
    zoned: dict[str, Any] = {
        "start": "2030-01-15T15:00:07+02:00",
        "end": "2030-01-15T07:30:59-06:30",
    }
    lease = create(story, **zoned).get_json()
    assert (lease["start"], lease["end"]) == ("2030-01-15T13:00:07Z", "2030-01-15T14:00:59Z")
    story.clock.advance(31.5)
    assert create(story, 0, 10).get_json()["start"] == "2030-01-15T12:00:31Z"
    own_events: dict[str, Any] = {
        "before_end": story.moment(100),
        "events": [{"type": "backup", "at": story.moment(90)}],
    }
    lease = create(story, start="now", **own_events).get_json()
    assert lease["start"] == "2030-01-15T12:00:31Z"
    due = {event["type"]: event["at"] for event in lease["events"]}
    assert (due["before_end_lease"], due["backup"]) == (story.moment(100), story.moment(90))
    story.run()
    assert story.ok("GET", f"{LEASES}/{lease['id']}")["status"] == "ACTIVE"


def test_the_calendar_ends_in_9999(story: Story) -> None:
    new_year = {"start": "9999-12-31T00:00:00Z", "duration": 366 * 86400}
    lease = story.ok("POST", LEASES, {"name": "late", "reservations": [hosts()], **new_year})
    assert lease["end"] == "9999-12-31T23:59:59Z"
    span = {"start_after": "9999-12-30T00:00:00Z", "end_by": "9999-12-31T23:59:59Z"}
    for count, windows in ((1, 1), (100, 0)):
        search = {**span, "duration": 3600, "reservations": [hosts(count, count)]}
        assert len(story.ok("POST", "/v2/availability/search", search)["windows"]) == windows


def test_a_lease_lasts_at_most_366_days(story: Story) -> None:
    too_long = {**story.asking(), "end": "2031-02-01T00:00:00Z"}
    found = story.problem(400, "POST", LEASES, too_long)
    assert (found["code"], found["errors"][0]["pointer"]) == ("invalid_date", "#/end")
    assert found["detail"] == "A lease lasts at most 366 days: end it by 2031-01-16T13:00:00Z"
    seconds = {**story.asking(), "duration": 366 * 86400 + 1}
    del seconds["end"]
    found = story.problem(400, "POST", LEASES, seconds)
    assert "A lease lasts from 1 second to 31622400 seconds (366 days)." in found["detail"]
    body = {**story.lease_body(), "end_date": "2033-01-15 12:00"}
    path = f"{LEASES}/{story.ok('POST', '/v1/leases', body)['lease']['id']}"
    for change, key in [
        ({"end": "2033-01-15T12:01:00Z"}, "end"),
        ({"start": story.moment(59)}, "start"),
    ]:
        problem = story.problem(400, "PATCH", path, change)
        assert problem["errors"][0]["pointer"] == f"#/{key}"
    # v1 has no such limit, and a shorter lease is not rejected.
    assert story.ok("PATCH", path, {"end": "2032-01-15T12:00:00Z", "start": story.moment(61)})


def test_every_type_has_its_own_parameters_and_null_may_be_left_out(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=HOSTS_AND_INSTANCES)
    story.register(4)
    size = {"amount": 2, "vcpus": 2, "memory_mb": 2048, "disk_gb": 0}
    requested = {"resource_type": "virtual:instance", "params": size}
    expression = ["==", "$vcpus", 64]
    created = create(story, reservations=[requested, hosts(resource_properties=expression)])
    first, second = created.get_json()["reservations"]
    defaults = {"on_start": "nothing", "on_end": "delete", "server": None, "match": "targeted"}
    assert first["params"] == {**size, **defaults, "affinity": None, "resource_properties": ""}
    assert second["params"]["resource_properties"] == '["==", "$vcpus", 64]'
    assert second["params"]["hypervisor_properties"] == ""
    path = created.headers["Location"]
    change = {"reservations": [{"id": first["id"], "params": {"amount": 3}}]}
    changed = story.ok("PATCH", path, change)["reservations"]
    assert changed[0]["params"] == {**first["params"], "amount": 3}
    assert changed[1] == second
    for params, place in ({"min": 1}, "min"), ({"amount": 0}, "amount"):
        change = {"reservations": [{"id": first["id"], "params": params}]}
        problem = story.problem(400, "PATCH", path, change)
        assert problem["errors"][0]["pointer"] == f"#/reservations/0/params/{place}"
    listed = story.ok("GET", f"{LEASES}?resource_type=virtual:instance", token=ALICE)["leases"]
    assert [lease["id"] for lease in listed] == [created.get_json()["id"]]


def test_a_change_names_the_changed_values_and_keeps_the_others(story: Story) -> None:
    response = create(story, reservations=[hosts(), hosts()])
    path, lease = response.headers["Location"], response.get_json()
    unchanged = story.call("PATCH", path, {}, token=ALICE)
    assert (unchanged.status_code, unchanged.get_data()) == (200, response.get_data())
    first, second = lease["reservations"]
    change = {
        "name": "renamed",
        "end": story.moment(180),
        "before_end": story.moment(170),
        "reservations": [{"id": second["id"], "params": {"max": 2}}],
    }
    response = story.call("PATCH", path, change, token=ALICE)
    changed = response.get_json()
    assert response.status_code == 200, changed
    keys = ("name", "start", "end")
    assert [changed[key] for key in keys] == ["renamed", lease["start"], story.moment(180)]
    assert changed["reservations"][0]["params"] == first["params"]
    assert changed["reservations"][1]["params"] == {**second["params"], "max": 2}
    due = {event["type"]: event["at"] for event in changed["events"]}
    assert due["before_end_lease"] == story.moment(170)
    shown = story.call("GET", path, token=ALICE)
    assert shown.get_data() == response.get_data()
    assert shown.headers["ETag"] == response.headers["ETag"]
    assert story.ok("PATCH", path, {"duration": 5400})["end"] == story.moment(150)
    assert response.headers["ETag"] != create(story, 300, 360).headers["ETag"]


def test_an_event_at_a_wrong_date_is_rejected_with_its_place(story: Story) -> None:
    inside = "A before_end_lease event must be after the start and before the end of the lease"
    one = "A lease has one before_end_lease event, not one at several dates"
    late, fine = story.moment(121), {"type": "check", "at": story.moment(90)}
    first, second = ({"type": "before_end_lease", "at": story.moment(at)} for at in (100, 110))
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"before_end": late}, "#/before_end", inside),
        ({"events": [fine, {"type": "before_end_lease", "at": late}]}, "#/events/1/at", inside),
        (
            {"events": [fine, {"type": "check", "at": late}]},
            "#/events/1/at",
            "Event check must not be after the end of the lease",
        ),
        ({"events": [first, fine, second]}, "#/events/2/at", one),
        ({"events": [first], "before_end": second["at"]}, "#/before_end", one),
    ]
    for fields, place, detail in cases:
        for query in ("", "?dry_run=true"):
            problem = story.problem(400, "POST", LEASES + query, story.asking(60, 120, **fields))
            assert problem["code"] == "invalid_date"
            assert problem["errors"] == [{"pointer": place, "detail": detail}]
            assert problem["detail"] == detail
    path = create(story).headers["Location"]
    problem = story.problem(400, "PATCH", path, {"before_end": late})
    assert problem["errors"] == [{"pointer": "#/before_end", "detail": inside}]


def test_a_rejected_change_names_the_place_and_changes_nothing(story: Story) -> None:
    created = create(story)
    path, id_ = created.headers["Location"], created.get_json()["reservations"][0]["id"]
    unknown_type = {"add_reservations": [hosts(), {"resource_type": "no:such"}]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"reservations": [{"id": "x", "params": {}}]}, "#/reservations/0/id"),
        ({"reservations": [{"id": id_, "params": {"mox": 1}}]}, "#/reservations/0/params/mox"),
        ({"reservations": [{"id": id_, "params": {"min": "x"}}]}, "#/reservations/0/params/min"),
        ({"status": "ACTIVE"}, "#/status"),
        ({"end": story.moment(180), "duration": 60}, "#/end"),
        (unknown_type, "#/add_reservations/1/resource_type"),
    ]
    for change, place in cases:
        problem = story.problem(400, "PATCH", path, {"name": "new", **change})
        assert [error["pointer"] for error in problem["errors"]] == [place], change
    change = {"reservations": [{"id": id_, "params": {"min": 5, "max": 5}}]}
    problem = story.problem(409, "PATCH", path, change)
    assert problem["code"] == "not_enough_resources"
    assert "at least 5 requested" in problem["detail"]
    assert story.call("GET", path).get_data() == created.get_data()


def test_a_change_applies_only_to_the_version_of_its_etag(story_everywhere: Story) -> None:
    story = story_everywhere
    created = create(story)
    path, seen = created.headers["Location"], {"If-Match": created.headers["ETag"]}
    changed = story.call("PATCH", path, {"name": "first"}, headers=seen)
    assert changed.status_code == 200
    problem = story.problem(412, "PATCH", path, {"name": "second"}, headers=seen)
    assert problem["code"] == "precondition_failed"
    assert problem["etag"] == changed.headers["ETag"]
    assert story.ok("GET", path)["name"] == "first"
    assert story.problem(412, "DELETE", path, headers=seen)["etag"] == problem["etag"]
    weak = f"W/{problem['etag']}"
    for malformed in ("", "x", '""', 'W/"*"', '"', "*, *", weak):
        headers = {"If-Match": malformed}
        story.problem(412, "PATCH", path, {"name": "a"}, headers=headers)
    story.ok("PATCH", path, {"name": "without a condition"})
    response = story.call("PATCH", path, {"name": "any"}, headers={"If-Match": "*"})
    assert response.status_code == 200
    seen = {"If-Match": f'"other", {response.headers["ETag"]}'}
    assert story.call("DELETE", path, headers=seen).status_code == 204


def test_etags_of_reads_and_of_changes_by_the_manager(story: Story) -> None:
    created = create(story, 0, 60)
    path, tag = created.headers["Location"], created.headers["ETag"]
    response = story.call("GET", path, headers={"If-None-Match": tag})
    assert (response.status_code, response.get_data()) == (304, b"")
    assert story.call("GET", path, headers={"If-Match": tag}).status_code == 200
    story.run()
    assert story.call("GET", path, headers={"If-None-Match": tag}).status_code == 200
    assert story.problem(412, "GET", path, headers={"If-Match": tag})["etag"] != tag
    story.problem(412, "PATCH", path, {"name": "a"}, headers={"If-Match": tag})


def test_delete_answers_204_when_gone_and_202_when_a_manager_ends_it(story: Story) -> None:
    path = create(story).headers["Location"]
    response = story.call("DELETE", path, token=ALICE)
    assert (response.status_code, response.get_data()) == (204, b"")
    assert story.problem(404, "GET", path)["code"] == "not_found"
    story.problem(404, "DELETE", path)
    path = create(story, 0, 60).headers["Location"]
    story.run()
    for _ in range(2):
        response = story.call("DELETE", path, token=ALICE)
        assert (response.status_code, response.get_data()) == (202, b"")
    assert story.ok("GET", path)["status"] == "DELETING"
    story.run()
    story.problem(404, "GET", path)


def test_access_by_project_and_role(story: Story) -> None:
    path = create(story).headers["Location"]
    for method, body in (("GET", None), ("PATCH", {"name": 7}), ("DELETE", None)):
        foreign = story.problem(404, method, path, body, token=EVE)
        unknown = story.problem(404, method, f"{LEASES}/nope", body, token=EVE)
        detail = re.sub("nope", path.rpartition("/")[2], unknown["detail"])
        assert foreign == {**unknown, "detail": detail}
    assert story.call("GET", path, token=BOB).status_code == 200
    for method, target, sent in (
        ("POST", LEASES, story.asking()),
        ("PATCH", path, {"name": "new"}),
        ("DELETE", path, None),
    ):
        assert story.problem(403, method, target, sent, token=BOB)["code"] == "forbidden"
    lease = story.ok("PATCH", path, {"name": "new"}, token=ADMIN)
    assert (lease["name"], lease["project_id"]) == ("new", "lab")
    assert story.call("DELETE", path, token=ADMIN).status_code == 204
