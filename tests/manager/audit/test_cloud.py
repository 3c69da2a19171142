"""The audit compares leases with the cloud and repairs what is safe to repair."""

from typing import Any

import pytest

from climate.manager.audit.cloud import Repair, audit, repair
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story, host_reservation


def found(story: Story) -> list[str]:
    return [difference.description for difference in audit(story.runtime)]


def repair_drift(story: Story) -> list[Repair]:
    repaired = [repair(story.runtime, difference) for difference in audit(story.runtime)]
    story.run()
    return repaired


def start_lease(story: Story, hosts: int = 2) -> tuple[dict[str, Any], str, list[str]]:
    """Start a lease; return it with the name of its pool and its hosts."""
    lease = story.reserve(0, 120, reservations=[host_reservation(hosts, hosts)])
    story.run()
    pool = lease["reservations"][0]["id"]
    return lease, pool, list(story.cloud.pool_hosts(pool))


def test_a_sound_lease_has_no_differences_at_any_time(story: Story) -> None:
    assert found(story) == []
    story.reserve(10, 60)
    lease, _, _ = start_lease(story)
    assert found(story) == []
    story.at(10)
    assert found(story) == []
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    assert found(story) == []
    story.run()
    assert found(story) == []
    story.at(120)
    assert found(story) == []


def test_a_host_missing_from_its_pool_is_added(story: Story) -> None:
    lease, pool, (first, _) = start_lease(story)
    story.cloud.remove_host(pool, first)
    assert found(story) == [f"reservation {pool} of lease {lease['id']} lacks host {first}"]
    assert repair_drift(story) == [Repair.LEFT_TO_MANAGER]
    assert found(story) == []
    assert first in story.cloud.pool_hosts(pool)


def test_a_deleted_pool_is_created_again(story: Story) -> None:
    lease, pool, hosts = start_lease(story)
    for host in hosts:
        story.cloud.remove_host(pool, host)
    story.cloud.delete_pool(pool)
    assert found(story) == [f"reservation {pool} of lease {lease['id']} has no pool"]
    assert repair_drift(story) == [Repair.LEFT_TO_MANAGER]
    assert story.cloud.pool_hosts(pool) == hosts


@pytest.mark.parametrize("servers", [False, True])
def test_a_surplus_host_is_removed_unless_it_has_servers(story: Story, servers: bool) -> None:
    lease, pool, _ = start_lease(story, hosts=1)
    other = next(host for host in story.cloud.free_hosts())
    story.cloud.add_host(pool, other)
    if servers:
        story.cloud.boot_server(other, "s1")
    (what,) = found(story)
    reservation = f"reservation {pool} of lease {lease['id']}"
    assert what.startswith(f"{reservation} has host {other}, which is not its own")
    assert ("on which are servers s1" in what) == servers
    assert repair_drift(story) == [Repair.IMPOSSIBLE if servers else Repair.LEFT_TO_MANAGER]
    assert (found(story) == []) == (not servers)
    assert story.cloud.servers(other) == (["s1"] if servers else [])


@pytest.mark.parametrize("servers", [False, True])
def test_a_pool_without_a_lease_is_removed_unless_it_has_servers(
    story: Story, servers: bool
) -> None:
    story.cloud.ensure_pool("left over", "lab")
    story.cloud.add_host("left over", "sim-1")
    if servers:
        story.cloud.boot_server("sim-1", "s1")
    else:
        expected = "pool left over is of no running reservation, and has hosts sim-1"
        assert found(story) == [expected]
    assert repair_drift(story) == [Repair.IMPOSSIBLE if servers else Repair.DONE]
    assert (found(story) == []) == (not servers)
    assert ("sim-1" in story.cloud.free_hosts()) == (not servers)
    assert story.cloud.servers("sim-1") == (["s1"] if servers else [])


def test_the_state_of_free_hosts_is_reported_and_repaired_if_safe(story: Story) -> None:
    story.cloud.withdraw("sim-1")
    story.cloud.enroll("sim-9")
    story.cloud.boot_server("sim-2", "s1")
    reports = {
        "host sim-1 is registered and open to all projects": Repair.DONE,
        "host sim-2 is free, and has servers s1": Repair.IMPOSSIBLE,
        "host sim-9 is in the free pool and not registered": Repair.IMPOSSIBLE,
    }
    assert sorted(found(story)) == sorted(reports)
    differences = {
        drift.description: repair(story.runtime, drift) for drift in audit(story.runtime)
    }
    assert differences == reports
    assert "sim-9" in story.cloud.free_hosts()
    assert story.cloud.servers("sim-2") == ["s1"]


def test_a_failing_event_is_reported_instead_of_its_effects(story: Story) -> None:
    lease, _, _ = start_lease(story)
    break_cloud(story, "remove_host")
    story.at(121)
    assert story.lease(lease["id"])["status"] != "TERMINATED"
    (why,) = found(story)
    assert why.startswith(f"end_lease of lease {lease['id']} failed: ")
    assert why.endswith("remove_host is broken")


def test_a_lease_that_ended_after_the_audit_is_not_repaired(story: Story) -> None:
    lease, pool, (first, _) = start_lease(story)
    story.cloud.remove_host(pool, first)
    (difference,) = audit(story.runtime)
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    story.run()
    assert repair(story.runtime, difference) is Repair.LEFT_TO_MANAGER
    story.run()
    assert story.cloud.pools() == {}
