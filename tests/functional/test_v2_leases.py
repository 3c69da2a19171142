"""/v2/leases: made, shown, changed and removed; what was not looked at is not changed."""

import re
from typing import Any

import pytest
from werkzeug.test import TestResponse

from tests.conftest import MakeStory
from tests.support.service import Story, hosts

LEASES = "/v2/leases"
ALICE, BOB, EVE = "alice:lab", "bob:lab:reader", "eve:other"
ADMIN = "boss:ops:admin"


def make(story: Story, first: float = 60, last: float = 120, **fields: Any) -> TestResponse:
    """Make a lease of Alice's, ``first`` to ``last`` minutes from now."""
    response = story.call("POST", LEASES, story.asking(first, last, **fields), token=ALICE)
    assert response.status_code == 201, response.get_data(as_text=True)
    return response


def test_a_lease_is_answered_as_it_is_shown_from_then_on(story_everywhere: Story) -> None:
    made = make(story_everywhere, reservations=[hosts(1, 2), hosts()])
    shown = story_everywhere.call("GET", made.headers["Location"], token=ALICE)
    assert shown.status_code == 200
    assert shown.get_data() == made.get_data()
    assert shown.headers["ETag"] == made.headers["ETag"]
    assert made.headers["Location"] == f"{LEASES}/{made.get_json()['id']}"


def test_a_lease_says_all_about_itself(story: Story) -> None:
    lease = make(story).get_json()
    reservation = lease["reservations"][0]
    assert {**lease, "id": "", "events": [], "reservations": []} == {
        "id": "",
        "name": "lease",
        "user_id": "alice",
        "project_id": "lab",
        "start": "2030-01-15T13:00:00Z",
        "end": "2030-01-15T14:00:00Z",
        "start_when": "scheduled",
        "ready_at": None,
        "start_delayed_at": None,
        "started_at": None,
        "status": "PENDING",
        "degraded": False,
        "trust_lost": None,
        "reservations": [],
        "events": [],
        "created_at": "2030-01-15T12:00:00Z",
        "updated_at": None,
    }
    assert {**reservation, "id": ""} == {
        "id": "",
        "resource_type": "physical:host",
        "status": "pending",
        "params": {
            "min": 1,
            "max": 1,
            "hypervisor_properties": "",
            "resource_properties": "",
            "before_end": "default",
        },
        "details": {},
        "missing_resources": False,
        "resources_changed": False,
        "created_at": "2030-01-15T12:00:00Z",
        "updated_at": None,
    }
    start = next(event for event in lease["events"] if event["type"] == "start_lease")
    assert start == {**start, "at": "2030-01-15T13:00:00Z", "status": "UNDONE"}


def test_both_versions_show_the_same_lease(story: Story) -> None:
    lease = make(story).get_json()
    old = story.lease(lease["id"])
    assert (old["id"], old["name"], old["status"]) == (lease["id"], "lease", "PENDING")
    assert old["start_date"] == "2030-01-15T13:00:00.000000"
    assert [event["id"] for event in old["events"]] == [event["id"] for event in lease["events"]]
    made = story.reserve()
    assert story.ok("GET", f"{LEASES}/{made['id']}")["start"] == "2030-01-15T13:00:00Z"


def test_times_are_kept_to_the_second_in_whatever_zone_they_came(story: Story) -> None:
    asked = {"start": "2030-01-15T15:00:07+02:00", "end": "2030-01-15T07:30:59-06:30"}
    lease = make(story, **asked).get_json()
    assert (lease["start"], lease["end"]) == ("2030-01-15T13:00:07Z", "2030-01-15T14:00:59Z")


def test_now_is_the_present_second(story: Story) -> None:
    story.clock.advance(31.5)
    lease = make(story, 0, 10).get_json()
    assert lease["start"] == "2030-01-15T12:00:31Z"
    lease = make(story, start="now").get_json()
    assert lease["start"] == "2030-01-15T12:00:31Z"
    story.run()
    assert story.ok("GET", f"{LEASES}/{lease['id']}")["status"] == "ACTIVE"


def test_a_lease_can_bring_its_own_notices(story: Story) -> None:
    fields = {
        "before_end": story.moment(100),
        "events": [{"type": "backup", "at": story.moment(90)}],
    }
    lease = make(story, **fields).get_json()
    due = {event["type"]: event["at"] for event in lease["events"]}
    assert due["before_end_lease"] == story.moment(100)
    assert due["backup"] == story.moment(90)


def test_what_may_be_null_may_be_left_out(story: Story) -> None:
    expression = ["==", "$vcpus", 64]
    lease = make(story, reservations=[hosts(resource_properties=expression)]).get_json()
    params = lease["reservations"][0]["params"]
    assert params["resource_properties"] == '["==", "$vcpus", 64]'
    assert params["hypervisor_properties"] == ""


def test_a_refusal_for_lack_of_hosts_is_a_problem(story: Story) -> None:
    found = story.problem(409, "POST", LEASES, story.asking(reservations=[hosts(5, 5)]))
    assert found["code"] == "not_enough_resources"
    assert "at least 5 asked for" in found["detail"]


def test_every_type_is_asked_in_its_own_words(make_story: MakeStory) -> None:
    story = make_story(manager__plugins=["physical.host.plugin", "virtual.instance.plugin"])
    story.register(2)
    room = {"amount": 2, "vcpus": 2, "memory_mb": 2048, "disk_gb": 0}
    asked = {"resource_type": "virtual:instance", "params": room}
    made = make(story, reservations=[asked, hosts()])
    first, second = made.get_json()["reservations"]
    life = {"on_start": "nothing", "on_end": "delete", "server": None}
    assert first["params"] == {**room, **life, "affinity": None, "resource_properties": ""}
    assert second["params"]["min"] == 1
    change = {"reservations": [{"id": first["id"], "params": {"amount": 3}}]}
    after = story.ok("PATCH", made.headers["Location"], change)["reservations"]
    assert after[0]["params"] == {**first["params"], "amount": 3}
    assert after[1] == second
    for params, place in ({"min": 1}, "min"), ({"amount": 0}, "amount"):
        change = {"reservations": [{"id": first["id"], "params": params}]}
        found = story.problem(400, "PATCH", made.headers["Location"], change)
        assert found["errors"][0]["pointer"] == f"#/reservations/0/params/{place}"
    listed = story.ok("GET", f"{LEASES}?resource_type=virtual:instance", token=ALICE)["leases"]
    assert [lease["id"] for lease in listed] == [made.get_json()["id"]]


class TestChange:
    def test_what_is_named_changes_and_the_rest_stays(self, story: Story) -> None:
        made = make(story, reservations=[hosts(), hosts()]).get_json()
        first, second = made["reservations"]
        change = {
            "name": "renamed",
            "end": story.moment(180),
            "before_end": story.moment(170),
            "reservations": [{"id": second["id"], "params": {"max": 2}}],
        }
        response = story.call("PATCH", f"{LEASES}/{made['id']}", change, token=ALICE)
        after = response.get_json()
        assert response.status_code == 200, after
        assert (after["name"], after["start"], after["end"]) == (
            "renamed",
            made["start"],
            story.moment(180),
        )
        assert after["reservations"][0]["params"] == first["params"]
        assert after["reservations"][1]["params"] == {**second["params"], "max": 2}
        due = {event["type"]: event["at"] for event in after["events"]}
        assert due["before_end_lease"] == story.moment(170)
        assert response.headers["ETag"] != make(story, 300, 360).headers["ETag"]
        shown = story.call("GET", f"{LEASES}/{made['id']}", token=ALICE)
        assert shown.get_data() == response.get_data()
        assert shown.headers["ETag"] == response.headers["ETag"]

    def test_an_empty_change_changes_nothing(self, story: Story) -> None:
        made = make(story)
        response = story.call("PATCH", made.headers["Location"], {}, token=ALICE)
        assert response.status_code == 200
        assert response.get_data() == made.get_data()

    def test_now_as_the_end_ends_a_running_lease(self, story: Story) -> None:
        path = make(story, 0, 60).headers["Location"]
        story.run()
        story.at(10)
        story.ok("PATCH", path, {"end": "now"})
        story.run()
        assert story.ok("GET", path)["status"] == "TERMINATED"

    def test_a_refused_change_says_where_and_changes_nothing(self, story: Story) -> None:
        made = make(story)
        path, reservation = made.headers["Location"], made.get_json()["reservations"][0]["id"]
        cases = [
            ({"reservations": [{"id": "x", "params": {}}]}, "#/reservations/0/id"),
            (
                {"reservations": [{"id": reservation, "params": {"mox": 1}}]},
                "#/reservations/0/params/mox",
            ),
            (
                {"reservations": [{"id": reservation, "params": {"min": "x"}}]},
                "#/reservations/0/params/min",
            ),
            ({"reservations": [{"params": {}}]}, "#/reservations/0/id"),
            ({"reservations": [{"id": reservation}]}, "#/reservations/0/params"),
            ({"name": None}, "#/name"),
            ({"status": "ACTIVE"}, "#/status"),
            ({"start": "yesterday"}, "#/start"),
        ]
        for change, pointer in cases:
            found = story.problem(400, "PATCH", path, {"name": "new", **change})
            assert [one["pointer"] for one in found["errors"]] == [pointer], change
        found = story.problem(
            409,
            "PATCH",
            path,
            {"reservations": [{"id": reservation, "params": {"min": 5, "max": 5}}]},
        )
        assert found["code"] == "not_enough_resources"
        assert story.call("GET", path).get_data() == made.get_data()


class TestETag:
    def test_a_change_takes_the_tag_of_what_was_seen(self, story_everywhere: Story) -> None:
        story = story_everywhere
        made = make(story)
        path, seen = made.headers["Location"], {"If-Match": made.headers["ETag"]}
        changed = story.call("PATCH", path, {"name": "first"}, headers=seen)
        assert changed.status_code == 200
        found = story.problem(412, "PATCH", path, {"name": "second"}, headers=seen)
        assert found["code"] == "precondition_failed"
        assert found["etag"] == changed.headers["ETag"]
        assert story.ok("GET", path)["name"] == "first"
        assert story.problem(412, "DELETE", path, headers=seen)["etag"] == found["etag"]
        seen = {"If-Match": f'"other", {changed.headers["ETag"]}'}
        assert story.call("DELETE", path, headers=seen).status_code == 204

    def test_without_one_or_with_any_a_change_is_made(self, story: Story) -> None:
        path = make(story).headers["Location"]
        story.ok("PATCH", path, {"name": "a"})
        assert (
            story.call("PATCH", path, {"name": "b"}, headers={"If-Match": "*"}).status_code == 200
        )

    @pytest.mark.parametrize("sent", ["", "x", '""', 'W/"*"', '"', "*, *"])
    def test_what_is_no_tag_of_ours_matches_nothing(self, story: Story, sent: str) -> None:
        path = make(story).headers["Location"]
        story.problem(412, "PATCH", path, {"name": "a"}, headers={"If-Match": sent})

    def test_a_weak_tag_is_not_good_enough_for_a_change(self, story: Story) -> None:
        made = make(story)
        weak = {"If-Match": f"W/{made.headers['ETag']}"}
        story.problem(412, "PATCH", made.headers["Location"], {"name": "a"}, headers=weak)

    def test_what_a_manager_did_is_a_change_too(self, story: Story) -> None:
        made = make(story, 0, 60)
        story.run()
        seen = {"If-Match": made.headers["ETag"]}
        story.problem(412, "PATCH", made.headers["Location"], {"name": "a"}, headers=seen)

    def test_who_has_seen_it_is_told_so(self, story: Story) -> None:
        made = make(story)
        path, seen = made.headers["Location"], {"If-None-Match": made.headers["ETag"]}
        response = story.call("GET", path, headers=seen)
        assert (response.status_code, response.get_data()) == (304, b"")
        story.ok("PATCH", path, {"name": "new"})
        assert story.call("GET", path, headers=seen).status_code == 200


class TestDelete:
    def test_a_lease_that_has_not_started_is_gone_at_once(self, story: Story) -> None:
        path = make(story).headers["Location"]
        response = story.call("DELETE", path, token=ALICE)
        assert (response.status_code, response.get_data()) == (204, b"")
        assert story.problem(404, "GET", path)["code"] == "not_found"
        story.problem(404, "DELETE", path)

    def test_a_running_one_is_ended_by_a_manager_first(self, story: Story) -> None:
        path = make(story, 0, 60).headers["Location"]
        story.run()
        for _ in range(2):
            response = story.call("DELETE", path, token=ALICE)
            assert (response.status_code, response.get_data()) == (202, b"")
        assert story.ok("GET", path)["status"] == "DELETING"
        story.run()
        story.problem(404, "GET", path)


class TestProjects:
    def test_leases_of_other_projects_do_not_exist(self, story: Story) -> None:
        path = make(story).headers["Location"]
        for method, body in (("GET", None), ("PATCH", {"name": 7}), ("DELETE", None)):
            found = story.problem(404, method, path, body, token=EVE)
            other = story.problem(404, method, f"{LEASES}/nope", body, token=EVE)
            same = re.sub(r"nope", path.rpartition("/")[2], other["detail"])
            assert found == {**other, "detail": same}

    def test_readers_look_and_change_nothing(self, story: Story) -> None:
        path = make(story).headers["Location"]
        assert story.call("GET", path, token=BOB).status_code == 200
        for method, where, body in (
            ("POST", LEASES, story.asking()),
            ("PATCH", path, {"name": "new"}),
            ("DELETE", path, None),
        ):
            assert story.problem(403, method, where, body, token=BOB)["code"] == "forbidden"

    def test_an_admin_may_do_all(self, story: Story) -> None:
        path = make(story).headers["Location"]
        lease = story.ok("PATCH", path, {"name": "new"}, token=ADMIN)
        assert (lease["name"], lease["project_id"]) == ("new", "lab")
        assert story.call("DELETE", path, token=ADMIN).status_code == 204

    def test_nobody_without_a_token_that_means_something(self, story: Story) -> None:
        for method, path in (("GET", LEASES), ("POST", LEASES), ("GET", "/v2/resources")):
            found = story.problem(401, method, path, token="nonsense")
            assert found["code"] == "unauthenticated"
