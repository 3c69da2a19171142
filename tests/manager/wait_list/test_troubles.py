"""Troubles of the wait list: errors, late managers, lost turns, limits, clocks that go back."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.errors import SearchTooLong
from climate.core.lease.wait_list import HeldBack, Wait
from climate.db.leases import waits
from climate.db.tables.leases import EVENTS
from climate.manager.admission import window_search
from climate.manager.audit.invariants import violations
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list import passes, placing
from climate.manager.wait_list import waiting as lists
from climate.manager.wait_list.passes import place_pool, place_waiting
from climate.manager.wait_list.turns import take_turn
from tests.conftest import MakeStory
from tests.support.service import Story, hosts
from tests.support.waiting import only_this_order, rules, settle, wait_for, waiting

POOL = "physical:host"
ALICE, BOB = "alice:lab", "bob:office"


def shown(story: Story, lease_id: str) -> dict[str, Any]:
    return dict(story.ok("GET", f"/v2/leases/{lease_id}"))


def entry(story: Story, lease_id: str) -> Wait:
    with story.runtime.database.read() as session:
        return waits.find(session, [lease_id])[lease_id]


def test_a_change_of_wait_has_no_dry_run(story: Story) -> None:
    only_this_order(story)
    wait_for(story, 4, 60)
    lease_id = wait_for(story, 4, 60)
    problem = story.problem(
        400, "PATCH", f"/v2/leases/{lease_id}?dry_run=true", {"wait": {"priority": 9}}
    )
    assert problem["code"] == "invalid_input"
    assert shown(story, lease_id)["waiting"]["priority"] == 0


def test_the_etag_of_a_new_lease_permits_a_change(story: Story) -> None:
    only_this_order(story)
    wait_for(story, 4, 60)
    made = story.call("POST", "/v2/leases", waiting(4, 60))
    body = made.get_json()
    assert body["waiting"]["position"] == 1
    path, headers = f"/v2/leases/{body['id']}", {"If-Match": made.headers["ETag"]}
    changed = story.call("PATCH", path, {"wait": {"priority": 1}}, headers=headers)
    assert changed.status_code == 200, changed.get_data(as_text=True)
    assert story.event_types(body["id"]) == ["lease.waiting", "lease.update"]


def test_a_lease_waits_on_if_its_owner_extends_the_time_before_it_is_removed(story: Story) -> None:
    """A manager had claimed the event that removes the lease, and died."""
    only_this_order(story)
    first = wait_for(story, 4, 60)
    lease_id = wait_for(story, 4, 60, wait={"until": story.moment(30)})
    tried = sa.update(EVENTS).where(EVENTS.c.lease_id == lease_id).values(attempt=1)
    story.runtime.database.write(lambda session: session.execute(tried))
    story.ok("PATCH", f"/v2/leases/{lease_id}", {"wait": {"until": story.moment(90)}})
    story.ok("DELETE", f"/v2/leases/{first}")
    settle(story)
    assert shown(story, lease_id)["status"] == "ACTIVE"


def test_a_lease_about_which_climate_cannot_decide_does_not_stop_the_others(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(runtime: Runtime, wait: Wait) -> Any:
        if wait.lease_id == strange:
            raise SearchTooLong("too long")
        return placing.book_earliest(runtime, wait)

    only_this_order(story)
    wait_for(story, 4, 60)
    strange, other = wait_for(story, 4, 60), wait_for(story, 4, 60)
    rules(story, promises=1)
    monkeypatch.setattr(passes, "book_earliest", fail)
    settle(story)
    assert shown(story, strange)["waiting"]["held_back"] == "error"
    assert shown(story, other)["start"] == story.moment(60)
    monkeypatch.undo()
    rules(story, promises=2)
    story.at(1)
    settle(story)
    assert shown(story, strange)["waiting"]["promised_start"] == story.moment(119)


def test_a_request_succeeds_although_no_pass_can_run(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object, **_options: object) -> int:
        raise RuntimeError("out of order")

    monkeypatch.setattr(lists, "place_pool", fail)
    made = story.ok("POST", "/v2/leases", waiting(4, 60))
    assert made["status"] == "WAITING"
    settle(story)
    assert shown(story, made["id"])["status"] == "ACTIVE"


def test_a_lease_is_shown_although_the_search_for_its_start_fails(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise SearchTooLong("too long")

    only_this_order(story)
    wait_for(story, 4, 60)
    lease_id = wait_for(story, 4, 60)
    monkeypatch.setattr(window_search, "earliest", fail)
    assert shown(story, lease_id)["waiting"]["expected_start"] is None


def test_no_lease_starts_too_late_to_end_in_time(story: Story) -> None:
    only_this_order(story)
    first = wait_for(story, 4, 60)
    lease_id = wait_for(story, 4, 60, end_by=story.moment(100))
    story.ok("DELETE", f"/v2/leases/{first}")
    story.clock.advance(41 * 60)  # no manager has removed it at minute 40
    place_waiting(story.runtime)
    assert shown(story, lease_id)["status"] == "WAITING"
    settle(story)
    assert story.call("GET", f"/v2/leases/{lease_id}").status_code == 404


def test_leases_that_fit_nowhere_do_not_cost_a_search_each(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_this_order(story)
    wait_for(story, 4, 120)
    early = [wait_for(story, 4, 60, end_by=story.moment(90)) for _ in range(4)]
    late = wait_for(story, 4, 60)
    rules(story, promises=1)
    searches: list[str] = []

    def book(runtime: Runtime, wait: Wait) -> Any:
        searches.append(wait.lease_id)
        return placing.book_earliest(runtime, wait)

    monkeypatch.setattr(passes, "book_earliest", book)
    place_waiting(story.runtime)
    assert searches == [early[0], late]
    assert {shown(story, id_)["waiting"]["held_back"] for id_ in early} == {"no_window"}
    assert shown(story, late)["waiting"]["promised_start"] == story.moment(120)


def test_a_promised_lease_is_not_held_back(story: Story) -> None:
    """A process without the turn may find no window for a lease that another has booked."""
    wait_for(story, 4, 60)
    wait = entry(story, wait_for(story, 4, 60))
    placing.hold_back(story.runtime, wait, HeldBack.NO_WINDOW)
    assert entry(story, wait.lease_id).held_back is None


def test_a_lease_over_a_limit_waits_until_the_limit_allows_it(make_story: MakeStory) -> None:
    story = make_story(limits__enabled=True, limits__project_hosts=2)
    story.register(4)
    first = wait_for(story, 2, 60, token=ALICE)
    held = [wait_for(story, 1, 10, token=ALICE) for _ in range(2)]
    other = wait_for(story, 1, 10, token=BOB)
    assert shown(story, other)["status"] == "ACTIVE"
    assert {shown(story, id_)["waiting"]["held_back"] for id_ in held} == {"limit"}
    story.at(10)
    settle(story)
    story.ok("PATCH", f"/v2/leases/{first}", {"end": "now"})
    settle(story)
    assert {shown(story, id_)["status"] for id_ in held} == {"WAITING"}
    story.at(1)
    settle(story)
    assert {shown(story, id_)["status"] for id_ in held} == {"ACTIVE"}


def test_a_turn_ends_after_half_a_minute_without_a_renewal(story_everywhere: Story) -> None:
    runtime, clock = story_everywhere.runtime, story_everywhere.clock
    turn = take_turn(runtime, POOL)
    assert turn is not None
    assert take_turn(runtime, POOL) is None
    clock.advance(20)
    assert turn.goes_on()
    clock.advance(29)
    assert take_turn(runtime, POOL) is None
    clock.advance(1)
    assert take_turn(runtime, POOL) is not None
    assert not turn.goes_on()
    assert turn.leave()


def test_a_turn_does_not_outlast_a_clock_that_was_set_back(story_everywhere: Story) -> None:
    story = story_everywhere
    assert take_turn(story.runtime, POOL) is not None  # its owner dies
    story.clock.set(story.clock.now() - timedelta(hours=1))
    assert take_turn(story.runtime, POOL) is not None


def test_a_request_leaves_the_rest_to_the_managers(story: Story) -> None:
    turn = take_turn(story.runtime, POOL, timedelta(seconds=1))
    assert turn is not None
    assert turn.goes_on()
    assert take_turn(story.runtime, POOL) is None
    story.clock.advance(1)
    assert not turn.goes_on()
    assert turn.leave(even_if_wanted=turn.is_overdue)


def test_a_process_that_has_the_turn_looks_again_if_another_wants_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def look(runtime: Runtime, _pool: str, **_options: object) -> int:
        looks.append(place_pool(runtime, POOL) if len(looks) < 2 else 0)
        return 0

    monkeypatch.setattr(passes, "run_pass", look)
    place_pool(story.runtime, POOL)
    assert len(looks) == 3


def test_feeds_do_not_show_dates_of_a_waiting_lease(story: Story) -> None:
    only_this_order(story)
    wait_for(story, 4, 60, token=BOB)
    lease_id = wait_for(story, 4, 60, token=ALICE)
    made = story.ok("POST", "/v2/feeds", {"scope": "project", "id": "lab"}, token=ALICE)

    def entries() -> int:
        return story.http.get(made["url"]).get_data(as_text=True).count("BEGIN:VEVENT")

    assert entries() == 0
    story.at(60)
    settle(story)
    assert entries() == 1
    gone = wait_for(story, 4, 60, token=ALICE)
    story.ok("DELETE", f"/v2/leases/{gone}")
    story.ok("DELETE", f"/v2/leases/{lease_id}")
    assert entries() == 1


def test_a_request_withdraws_only_promises_that_are_in_its_way(make_story: MakeStory) -> None:
    story = make_story()
    story.register(2, rack="a")
    story.ok("POST", "/v1/os-hosts", {"name": "sim-3", "rack": "b"})
    rules(story, promises=2, is_firm=False)
    wait_for(story, 3, 60)
    racks = {rack: [hosts(1, 1, resource_properties=f'["==", "$rack", "{rack}"]')] for rack in "ab"}
    in_the_way = wait_for(story, 1, 60, reservations=racks["b"])
    elsewhere = wait_for(story, 1, 60, reservations=racks["a"])
    story.ok("POST", "/v2/leases", story.asking(60, 120, reservations=racks["b"]))
    assert shown(story, in_the_way)["status"] == "WAITING"
    assert shown(story, elsewhere)["status"] == "PENDING"
    assert list(violations(story.runtime.store)) == []


def test_the_pass_renews_its_turn(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that takes longer than a turn keeps the turn: no other process disturbs the order."""
    only_this_order(story)
    for _ in range(4):
        wait_for(story, 1, 60)
    blocked = [wait_for(story, 1, 300) for _ in range(4)]
    story.at(60)

    def slow(runtime: Runtime, wait: Wait) -> bool:
        story.clock.advance(20)
        assert take_turn(runtime, POOL) is None
        return placing.book_now(runtime, wait)

    monkeypatch.setattr(passes, "book_now", slow)
    place_pool(story.runtime, POOL)
    assert {shown(story, id_)["status"] for id_ in blocked} == {"PENDING"}


@pytest.mark.parametrize("enabled", [False, True])
def test_a_waiting_lease_counts_as_open_after_its_earliest_end(
    make_story_everywhere: MakeStory, enabled: bool
) -> None:
    story = make_story_everywhere(limits__enabled=enabled, limits__project_leases=1)
    story.register(4)
    only_this_order(story)
    blocking = story.asking(0, 240, reservations=[hosts(3, 3)])
    story.ok("POST", "/v2/leases", blocking, token=BOB)
    wait_for(story, 4, 10, token=ALICE)
    story.at(30)
    problem = story.problem(403, "POST", "/v2/leases", story.asking(0, 60), token=ALICE)
    assert problem["code"] == "limit_exceeded"
