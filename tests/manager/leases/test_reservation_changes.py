"""Reservations added to a lease and removed from it."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from climate.db.events import queue
from climate.manager.admission.resizing import by_name, give_back
from climate.manager.audit.cloud import audit
from climate.manager.claims import Batch, Claim
from climate.manager.events.queue import BatchSizeEstimator
from climate.manager.events.runner import run
from climate.manager.leases import reservation_changes
from climate.manager.resources.inventory_sync import synchronise
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=HOSTS_AND_INSTANCES)


def hosts(count: int, name: str = "") -> dict[str, Any]:
    params: dict[str, Any] = {"min": count, "max": count}
    if name:
        params["hypervisor_properties"] = f'["==", "$hypervisor_hostname", "{name}"]'
    return {"resource_type": "physical:host", "params": params}


def slots(amount: int) -> dict[str, Any]:
    sizes = {"vcpus": 16, "memory_mb": 0, "disk_gb": 0, "affinity": True}
    return {"resource_type": "virtual:instance", "params": {"amount": amount, **sizes}}


def create(story: Story, *reservations: dict[str, Any]) -> dict[str, Any]:
    body = {
        "name": "lease",
        "start": "2030-01-15T13:00:00Z",
        "end": "2030-01-15T14:00:00Z",
        "reservations": list(reservations),
    }
    return dict(story.ok("POST", "/v2/leases", body))


def patch(story: Story, lease: dict[str, Any], **change: Any) -> dict[str, Any]:
    return dict(story.ok("PATCH", f"/v2/leases/{lease['id']}", change))


def pools(story: Story) -> dict[str, list[str]]:
    return {name: list(pool.hosts) for name, pool in story.cloud.pools().items()}


def statuses(story: Story, lease: dict[str, Any]) -> list[str]:
    shown = story.ok("GET", f"/v2/leases/{lease['id']}")
    return [item["status"] for item in shown["reservations"]]


def test_a_reservation_added_before_the_start_starts_with_the_others(story: Story) -> None:
    lease = create(story, hosts(1))
    changed = patch(story, lease, add_reservations=[hosts(2)])
    assert [item["params"]["min"] for item in changed["reservations"]] == [1, 2]
    story.at(60)
    assert sorted(len(hosts) for hosts in pools(story).values()) == [1, 2]


def test_a_reservation_removed_before_the_start_is_free_at_once(story: Story) -> None:
    lease = create(story, hosts(3), hosts(1))
    first = lease["reservations"][0]["id"]
    changed = patch(story, lease, remove_reservations=[first])
    assert [item["params"]["min"] for item in changed["reservations"]] == [1]
    create(story, hosts(3))


def test_new_reservations_may_replace_a_removed_one(story: Story) -> None:
    lease = create(story, hosts(4))
    first = lease["reservations"][0]["id"]
    change = {"remove_reservations": [first], "add_reservations": [slots(4), hosts(3)]}
    changed = patch(story, lease, **change)
    assert [item["resource_type"] for item in changed["reservations"]] == [
        "virtual:instance",
        "physical:host",
    ]


def test_a_reservation_added_to_an_active_lease_is_handed_over_at_once(story: Story) -> None:
    lease = create(story, hosts(1))
    story.at(60)
    patch(story, lease, add_reservations=[hosts(2)])
    assert statuses(story, lease) == ["active", "pending"]
    story.run()
    assert statuses(story, lease) == ["active", "active"]
    assert sorted(len(hosts) for hosts in pools(story).values()) == [1, 2]
    story.at(60)
    assert pools(story) == {}


def test_a_reservation_removed_from_an_active_lease_is_reclaimed_and_then_free(
    story: Story,
) -> None:
    lease = create(story, hosts(3), hosts(1))
    story.at(60)
    patch(story, lease, remove_reservations=[lease["reservations"][0]["id"]])
    body = {"name": "other", "start": "now", "duration": 600, "reservations": [hosts(3)]}
    assert story.call("POST", "/v2/leases", body).status_code == 409
    story.run()
    assert statuses(story, lease) == ["deleted", "active"]
    assert [len(hosts) for hosts in pools(story).values()] == [1]
    story.ok("POST", "/v2/leases", body)


def test_a_rejected_change_changes_nothing(story: Story) -> None:
    lease = create(story, hosts(1))
    change = {
        "remove_reservations": [lease["reservations"][0]["id"]],
        "add_reservations": [hosts(5)],
    }
    answer = story.call("PATCH", f"/v2/leases/{lease['id']}", change)
    assert (answer.status_code, answer.get_json()["missing"]) == (409, 1)
    assert story.ok("GET", f"/v2/leases/{lease['id']}") == lease


def test_rejects_the_removal_of_an_unknown_reservation(story: Story) -> None:
    lease = create(story, hosts(1), hosts(1))
    path = f"/v2/leases/{lease['id']}"
    story.problem(400, "PATCH", path, {"remove_reservations": ["no-such-reservation"]})
    first = {"remove_reservations": [lease["reservations"][0]["id"]]}
    patch(story, lease, **first)
    story.problem(400, "PATCH", path, first)


def test_rejects_the_removal_of_the_last_reservation(story: Story) -> None:
    lease = create(story, hosts(1), hosts(1))
    path = f"/v2/leases/{lease['id']}"
    first, second = (reservation["id"] for reservation in lease["reservations"])
    found = story.problem(400, "PATCH", path, {"remove_reservations": [first, second]})
    assert found["detail"].endswith("needs a reservation: keep one, or delete the lease")
    story.at(60)
    patch(story, lease, remove_reservations=[first])
    story.problem(400, "PATCH", path, {"remove_reservations": [second]})


class InterruptedCloud(SimulatedCloud):
    """A cloud that calls a function before it hands over the next host."""

    interruptions: list[Callable[[], object]]

    def act(self, name: str, **details: str) -> None:
        while name == "add_host" and self.interruptions:
            self.interruptions.pop()()
        super().act(name, **details)


def test_a_reservation_removed_during_a_hand_over_is_reclaimed_afterwards(
    story: Story,
) -> None:
    lease = create(story, hosts(1), hosts(2))
    story.at(60)
    cloud = InterruptedCloud(story.conf)
    story.runtime.plugins["physical:host"].cloud = cloud  # type: ignore[attr-defined]
    removed = lease["reservations"][1]["id"]
    cloud.interruptions = [lambda: patch(story, lease, remove_reservations=[removed])]
    patch(story, lease, add_reservations=[hosts(1)])
    story.run()
    story.run()
    assert statuses(story, lease) == ["active", "deleted", "active"]
    assert [len(hosts) for hosts in pools(story).values()] == [1, 1]


def test_a_reservation_removed_after_the_claim_of_the_start_is_not_handed_over(
    story: Story,
) -> None:
    lease = create(story, hosts(3), hosts(1))
    story.clock.advance(3600)
    now = story.clock.now()
    due = [event["id"] for event in story.lease(lease["id"])["events"]]
    claimed = story.runtime.database.write(
        lambda session: queue.claim(session, "manager-2", now, now + timedelta(minutes=1), due)
    )
    patch(story, lease, remove_reservations=[lease["reservations"][0]["id"]])
    for event_id, lease_id, attempt in claimed:
        claim = Claim(event_id, lease_id, "manager-2", attempt)
        run(story.runtime, Batch([claim]), BatchSizeEstimator())
    assert statuses(story, lease) == ["deleted", "active"]
    assert [len(hosts) for hosts in pools(story).values()] == [1]


def test_the_inventory_sync_retries_a_failed_hand_over(story: Story) -> None:
    lease = create(story, hosts(1))
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


def test_the_inventory_sync_retries_a_failed_reclaim(story: Story) -> None:
    lease = create(story, hosts(1), hosts(1))
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


def test_a_removed_reservation_that_only_the_end_reclaims_is_free_then(story: Story) -> None:
    lease = create(story, hosts(3), hosts(1))
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


@pytest.mark.parametrize("change", ["reservations", "add_reservations"])
def test_a_lease_that_ends_now_cannot_change_its_reservations(story: Story, change: str) -> None:
    lease = create(story, hosts(1))
    story.at(60)
    story.at(5)
    id_ = lease["reservations"][0]["id"]
    wanted = {"reservations": {"id": id_, "params": {"max": 2}}, "add_reservations": hosts(1)}
    body = {"end": "now", "name": "renamed", change: [wanted[change]]}
    problem = story.problem(400, "PATCH", f"/v2/leases/{lease['id']}", body)
    assert problem["code"] == "invalid_input"
    shown = story.ok("GET", f"/v2/leases/{lease['id']}")
    assert (shown["name"], shown["end"]) == (lease["name"], lease["end"])


def test_a_removed_reservation_cannot_be_changed(story: Story) -> None:
    lease = create(story, hosts(1), hosts(1))
    removed = lease["reservations"][0]["id"]
    story.at(60)
    patch(story, lease, remove_reservations=[removed])
    change = {"reservations": [{"id": removed, "params": {"max": 2}}]}
    for _ in range(2):
        assert story.problem(400, "PATCH", f"/v2/leases/{lease['id']}", change)
        story.run()


# Hosts that a running reservation gives back.


def shrink(lease: dict[str, Any], count: int) -> dict[str, Any]:
    first = lease["reservations"][0]["id"]
    return {"reservations": [{"id": first, "params": {"min": count, "max": count}}]}


def test_every_database_gives_back_hosts_without_servers(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = create(story, hosts(4))
    story.at(60)
    story.cloud.boot_server("sim-4", "mine")
    change = shrink(lease, 1)
    preview = story.ok("PATCH", f"/v2/leases/{lease['id']}?dry_run=true", change)
    assert preview["reservations"][0]["asked"] == 1
    patch(story, lease, **change)
    body = {"name": "other", "start": "now", "duration": 600, "reservations": [hosts(3)]}
    assert story.call("POST", "/v2/leases", body).status_code == 409  # not reclaimed yet
    assert story.run() == 1
    assert list(pools(story).values()) == [["sim-4"]]
    assert story.cloud.servers("sim-4") == ["mine"]
    assert statuses(story, lease) == ["active", "deleted"]
    other = story.ok("POST", "/v2/leases", body)
    story.run()
    assert sorted(len(names) for names in pools(story).values()) == [1, 3]
    assert audit(story.runtime) == []
    story.ok("DELETE", f"/v2/leases/{other['id']}")
    story.run()
    patch(story, lease, **shrink(lease, 2))  # and it can grow again
    story.at(60)
    assert pools(story) == {}
    assert story.lease(lease["id"])["status"] == "TERMINATED"


def test_gives_back_the_hosts_that_the_user_names(story: Story) -> None:
    lease = create(story, hosts(4))
    story.at(60)
    path, first = f"/v2/leases/{lease['id']}", lease["reservations"][0]["id"]

    def asked(*names: str, **more: Any) -> dict[str, Any]:
        return {"reservations": [{"id": first, "give_back": [*names], **more}]}

    story.cloud.boot_server("sim-2", "mine")
    before = story.ok("GET", path)
    for status, words, body in (
        (409, "sim-2 has servers", asked("sim-1", "sim-2")),
        (400, "does not have sim-9. It has: sim-1, sim-2, sim-3, sim-4", asked("sim-9")),
        (409, "leave out max", asked("sim-1", params={"max": 4})),
        (400, "would be empty", asked("sim-1", "sim-3", "sim-4", "sim-2")),
        (400, "unless give_back or add_hosts is given", {"reservations": [{"id": first}]}),
    ):
        assert words in story.problem(status, "PATCH", path, body)["detail"]
        assert story.ok("GET", path) == before
    patch(story, lease, **asked("sim-3", "sim-1", "sim-3"))
    story.run()
    assert list(pools(story).values()) == [["sim-2", "sim-4"]]
    assert story.ok("GET", path)["reservations"][0]["params"]["max"] == 2
    early = create(story, hosts(1))
    body = {"reservations": [{"id": early["reservations"][0]["id"], "give_back": ["sim-1"]}]}
    refused = story.problem(409, "PATCH", f"/v2/leases/{early['id']}", body)
    assert "only a running" in refused["detail"]
    assert audit(story.runtime) == []


# Hosts that the user adds by name.


def add(lease: dict[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    return {"reservations": [{"id": lease["reservations"][0]["id"], "add_hosts": names, **more}]}


def counts(lease: dict[str, Any]) -> tuple[int, int]:
    params = lease["reservations"][0]["params"]
    return params["min"], params["max"]


def test_every_database_adds_exactly_the_named_hosts(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = create(story, hosts(1, name="sim-3"))
    story.at(60)
    path, anywhere = f"/v2/leases/{lease['id']}", {"hypervisor_properties": ""}
    change = add(lease, "sim-4", params=anywhere)
    before = story.ok("GET", path)
    assert counts(story.ok("PATCH", f"{path}?dry_run=true", change)["lease"]) == (2, 2)
    assert story.ok("GET", path) == before
    assert counts(patch(story, lease, **change)) == (2, 2)
    assert story.run() == 1
    assert list(pools(story).values()) == [["sim-3", "sim-4"]]
    # A swap: one host leaves, and another one joins, which the user names by its id.
    (wanted,) = story.ok("GET", "/v2/resources?q=sim-1")["resources"]
    swap = add(lease, str(wanted["id"]), give_back=["sim-3"])
    assert counts(patch(story, lease, **swap)) == (2, 2)
    story.run()
    assert list(pools(story).values()) == [["sim-1", "sim-4"]]
    assert statuses(story, lease) == ["active", "deleted"]
    assert counts(patch(story, lease, **add(lease, "sim-2", params={"min": 3}))) == (3, 3)
    story.run()
    assert audit(story.runtime) == []


def test_a_host_that_cannot_join_is_named_with_the_reason(story: Story) -> None:
    lease = create(story, hosts(1, name="sim-3"), hosts(1, name="sim-1"))
    other = create(story, hosts(1, name="sim-2"))
    story.at(60)
    path, anywhere = f"/v2/leases/{lease['id']}", {"hypervisor_properties": ""}
    before = story.ok("GET", path)
    for status, words, body in (
        (409, "sim-2 (booked", add(lease, "sim-2", params=anywhere)),
        (409, "sim-2 (booked", add(lease, "sim-2", "sim-4", params={**anywhere, "min": 1})),
        (409, "sim-1 (in another reservation", add(lease, "sim-1", params=anywhere)),
        (409, "sim-4 (excluded by hypervisor_properties", add(lease, "sim-4")),
        (409, "leave out max", add(lease, "sim-4", params={**anywhere, "max": 3})),
        (400, "cannot get sim-9: there is no such host", add(lease, "sim-4", "sim-9")),
        (400, "cannot get 99999999999999999999:", add(lease, "9" * 20)),
        (400, "has sim-3 already", add(lease, "sim-3")),
        (400, "does not consider the hosts in add_hosts", {**add(lease, "sim-4"), "start": "asap"}),
    ):
        refused = story.problem(status, "PATCH", path, body)
        assert words in str(refused)
        assert story.ok("GET", path) == before
        if "booked" in words:
            assert other["id"] in [each["lease_id"] for each in refused["blocked_by"]]
    story.cloud.fail_host("sim-4")
    synchronise(story.runtime)
    refused = story.problem(409, "PATCH", path, add(lease, "sim-4", params=anywhere))
    assert "sim-4 (not reservable now)" in refused["detail"]


def test_a_lease_that_has_not_started_gets_the_named_host(story: Story) -> None:
    lease = create(story, hosts(1, name="sim-3"))
    anywhere = {"hypervisor_properties": ""}
    assert counts(patch(story, lease, **add(lease, "sim-4", params=anywhere))) == (2, 2)
    story.at(60)
    assert list(pools(story).values()) == [["sim-3", "sim-4"]]
    instances = create(story, slots(1))
    refused = story.problem(409, "PATCH", f"/v2/leases/{instances['id']}", add(instances, "sim-1"))
    assert "only a reservation of hosts" in refused["detail"]


def test_hosts_that_join_before_the_start_exchange_no_host_of_the_lease(story: Story) -> None:
    lease = create(story, hosts(1, name="sim-3"), hosts(1, name="sim-1"))
    path, anywhere = f"/v2/leases/{lease['id']}", {"hypervisor_properties": ""}
    before = story.ok("GET", path)
    refused = story.problem(409, "PATCH", path, add(lease, "sim-1", params=anywhere))
    assert "sim-1 (in another reservation" in refused["detail"]
    both = [
        {"id": each["id"], "add_hosts": ["sim-4"], "params": anywhere}
        for each in lease["reservations"]
    ]
    refused = story.problem(400, "PATCH", path, {"reservations": both})
    assert "would join several reservations" in refused["detail"]
    assert story.ok("GET", path) == before


def test_what_happens_between_the_search_for_a_named_host_and_its_booking(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = create(story, hosts(1, name="sim-3"))
    path, anywhere = f"/v2/leases/{lease['id']}", {"hypervisor_properties": ""}
    meanwhile: list[Callable[[], object]] = []

    def find_named(*arguments: Any) -> Any:
        found = by_name.find_named(*arguments)
        while meanwhile:
            meanwhile.pop()()
        return found

    monkeypatch.setattr(reservation_changes, "find_named", find_named)
    moved = {"id": lease["reservations"][0]["id"], "params": hosts(1, name="sim-4")["params"]}
    meanwhile.append(lambda: patch(story, lease, reservations=[moved]))
    refused = story.problem(409, "PATCH", path, add(lease, "sim-4", params=anywhere))
    assert "has just changed" in refused["detail"]
    (gone,) = story.ok("GET", "/v2/resources?q=sim-2")["resources"]
    meanwhile.append(lambda: story.ok("DELETE", f"/v2/resources/{gone['id']}"))
    refused = story.problem(409, "PATCH", path, add(lease, "sim-2", params=anywhere))
    assert f"cannot get {gone['id']} (not reservable now)" in refused["detail"]


def test_hosts_in_use_are_not_given_back(story: Story) -> None:
    lease = create(story, hosts(2), slots(1))
    story.at(60)
    names = next(iter(pools(story).values()))
    for name in names:
        story.cloud.boot_server(name, f"server of {name}")
    path = f"/v2/leases/{lease['id']}"
    before = story.ok("GET", path)
    refused = story.problem(409, "PATCH", path, shrink(lease, 1))
    assert refused["code"] == "resources_in_use"
    assert "would give back 1, but only 0 of them have no servers" in refused["detail"]
    # API v1 and instances give nothing back.
    v1 = {"reservations": [{"id": lease["reservations"][0]["id"], "min": 1, "max": 1}]}
    assert "it keeps all until" in story.refused(409, "PUT", f"/v1/leases/{lease['id']}", v1)
    assert story.ok("GET", path) == before


def test_a_lease_gives_back_a_bounded_number_of_times(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(give_back, "MAX_OVER", 2)
    lease = create(story, hosts(4))
    path = f"/v2/leases/{lease['id']}"
    story.at(60)
    patch(story, lease, **shrink(lease, 3))
    story.run()
    patch(story, lease, **shrink(lease, 2))
    refused = story.problem(409, "PATCH", path, shrink(lease, 1))
    assert (refused["code"], "2 reservations that are over" in refused["detail"]) == (
        "conflict",
        True,
    )


def test_hosts_that_cannot_be_reclaimed_stay_booked_until_the_end(story: Story) -> None:
    lease = create(story, hosts(4))
    patch(story, lease, end="2030-01-18T14:00:00Z")
    story.at(60)
    break_cloud(story, "remove_host")
    patch(story, lease, **shrink(lease, 3))
    story.until(story.clock.now() + timedelta(hours=1))
    break_cloud(story)
    assert story.lease(lease["id"])["degraded"]
    body = {"name": "other", "start": "now", "duration": 600, "reservations": [hosts(1)]}
    assert story.call("POST", "/v2/leases", body).status_code == 409
    synchronise(story.runtime)
    story.run()
    assert [len(names) for names in pools(story).values()] == [3]
    story.ok("POST", "/v2/leases", body)
    assert not story.lease(lease["id"])["degraded"]
