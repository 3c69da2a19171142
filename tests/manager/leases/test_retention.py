"""Leases that ended long ago are removed; the history keeps what reports need."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from climate.core.lease.lifecycle import ReservationStatus
from climate.db.leases import leases, past_leases
from climate.manager.leases import delete
from climate.manager.leases.delete import remove_ended
from tests.conftest import MakeStory
from tests.support.rows import dump
from tests.support.service import Story, host_reservation, hosts

DAY = 24 * 60
KEPT = {"manager__ended_leases_days": 90, "manager__history_days": 730}


@pytest.fixture
def kept(make_story_everywhere: MakeStory) -> Story:
    story = make_story_everywhere(**KEPT)
    story.register(4)
    return story


def history(story: Story, query: str = "", **call: Any) -> list[dict[str, Any]]:
    return list(story.ok("GET", f"/v2/past-leases{query}", **call)["past_leases"])


def test_only_leases_that_ended_long_ago_are_removed(kept: Story) -> None:
    old = kept.reserve(0, 60, reservations=[host_reservation(2, 2)])
    later = kept.reserve(DAY, 2 * DAY)
    running, waiting = kept.reserve(0, 200 * DAY), kept.reserve(150 * DAY, 151 * DAY)
    kept.run()
    kept.at(60)
    kept.at(2 * DAY)
    kept.at(88 * DAY - 1)
    kept.dispatcher.upkeep.tidy()
    assert kept.lease(old["id"])["status"] == "TERMINATED", "it ended less than 90 days ago"
    kept.at(DAY)
    kept.dispatcher.upkeep.tidy()
    kept.refused(404, "GET", f"/v1/leases/{old['id']}")
    for lease in (later, running, waiting):
        kept.lease(lease["id"])
    assert kept.event_types(old["id"])[-1] == "lease.delete"
    kept.dispatcher.upkeep.tidy()  # allocations without a lease, after their cleaning time
    rows = dump(kept.runtime.database)
    assert {row["lease_id"] for row in rows["reservations"]} == {
        lease["id"] for lease in (later, running, waiting)
    }
    assert old["id"] not in {row["lease_id"] for row in rows["events"]}
    assert all(row["reservation_id"] for row in rows["allocations"]), "none is left behind"


def test_a_lease_that_ended_late_is_kept_as_long_as_others(kept: Story) -> None:
    lease = kept.reserve(0, 60)
    kept.run()
    kept.clock.advance(91 * DAY * 60)  # no manager is there to end it
    kept.run()
    kept.dispatcher.upkeep.tidy()
    assert kept.lease(lease["id"])["status"] == "TERMINATED"


def test_the_history_has_owner_resources_and_times(kept: Story) -> None:
    token = "alice:lab"
    lease = kept.ok(
        "POST",
        "/v2/leases",
        kept.asking(10, 60, name="run 7", reservations=[hosts(1, 2)]),
        token=token,
    )
    start, end = kept.moment(10), kept.moment(60)
    kept.at(11)
    started = kept.moment()
    kept.at(51)
    ended = kept.moment()
    registered = kept.ok("GET", "/v1/os-hosts")["hosts"]
    names = {host["id"]: host["hypervisor_hostname"] for host in registered}
    held = kept.hosts_of(lease["id"])
    kept.at(91 * DAY)
    kept.dispatcher.upkeep.tidy()
    (row,) = history(kept, token=token)
    assert row == {
        "id": lease["id"],
        "name": "run 7",
        "user_id": "alice",
        "project_id": "lab",
        "status": "TERMINATED",
        "degraded": False,
        "start": start,
        "end": end,
        "started_at": started,
        "ended_at": ended,
        "created_at": lease["created_at"],
        "reservations": [
            {
                "id": lease["reservations"][0]["id"],
                "resource_type": "physical:host",
                "status": "deleted",
                "resources": [{"id": id_, "name": names[id_], "amounts": {}} for id_ in held],
            }
        ],
    }
    assert len(held) == 2


def test_the_history_also_has_running_leases_that_were_deleted(kept: Story) -> None:
    cancelled, running = kept.reserve(60, 120), kept.reserve(0, 120)
    kept.run()
    for lease in (cancelled, running):
        kept.ok("DELETE", f"/v1/leases/{lease['id']}")
    kept.at(30)
    (row,) = history(kept)
    assert (row["id"], row["status"]) == (running["id"], "DELETING")
    assert (row["ended_at"], row["end"]) == (kept.moment(), kept.moment(90))
    assert len(row["reservations"][0]["resources"]) == 1


def test_the_history_is_listed_by_project_in_pages(kept: Story) -> None:
    for number in range(3):
        kept.ok("POST", "/v1/leases", kept.lease_body(0, 10 + number), token="alice:lab")
    kept.ok("POST", "/v1/leases", kept.lease_body(0, 13), token="bob:other")
    kept.run()
    for _ in range(14):
        kept.at(1)
    for lease in kept.ok("GET", "/v1/leases")["leases"]:
        kept.ok("DELETE", f"/v1/leases/{lease['id']}")
    first = kept.ok("GET", "/v2/past-leases?limit=2", token="alice:lab")
    second = kept.ok("GET", first["next"], token="alice:lab")
    ends = [row["ended_at"] for page in (first, second) for row in page["past_leases"]]
    assert (len(first["past_leases"]), second["next"]) == (2, None)
    assert ends == [kept.moment(minutes) for minutes in (-2, -3, -4)]
    after = f"?ended_after={kept.moment(-3)}"
    assert len(history(kept, after, token="alice:lab")) == 1
    assert len(history(kept, "?all_projects=true&user_id=bob")) == 1
    kept.problem(403, "GET", "/v2/past-leases?all_projects=true", token="alice:lab")


def test_leases_whose_resources_are_not_released_stay(kept: Story) -> None:
    lease = kept.reserve(0, 60)
    kept.run()
    kept.at(60)
    (id_,) = (reservation["id"] for reservation in lease["reservations"])

    def store(status: ReservationStatus) -> None:
        kept.runtime.database.write(
            lambda session: leases.set_reservation(
                session, id_, kept.clock.now(), status=status.value
            )
        )

    store(ReservationStatus.ERROR)
    kept.at(91 * DAY)
    kept.dispatcher.upkeep.tidy()
    assert kept.lease(lease["id"])
    store(ReservationStatus.DELETED)
    kept.dispatcher.upkeep.tidy()
    kept.refused(404, "GET", f"/v1/leases/{lease['id']}")


def test_the_history_is_removed_after_its_own_time(kept: Story) -> None:
    kept.reserve(0, 60)
    kept.run()
    kept.at(60)
    kept.at(91 * DAY)
    kept.dispatcher.upkeep.tidy()
    kept.at(638 * DAY)
    kept.dispatcher.upkeep.tidy()
    assert len(history(kept)) == 1
    kept.at(2 * DAY)
    kept.dispatcher.upkeep.tidy()
    assert history(kept) == []


def test_nothing_is_removed_without_a_limit_of_time(make_story: MakeStory) -> None:
    story = make_story(manager__ended_leases_days=0, manager__history_days=0)
    story.register(1)
    lease, deleted = story.reserve(0, 60), story.reserve(60, 120)
    story.run()
    story.at(60)
    story.at(60)
    story.ok("DELETE", f"/v1/leases/{deleted['id']}")
    story.at(36500 * DAY)
    story.dispatcher.upkeep.tidy()
    assert story.lease(lease["id"])
    assert len(history(story)) == 1


def test_managers_that_remove_at_the_same_time_remove_each_lease_once(
    kept: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        for _ in range(4):
            kept.reserve(0, 10)
        kept.run()
        kept.at(10)
    kept.at(91 * DAY)
    meet, find = threading.Barrier(4), past_leases.ended_before

    def find_together(*arguments: Any) -> Any:
        found = find(*arguments)
        if len(arguments) == 3:  # before the transaction: all managers find the same leases
            meet.wait(10)
        return found

    monkeypatch.setattr(delete, "_LEASES", 3)
    monkeypatch.setattr(delete, "_BATCHES", 1)
    monkeypatch.setattr(past_leases, "ended_before", find_together)
    store, settings = kept.runtime.store, kept.runtime.settings
    with ThreadPoolExecutor(4) as managers:
        for _ in range(6):
            for removed in [managers.submit(remove_ended, store, settings) for _ in range(4)]:
                removed.result()
    assert len(history(kept)) == 16
    types = [item["event_type"] for item in kept.published()]
    assert types.count("lease.delete") == 16
    assert dump(kept.runtime.database)["leases"] == []
