"""/v2/calendar: what resources are occupied by, for viewers of one project or of all."""

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.resources import resources
from climate.db.tables.leases import LeaseRow, ResourceRow
from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts, instances
from tests.support.service import Story, hosts

ALICE, BOB, ADMIN = "alice:mine:member", "bob:other:member", "boss:mine:admin"
END = "2030-01-16T00:00:00Z"
TAKEN, OWN, CLEANING, NOT_BOOKABLE, HELD, SHARED = 0, 1, 2, 3, 4, 6
HOUR = 3600


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=HOSTS_AND_INSTANCES, DEFAULT__cleaning_time=10)


def path(more: str = "", resource_type: str = "physical:host") -> str:
    return f"/v2/calendar?resource_type={resource_type}&end={END}{more}"


def calendar(story: Story, more: str = "", token: str = ALICE) -> Any:
    return story.ok("GET", path(more), token=token)


def intervals(story: Story, more: str = "", token: str = ALICE) -> list[int]:
    """Return the intervals of sim-1."""
    x: list[int] = calendar(story, more, token)["rows"][0]["x"]
    return x


def book(story: Story, start: float, end: float, token: str = ALICE, name: str = "lease") -> Any:
    """Reserve sim-1."""
    only = hosts(1, 1, resource_properties=["==", "$id", "1"])
    body = story.asking(start, end, reservations=[only], name=name)
    return story.ok("POST", "/v2/leases", body, token=token)


def names(shown: Any) -> list[str]:
    return [row["name"] for row in shown["rows"]]


def test_own_leases_are_named_and_others_merged_with_their_cleaning_time(story: Story) -> None:
    lease = book(story, 60, 120, name="mine")
    book(story, 130, 190, BOB)
    book(story, 200, 260, BOB)
    shown = calendar(story)
    assert shown["rows"][0]["x"] == [HOUR, HOUR, OWN, 0, 7200, 600, CLEANING, 7800, 8400, TAKEN]
    assert shown["leases"] == [
        {
            "id": lease["id"],
            "name": "mine",
            "status": "PENDING",
            "degraded": False,
            "start": "2030-01-15T13:00:00Z",
            "end": "2030-01-15T14:00:00Z",
            "project_id": "mine",
            "mine": True,
        }
    ]


def test_nothing_of_another_projects_lease_is_in_the_bytes(story: Story) -> None:
    """No name, id, project, user or edge between leases: two leases look like one."""
    secret = [book(story, 60, 120, BOB, "secret-1"), book(story, 130, 190, BOB, "secret-2")]
    for more in ("", "&group_by=vcpus", "&resolution=300", "&sort=id&q=sim"):
        text = story.call("GET", path(more), token=ALICE).get_data(as_text=True)
        for lease in secret:
            reservation = lease["reservations"][0]["id"]
            assert not any(word in text for word in (lease["id"], reservation, "secret", "other"))
    for lease in secret:
        story.ok("DELETE", f"/v2/leases/{lease['id']}", token=BOB)
    book(story, 60, 190, BOB, "single")
    single = story.call("GET", path(), token=ALICE).get_data(as_text=True)
    assert json.loads(single)["rows"][0]["x"] == [HOUR, 8400, TAKEN]
    assert "secret" not in single


def test_two_leases_and_one_give_the_same_answer(
    make_story: MakeStory, hosts_template: Path, tmp_path: Path
) -> None:
    answers = []
    for leases in ([(60, 120), (130, 190)], [(60, 190)]):
        copy_hosts(hosts_template, tmp_path)
        story = make_story(DEFAULT__cleaning_time=10)
        for start, end in leases:
            book(story, start, end, BOB)
        answers += [
            (response.get_data(), response.headers["ETag"])
            for response in (story.call("GET", path("&resolution=300"), token=ALICE),)
        ]
        answers.append((calendar(story)["rows"], calendar(story)["leases"]))
        story.close()
    assert answers[:2] == answers[2:]


def test_operators_may_see_all_leases(story: Story) -> None:
    mine, other = book(story, 60, 120, ALICE, "first"), book(story, 130, 190, BOB, "second")
    shown = calendar(story, "&whose=all", ADMIN)
    assert shown["rows"][0]["x"] == [
        *(HOUR, HOUR, OWN, 0, 7200, 600, CLEANING),
        *(7800, HOUR, OWN, 1, 11400, 600, CLEANING),
    ]
    listed = [(lease["id"], lease["project_id"], lease["mine"]) for lease in shown["leases"]]
    assert listed == [(mine["id"], "mine", True), (other["id"], "other", False)]
    assert story.problem(403, "GET", path("&whose=all"), token=ALICE)["code"] == "forbidden"


def test_a_deleted_lease_leaves_its_cleaning(story: Story) -> None:
    lease = book(story, 10, 60, name="gone")
    story.at(10)
    story.at(20)
    story.ok("DELETE", f"/v2/leases/{lease['id']}", token=ALICE)
    story.run()
    window = "&start=2030-01-15T12:00:00Z"
    assert intervals(story, window) == [600, 1800, TAKEN]
    assert intervals(story, window + "&whose=all", ADMIN) == [600, 1800, CLEANING]
    assert calendar(story, window)["leases"] == []


def test_a_held_lease_has_no_name_for_its_own_project(story: Story) -> None:
    lease = book(story, 60, 120, name="undecided")
    book(story, 190, 250, BOB)
    _store(story, sa.update(LeaseRow).where(LeaseRow.id == lease["id"]).values(status="CREATING"))
    for more, token in (("", ALICE), ("&whose=all", ADMIN)):
        shown = calendar(story, more, token)
        assert shown["rows"][0]["x"][:3] == [HOUR, 4200, HELD]
        assert lease["id"] not in json.dumps(shown)
    assert intervals(story, "", BOB)[:3] == [HOUR, 4200, HELD]


def test_a_held_lease_that_touches_others_is_not_told_from_them(story: Story) -> None:
    lease = book(story, 60, 120)
    book(story, 130, 190, "eve:third:member")
    _store(story, sa.update(LeaseRow).where(LeaseRow.id == lease["id"]).values(status="CREATING"))
    assert intervals(story, "", BOB) == [HOUR, 8400, TAKEN]


def _store(story: Story, statement: sa.Update) -> None:
    with story.runtime.database.engine.begin() as connection:
        connection.execute(statement)


def test_a_failing_host_cannot_be_booked_from_its_failure_on(story: Story) -> None:
    book(story, 60, 120)
    changed = {"reservable": False, "updated_at": story.clock.now()}
    _store(story, sa.update(ResourceRow).where(ResourceRow.id == 1).values(changed))
    row = calendar(story, "&start=2030-01-15T11:00:00Z")["rows"][0]
    assert row["state"] == "failing"
    assert row["x"] == [
        *(HOUR, HOUR, NOT_BOOKABLE, 2 * HOUR, HOUR, OWN, 0),
        *(3 * HOUR, 600, CLEANING, 3 * HOUR + 600, 10 * HOUR - 600, NOT_BOOKABLE),
    ]
    row = calendar(story, "&start=2030-01-15T11:00:00Z&resolution=3600")["rows"][0]
    assert row["b"] == "0999999999999"


def test_shared_hosts_show_tenths_and_own_shares(story: Story) -> None:
    only = {"resource_properties": '["==", "$id", "1"]'}  # it has 16 VCPU
    for amount, token in ((1, ALICE), (2, BOB)):
        body = story.lease_body(60, 120, reservations=[instances(amount, **only)])
        story.ok("POST", "/v1/leases", body, token=token)
    for resource_type in ("physical:host", "virtual:instance"):
        shown = story.ok("GET", path(resource_type=resource_type), token=ALICE)
        assert shown["rows"][0]["x"] == [
            *(HOUR, HOUR, OWN, 0, HOUR, 4200, SHARED, 8, 7200, 600, CLEANING)
        ]
    row = calendar(story, "&resolution=3600")["rows"][0]
    assert (row["b"], row["own"]) == ("072000000000", "011000000000")


def test_buckets_show_how_much_is_taken_and_where_own_leases_are(story: Story) -> None:
    book(story, 60, 120)
    book(story, 150, 180, BOB)
    row = calendar(story, "&resolution=3600")["rows"][0]
    assert (row["b"], row["own"]) == ("096200000000", "011000000000")
    assert "x" not in row


def test_rows_are_sorted_filtered_and_read_from_any_offset(story: Story) -> None:
    assert names(calendar(story)) == ["sim-1", "sim-2", "sim-3", "sim-4"]
    assert names(calendar(story, "&sort=id&offset=2&limit=1")) == ["sim-3"]
    assert names(calendar(story, "&q=IM-2")) == ["sim-2"]
    assert names(calendar(story, "&offset=9")) == []
    large = calendar(story, '&properties=[">", "$vcpus", "16"]')
    assert (names(large), large["total"]) == (["sim-4"], 1)
    assert calendar(story, "&offset=3")["total"] == 4


def test_rows_that_leases_can_book_are_counted(story: Story) -> None:
    story.runtime.database.write(
        lambda session: resources.set_reservable(session, [2], None, reservable=False)
    )
    for query in ("", "&group_by=id"):
        shown = calendar(story, query)
        assert (shown["total"], shown["reservable"]) == (4, 3)
    none = calendar(story, "&q=nothing")
    assert (none["total"], none["reservable"]) == (0, 0)


def test_groups_follow_each_other_and_count_what_is_free_now(story: Story) -> None:
    story.ok("PUT", "/v1/os-hosts/1", {"rack": "r2"})
    story.ok("PUT", "/v1/os-hosts/2", {"rack": "r2"})
    story.ok("PUT", "/v1/os-hosts/3", {"rack": "r1"})
    book(story, 0, 60)
    shown = calendar(story, "&group_by=rack")
    assert shown["groups"] == [
        {"name": "r1", "first": 0, "rows": 1, "free_now": 1},
        {"name": "r2", "first": 1, "rows": 2, "free_now": 1},
        {"name": None, "first": 3, "rows": 1, "free_now": 1},
    ]
    assert names(shown) == ["sim-3", "sim-1", "sim-2", "sim-4"]
    assert [row["group"] for row in shown["rows"]] == ["r1", "r2", "r2", None]
    assert "groups" not in calendar(story)


def test_private_properties_do_not_exist_for_others(story: Story) -> None:
    story.ok("PUT", "/v1/os-hosts/1", {"owner": "acme"})
    story.ok("PATCH", "/v1/os-hosts/properties/owner", {"private": True})
    for more, parameter in (
        ("&group_by=owner", "group_by"),
        ('&properties=["==", "$owner", "acme"]', "properties"),
    ):
        found = story.problem(400, "GET", path(more), token=ALICE)
        unknown = story.problem(400, "GET", path(more.replace("owner", "nobody")), token=ALICE)
        assert found["code"] == "invalid_query"
        assert found["detail"].replace("owner", "nobody") == unknown["detail"]
        assert found["errors"][0]["parameter"] == parameter
        assert "acme" in json.dumps(story.ok("GET", path(more), token=ADMIN)) or "&prop" in more


def test_an_answer_that_the_client_has_is_not_sent_again(story: Story) -> None:
    window = "&start=2030-01-15T12:00:00Z"
    response = story.call("GET", path(window), token=ALICE)
    assert response.headers["Cache-Control"] == "no-store", "browsers keep no names of leases"
    tag = {"If-None-Match": response.headers["ETag"]}
    story.clock.advance(30)
    again = story.call("GET", path(window), token=ALICE, headers=tag)
    assert (again.status_code, again.get_data()) == (304, b"")
    book(story, 60, 120, BOB)
    assert story.call("GET", path(window), token=ALICE, headers=tag).status_code == 200


@pytest.mark.parametrize(
    ("more", "parameter"),
    [
        ("&limit=201", "limit"),
        ("&limit=1001&resolution=300", "limit"),
        ("&resolution=299", "resolution"),
        ("&resolution=86401", "resolution"),
        ("&sort=rack", "sort"),
        ("&whose=theirs", "whose"),
        ("&offset=-1", "offset"),
        ("&group_by=nothing", "group_by"),
        ("&properties=[", "properties"),
    ],
)
def test_bad_parameters_are_named(story: Story, more: str, parameter: str) -> None:
    problem = story.problem(400, "GET", path(more), token=ALICE)
    assert problem["errors"][0]["parameter"] == parameter


def test_windows_and_cells_are_limited(story: Story) -> None:
    base = "/v2/calendar?resource_type=physical:host"
    for query, code in [
        (f"{base}&end=2032-01-15T12:00:00Z", "invalid_date"),
        (f"{base}&end=2030-01-15T11:00:00Z", "invalid_date"),
        (f"{base}&end=2030-12-15T11:00:00Z&resolution=300", "invalid_input"),
        (path(resource_type="no:such"), "unsupported_resource_type"),
    ]:
        assert story.problem(400, "GET", query, token=ALICE)["code"] == code


def test_a_page_with_too_many_bookings_is_refused(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climate.manager.resources.calendar.MAX_BOOKINGS", 1)
    book(story, 60, 120)
    assert calendar(story)["rows"]
    book(story, 130, 190)
    assert "limit" in story.problem(400, "GET", path(), token=ALICE)["detail"]
    assert calendar(story, "&resolution=300")["rows"]


def test_a_property_with_too_many_values_does_not_group(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climate.manager.resources.calendar.MAX_GROUPS", 1)
    assert "group" in story.problem(400, "GET", path("&group_by=vcpus"), token=ALICE)["detail"]
