"""Leases wait for capacity, and start in the order of the wait list."""

from typing import Any

import pytest

from climate.manager.process.calendar_memory import memory as calendar_memory
from climate.manager.process.calendar_memory.memory import CalendarMemory
from tests.conftest import MakeStory
from tests.support.service import Story, hosts
from tests.support.waiting import rules, settle, wait_for, waiting


def shown(story: Story, lease_id: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease_id}"))


def start_of(story: Story, lease_id: str) -> str:
    return str(shown(story, lease_id)["start"])


def test_a_lease_starts_at_once_if_enough_hosts_are_free(story: Story) -> None:
    made = story.ok("POST", "/v2/leases", waiting(4, 60))
    assert (made["status"], made["start"]) == ("PENDING", story.moment(0))
    settle(story)
    lease = shown(story, made["id"])
    assert (lease["status"], lease["waiting"]) == ("ACTIVE", None)
    assert story.event_types(made["id"])[:3] == ["lease.waiting", "lease.promised", "lease.create"]


def test_the_first_leases_get_a_booking_and_the_others_wait(story: Story) -> None:
    rules(story, promises=1)
    wait_for(story, 4, 60)
    second, third = wait_for(story, 4, 60), wait_for(story, 4, 60)
    lease = shown(story, second)
    assert (lease["status"], lease["start"]) == ("PENDING", story.moment(60))
    assert lease["waiting"]["promised_start"] == story.moment(60)
    assert lease["waiting"]["position"] == 1
    lease = shown(story, third)
    assert lease["status"] == "WAITING"
    assert lease["waiting"] == {
        "position": 2,
        "priority": 0,
        "until": "2031-01-16T11:00:00Z",
        "promised_start": None,
        "expected_start": story.moment(120),
        "held_back": None,
    }


def test_an_early_end_moves_the_booking_forward_and_notifies(story: Story) -> None:
    first, second = wait_for(story, 4, 60), wait_for(story, 3, 60)
    story.at(10)
    story.ok("PATCH", f"/v2/leases/{first}", {"end": "now"})
    settle(story)
    lease = shown(story, second)
    assert (lease["status"], lease["start"]) == ("ACTIVE", story.moment(0))
    assert "lease.moved_forward" in story.event_types(second)


def test_a_short_lease_overtakes_only_if_it_delays_no_booking(story: Story) -> None:
    rules(story, promises=1)
    wait_for(story, 3, 60)
    wide = wait_for(story, 4, 60)
    long, short = wait_for(story, 1, 61), wait_for(story, 1, 60)
    assert start_of(story, wide) == story.moment(60)
    assert shown(story, long)["status"] == "WAITING"
    assert shown(story, short)["status"] == "ACTIVE"


def test_without_backfilling_leases_start_strictly_in_their_order(story: Story) -> None:
    rules(story, promises=0, backfills=False)
    wait_for(story, 3, 60)
    wide, short = wait_for(story, 4, 60), wait_for(story, 1, 10)
    assert shown(story, short)["status"] == "WAITING"
    story.at(60)
    settle(story)
    assert [shown(story, id_)["status"] for id_ in (wide, short)] == ["ACTIVE", "WAITING"]


def test_priority_decides_before_age(story: Story) -> None:
    rules(story, promises=0, backfills=False)
    first = wait_for(story, 4, 60)
    old = wait_for(story, 4, 60)
    story.at(1)
    urgent = wait_for(story, 4, 60, wait={"priority": 9})
    assert shown(story, urgent)["waiting"]["position"] == 1
    assert shown(story, old)["waiting"]["position"] == 2
    story.ok("PATCH", f"/v2/leases/{old}", {"wait": {"priority": 9}})
    assert shown(story, old)["waiting"]["position"] == 1
    story.ok("DELETE", f"/v2/leases/{first}")
    settle(story)
    assert shown(story, old)["status"] == "ACTIVE"


def test_a_lease_leaves_the_list_when_its_owner_does_not_want_to_wait_longer(story: Story) -> None:
    rules(story, promises=0)
    wait_for(story, 4, 60)
    short = wait_for(story, 4, 60, wait={"until": story.moment(30)})
    story.at(29)
    assert shown(story, short)["status"] == "WAITING"
    story.at(1)
    assert story.call("GET", f"/v2/leases/{short}").status_code == 404
    assert story.event_types(short) == ["lease.waiting", "lease.not_admitted", "lease.delete"]


def test_v1_does_not_show_a_waiting_lease(story: Story) -> None:
    rules(story, promises=0)
    wait_for(story, 4, 60)
    hidden = wait_for(story, 4, 60)
    for method in ("GET", "PUT", "DELETE"):
        story.refused(404, method, f"/v1/leases/{hidden}", {"name": "x"})
    assert hidden not in [lease["id"] for lease in story.ok("GET", "/v1/leases")["leases"]]


def test_a_waiting_lease_can_be_deleted_and_renamed_but_not_moved(story: Story) -> None:
    rules(story, promises=0)
    wait_for(story, 4, 60)
    lease_id = wait_for(story, 4, 60)
    story.ok("PATCH", f"/v2/leases/{lease_id}", {"name": "other"})
    problem = story.problem(409, "PATCH", f"/v2/leases/{lease_id}", {"duration": 60})
    assert "waits for capacity: only its name and wait can be changed" in problem["detail"]
    story.ok("DELETE", f"/v2/leases/{lease_id}")
    assert story.call("GET", f"/v2/leases/{lease_id}").status_code == 404


def test_a_lease_whose_owner_chooses_its_dates_leaves_the_list(story: Story) -> None:
    first, second = wait_for(story, 4, 60), wait_for(story, 4, 60)
    story.ok("PATCH", f"/v2/leases/{second}", {"start": story.moment(90), "duration": 600})
    assert shown(story, second)["waiting"] is None
    story.ok("DELETE", f"/v2/leases/{first}")
    settle(story)
    assert start_of(story, second) == story.moment(90)


@pytest.mark.parametrize(
    ("changes", "code", "detail"),
    [
        ({"reservations": [hosts(5, 5)]}, "not_enough_resources", "at least 5 requested, 4 match"),
        ({"wait": {"until": "2030-01-15T11:00:00Z"}}, "invalid_date", "must be later than now"),
        ({"wait": {"until": "2032-01-15T11:00:00Z"}}, "invalid_date", "to end by end_by"),
        ({"wait": {"priority": 10}}, "invalid_input", ""),
        ({"start": "now"}, "invalid_input", ""),
    ],
)
def test_rejects_a_wait_that_cannot_succeed(
    story: Story, changes: dict[str, Any], code: str, detail: str
) -> None:
    status = 409 if code == "not_enough_resources" else 400
    problem = story.problem(status, "POST", "/v2/leases", {**waiting(1, 60), **changes})
    assert problem["code"] == code
    assert detail in problem["detail"]


def test_a_lease_with_a_full_width_does_not_starve(story: Story) -> None:
    """An endless stream of small leases cannot delay the promised start."""
    rules(story, promises=1)
    for _ in range(4):
        wait_for(story, 1, 30)
    wide = wait_for(story, 4, 60)
    promised = start_of(story, wide)
    for _ in range(6):
        wait_for(story, 1, 30)
        story.at(5)
        settle(story)
    lease = shown(story, wide)
    assert (lease["status"], lease["start"]) == ("ACTIVE", promised)


def test_a_request_with_a_fixed_start_takes_the_place_of_a_soft_promise(story: Story) -> None:
    rules(story, promises=1, is_firm=False)
    wait_for(story, 4, 60)
    promised = wait_for(story, 2, 60)
    made = story.ok("POST", "/v2/leases", story.asking(60, 120, reservations=[hosts(4, 4)]))
    assert made["status"] == "PENDING"
    lease = shown(story, promised)
    assert (lease["status"], lease["waiting"]["promised_start"]) == ("WAITING", None)
    assert "lease.promise_withdrawn" in story.event_types(promised)
    settle(story)
    assert start_of(story, promised) == story.moment(120)


def test_the_cleaning_time_of_a_soft_promise_gives_way_too(make_story: MakeStory) -> None:
    story = make_story(DEFAULT__cleaning_time=10)
    story.register(1)
    rules(story, promises=1, is_firm=False)
    promised = wait_for(story, 1, 60)
    assert start_of(story, promised) == story.moment(0)
    waiting = wait_for(story, 1, 60)
    assert start_of(story, waiting) == story.moment(70)
    story.ok("POST", "/v2/leases", story.asking(135, 150))
    assert shown(story, waiting)["status"] == "WAITING"


def test_a_wrong_calendar_in_memory_withdraws_no_soft_promise(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CalendarMemory, "_start", lambda _: None)
    monkeypatch.setattr(calendar_memory, "_CHECKED_SHARE", 0.0)
    story = make_story(manager__calendar_memory="on")
    story.register(4)
    rules(story, promises=1, is_firm=False)
    wait_for(story, 4, 60)
    promised = wait_for(story, 2, 60)
    asked = story.asking(60, 120, reservations=[hosts(2, 2)])
    blocking = story.ok("POST", "/v2/leases", asked)["id"]
    story.runtime.calendar.load()
    monkeypatch.setattr(CalendarMemory, "_try_to_catch_up", lambda _: True)
    story.ok("DELETE", f"/v2/leases/{blocking}")
    story.ok("POST", "/v2/leases", asked)
    assert "lease.promise_withdrawn" not in story.event_types(promised)


def test_a_request_that_does_not_fit_leaves_soft_promises_alone(story: Story) -> None:
    rules(story, promises=1, is_firm=False)
    wait_for(story, 4, 60)
    promised = wait_for(story, 2, 60)
    story.problem(409, "POST", "/v2/leases", story.asking(30, 90, reservations=[hosts(4, 4)]))
    assert start_of(story, promised) == story.moment(60)


def test_a_firm_promise_is_a_booking_like_any_other(story: Story) -> None:
    rules(story, promises=1)
    wait_for(story, 4, 60)
    promised = wait_for(story, 2, 60)
    story.problem(409, "POST", "/v2/leases", story.asking(60, 120, reservations=[hosts(4, 4)]))
    assert start_of(story, promised) == story.moment(60)
