"""PATCH /v2/leases/<id>: reservations that are added to a lease, and removed from it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from climate.db import events
from climate.manager.batch import Batch
from climate.manager.claims import Claim
from climate.manager.events import run
from climate.manager.inventory import synchronise
from climate.manager.pace import Pace
from climate.plugins.simulated import SimulatedCloud
from tests.functional.test_v1_instances import story
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story

__all__ = ["story"]


def hosts(count: int) -> dict[str, Any]:
    return {"resource_type": "physical:host", "params": {"min": count, "max": count}}


def slots(amount: int) -> dict[str, Any]:
    sizes = {"vcpus": 16, "memory_mb": 0, "disk_gb": 0, "affinity": True}
    return {"resource_type": "virtual:instance", "params": {"amount": amount, **sizes}}


def make(story: Story, *asked: dict[str, Any]) -> dict[str, Any]:
    body = {
        "name": "lease",
        "start": "2030-01-15T13:00:00Z",
        "end": "2030-01-15T14:00:00Z",
        "reservations": list(asked),
    }
    return dict(story.ok("POST", "/v2/leases", body))


def patch(story: Story, lease: dict[str, Any], **change: Any) -> dict[str, Any]:
    return dict(story.ok("PATCH", f"/v2/leases/{lease['id']}", change))


def pools(story: Story) -> dict[str, list[str]]:
    return {name: list(pool.hosts) for name, pool in story.cloud.pools().items()}


def statuses(story: Story, lease: dict[str, Any]) -> list[str]:
    shown = story.ok("GET", f"/v2/leases/{lease['id']}")
    return [one["status"] for one in shown["reservations"]]


def test_what_is_added_before_the_start_starts_with_the_rest(story: Story) -> None:
    lease = make(story, hosts(1))
    changed = patch(story, lease, add_reservations=[hosts(2)])
    assert [one["params"]["min"] for one in changed["reservations"]] == [1, 2]
    story.at(60)
    assert sorted(len(hosts) for hosts in pools(story).values()) == [1, 2]


def test_what_is_removed_before_the_start_is_free_at_once(story: Story) -> None:
    lease = make(story, hosts(3), hosts(1))
    first = lease["reservations"][0]["id"]
    changed = patch(story, lease, remove_reservations=[first])
    assert [one["params"]["min"] for one in changed["reservations"]] == [1]
    make(story, hosts(3))


def test_one_may_take_the_place_of_another(story: Story) -> None:
    lease = make(story, hosts(4))
    first = lease["reservations"][0]["id"]
    change = {"remove_reservations": [first], "add_reservations": [slots(4), hosts(3)]}
    changed = patch(story, lease, **change)
    assert [one["resource_type"] for one in changed["reservations"]] == [
        "virtual:instance",
        "physical:host",
    ]


def test_what_is_added_to_a_running_lease_is_handed_over_at_once(story: Story) -> None:
    lease = make(story, hosts(1))
    story.at(60)
    patch(story, lease, add_reservations=[hosts(2)])
    assert statuses(story, lease) == ["active", "pending"]
    story.run()
    assert statuses(story, lease) == ["active", "active"]
    assert sorted(len(hosts) for hosts in pools(story).values()) == [1, 2]
    story.at(60)
    assert pools(story) == {}


def test_what_is_removed_from_a_running_lease_is_taken_back_and_then_free(story: Story) -> None:
    lease = make(story, hosts(3), hosts(1))
    story.at(60)
    patch(story, lease, remove_reservations=[lease["reservations"][0]["id"]])
    body = {"name": "other", "start": "now", "duration": 600, "reservations": [hosts(3)]}
    assert story.call("POST", "/v2/leases", body).status_code == 409
    story.run()
    assert statuses(story, lease) == ["deleted", "active"]
    assert [len(hosts) for hosts in pools(story).values()] == [1]
    story.ok("POST", "/v2/leases", body)


def test_a_refused_change_changes_nothing(story: Story) -> None:
    lease = make(story, hosts(1))
    change = {
        "remove_reservations": [lease["reservations"][0]["id"]],
        "add_reservations": [hosts(5)],
    }
    answer = story.call("PATCH", f"/v2/leases/{lease['id']}", change)
    assert (answer.status_code, answer.get_json()["missing"]) == (409, 1)
    assert story.ok("GET", f"/v2/leases/{lease['id']}") == lease


def test_what_is_not_there_cannot_be_removed(story: Story) -> None:
    lease = make(story, hosts(1))
    change = {"remove_reservations": ["no-such-reservation"]}
    assert story.call("PATCH", f"/v2/leases/{lease['id']}", change).status_code == 400
    first = {"remove_reservations": [lease["reservations"][0]["id"]]}
    patch(story, lease, **first)
    assert story.call("PATCH", f"/v2/leases/{lease['id']}", first).status_code == 400


def test_nothing_is_named_twice(story: Story) -> None:
    lease = make(story, hosts(1))
    mine = lease["reservations"][0]["id"]
    larger, smaller = ({"id": mine, "params": {"max": most}} for most in (2, 1))
    for change in (
        {"reservations": [larger, smaller]},
        {"remove_reservations": [mine, mine]},
        {"reservations": [larger], "remove_reservations": [mine]},
    ):
        refusal = story.problem(400, "PATCH", f"/v2/leases/{lease['id']}", change)
        assert f"Reservation {mine} is named more than once" in refusal["detail"]


def test_the_place_of_what_is_wrong_is_told(story: Story) -> None:
    lease = make(story, hosts(1))
    change = {"add_reservations": [hosts(1), {"resource_type": "no:such"}]}
    answer = story.call("PATCH", f"/v2/leases/{lease['id']}", change)
    assert answer.get_json()["errors"][0]["pointer"] == "#/add_reservations/1/resource_type"


class MeddledCloud(SimulatedCloud):
    """A cloud in which something else happens before the next host is handed over."""

    meddle: list[Callable[[], object]]

    def act(self, name: str, **details: str) -> None:
        while name == "add_host" and self.meddle:
            self.meddle.pop()()
        super().act(name, **details)


def test_what_is_removed_while_others_are_handed_over_is_taken_back_after_that(
    story: Story,
) -> None:
    lease = make(story, hosts(1), hosts(2))
    story.at(60)
    cloud = MeddledCloud(story.conf)
    story.runtime.plugins["physical:host"].cloud = cloud  # type: ignore[attr-defined]
    gone = lease["reservations"][1]["id"]
    cloud.meddle = [lambda: patch(story, lease, remove_reservations=[gone])]
    patch(story, lease, add_reservations=[hosts(1)])
    story.run()
    story.run()
    assert statuses(story, lease) == ["active", "deleted", "active"]
    assert [len(hosts) for hosts in pools(story).values()] == [1, 1]


def test_what_is_removed_as_the_start_is_claimed_is_not_handed_over(story: Story) -> None:
    lease = make(story, hosts(3), hosts(1))
    story.clock.advance(3600)
    now = story.clock.now()
    due = [event["id"] for event in story.lease(lease["id"])["events"]]
    claimed = story.runtime.database.write(
        lambda session: events.claim(session, "manager-2", now, now + timedelta(minutes=1), due)
    )
    patch(story, lease, remove_reservations=[lease["reservations"][0]["id"]])
    for event_id, lease_id, attempt in claimed:
        claim = Claim(event_id, lease_id, "manager-2", attempt)
        run(story.runtime, Batch([claim]), Pace())
    assert statuses(story, lease) == ["deleted", "active"]
    assert [len(hosts) for hosts in pools(story).values()] == [1]


def test_what_could_not_be_handed_over_is_tried_again_with_the_next_look(story: Story) -> None:
    lease = make(story, hosts(1))
    patch(story, lease, end="2030-01-16T14:00:00Z")
    story.at(60)
    break_cloud(story, "ensure_pool")
    patch(story, lease, add_reservations=[hosts(1)])
    story.until(story.clock.now() + timedelta(hours=1))
    break_cloud(story)
    assert statuses(story, lease) == ["active", "pending"]
    synchronise(story.runtime)
    assert story.lease(lease["id"])["degraded"]
    story.run()
    assert statuses(story, lease) == ["active", "active"]
    assert not story.lease(lease["id"])["degraded"]


def test_what_could_not_be_taken_back_is_tried_again_with_the_next_look(story: Story) -> None:
    lease = make(story, hosts(1), hosts(1))
    patch(story, lease, end="2030-01-16T14:00:00Z")
    story.at(60)
    break_cloud(story, "remove_host")
    patch(story, lease, remove_reservations=[lease["reservations"][0]["id"]])
    story.until(story.clock.now() + timedelta(hours=1))
    break_cloud(story)
    assert statuses(story, lease) == ["active", "active"]
    synchronise(story.runtime)
    story.run()
    assert statuses(story, lease) == ["deleted", "active"]


def test_what_is_taken_back_with_the_end_only_is_free_then(story: Story) -> None:
    lease = make(story, hosts(3), hosts(1))
    patch(story, lease, end="2030-01-18T14:00:00Z")
    story.at(60)
    break_cloud(story, "remove_host")
    patch(story, lease, remove_reservations=[lease["reservations"][0]["id"]])
    story.at(5)
    break_cloud(story)
    patch(story, lease, end="now")
    story.at(1)
    assert statuses(story, lease) == ["deleted", "deleted"]
    body = {"name": "other", "start": "now", "duration": 600, "reservations": [hosts(4)]}
    story.ok("POST", "/v2/leases", body)


def test_what_was_removed_cannot_be_changed(story: Story) -> None:
    lease = make(story, hosts(1), hosts(1))
    gone = lease["reservations"][0]["id"]
    story.at(60)
    patch(story, lease, remove_reservations=[gone])
    change = {"reservations": [{"id": gone, "params": {"max": 2}}]}
    for _ in range(2):
        assert story.problem(400, "PATCH", f"/v2/leases/{lease['id']}", change)
        story.run()
