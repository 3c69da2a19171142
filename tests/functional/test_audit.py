"""The audit: leases against the cloud, and the repair of what is safe to repair."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climate import cli
from climate.manager.audit import audit, repair
from tests.functional.fragile import break_cloud
from tests.process import write_config
from tests.service import Story, host_reservation


def found(story: Story) -> list[str]:
    return [difference.description for difference in audit(story.runtime)]


def mend(story: Story) -> list[bool]:
    """Repair what can be, and let a manager do its part; return what was."""
    repaired = [repair(story.runtime, difference) for difference in audit(story.runtime)]
    story.run()
    return repaired


def running(story: Story, hosts: int = 2) -> tuple[dict[str, Any], str, list[str]]:
    """Start a lease; return it with the name of its pool and its hosts."""
    lease = story.reserve(0, 120, reservations=[host_reservation(hosts, hosts)])
    story.run()
    pool = lease["reservations"][0]["id"]
    return lease, pool, list(story.cloud.pool_hosts(pool))


def test_nothing_is_wrong_at_any_time_of_a_life(story: Story) -> None:
    assert found(story) == []
    story.reserve(10, 60)
    lease, _, _ = running(story)
    assert found(story) == []
    story.at(10)
    assert found(story) == []
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    assert found(story) == []
    story.run()
    assert found(story) == []
    story.at(120)
    assert found(story) == []


def test_a_host_that_somebody_took_out_of_the_pool_is_put_back(story: Story) -> None:
    lease, pool, (first, _) = running(story)
    story.cloud.remove_host(pool, first)
    assert found(story) == [f"reservation {pool} of lease {lease['id']} lacks host {first}"]
    assert mend(story) == [True]
    assert found(story) == []
    assert first in story.cloud.pool_hosts(pool)


def test_a_pool_that_somebody_deleted_is_made_again(story: Story) -> None:
    lease, pool, hosts = running(story)
    for host in hosts:
        story.cloud.remove_host(pool, host)
    story.cloud.delete_pool(pool)
    assert found(story) == [f"reservation {pool} of lease {lease['id']} has no pool"]
    assert mend(story) == [True]
    assert story.cloud.pool_hosts(pool) == hosts


def test_a_host_too_many_is_taken_back(story: Story) -> None:
    lease, pool, _ = running(story, hosts=1)
    other = next(host for host in story.cloud.free_hosts())
    story.cloud.add_host(pool, other)
    mine = f"reservation {pool} of lease {lease['id']}"
    assert found(story) == [f"{mine} has host {other}, which is not its own"]
    assert mend(story) == [True]
    assert found(story) == []


def test_a_host_too_many_with_servers_on_it_is_left_to_somebody_who_looks(story: Story) -> None:
    _, pool, _ = running(story, hosts=1)
    other = next(host for host in story.cloud.free_hosts())
    story.cloud.add_host(pool, other)
    story.cloud.boot_server(other, "s1")
    assert "on which are servers s1" in found(story)[0]
    assert mend(story) == [False]
    assert story.cloud.servers(other) == ["s1"]


def test_a_pool_of_no_lease_is_cleared_away(story: Story) -> None:
    story.cloud.ensure_pool("left over", "lab")
    story.cloud.add_host("left over", "sim-1")
    assert found(story) == ["pool left over is of no running reservation, and has hosts sim-1"]
    assert mend(story) == [True]
    assert found(story) == []
    assert "sim-1" in story.cloud.free_hosts()


def test_a_pool_of_no_lease_with_servers_is_left_to_somebody_who_looks(story: Story) -> None:
    story.cloud.ensure_pool("left over", "lab")
    story.cloud.add_host("left over", "sim-1")
    story.cloud.boot_server("sim-1", "s1")
    assert mend(story) == [False]
    assert story.cloud.servers("sim-1") == ["s1"]


def test_a_registered_host_that_is_open_to_everybody_is_closed(story: Story) -> None:
    story.cloud.withdraw("sim-1")
    assert found(story) == ["host sim-1 is registered and open to all projects"]
    assert mend(story) == [True]
    assert found(story) == []


def test_a_free_host_that_is_not_registered_is_named_but_not_touched(story: Story) -> None:
    story.cloud.enroll("sim-9")
    assert found(story) == ["host sim-9 is in the free pool and not registered"]
    assert mend(story) == [False]
    assert "sim-9" in story.cloud.free_hosts()


def test_servers_on_a_free_host_are_named_but_not_touched(story: Story) -> None:
    story.cloud.boot_server("sim-1", "s1")
    assert found(story) == ["host sim-1 is free, and has servers s1"]
    assert mend(story) == [False]
    assert story.cloud.servers("sim-1") == ["s1"]


def test_what_a_manager_is_at_is_no_difference(story: Story) -> None:
    lease, _, _ = running(story)
    break_cloud(story, "remove_host")
    story.at(121)
    assert story.lease(lease["id"])["status"] != "TERMINATED"
    (why,) = found(story)
    assert why.startswith(f"end_lease of lease {lease['id']} failed: ")
    assert why.endswith("remove_host is broken")


def test_a_lease_that_ended_since_is_not_handed_over_again(story: Story) -> None:
    lease, pool, (first, _) = running(story)
    story.cloud.remove_host(pool, first)
    (difference,) = audit(story.runtime)
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    story.run()
    assert repair(story.runtime, difference)
    story.run()
    assert story.cloud.pools() == {}


@pytest.fixture
def command(story: Story, tmp_path: Path) -> Callable[..., int]:
    """Return ``climate-manage`` for the story's service."""
    conf = write_config(
        tmp_path / "climate.conf",
        database__connection=story.conf.database.connection,
        simulated__journal=story.conf.simulated.journal,
    )
    return lambda *arguments: cli.manage([*arguments, "--config-file", str(conf)])


def test_the_command_prints_a_line_for_each_and_tells_by_its_exit_code(
    story: Story, command: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("audit") == 0
    story.cloud.withdraw("sim-1")
    story.cloud.boot_server("sim-2", "s1")
    assert command("audit") == 2
    assert capsys.readouterr().out.splitlines() == [
        "found: host sim-1 is registered and open to all projects",
        "found: host sim-2 is free, and has servers s1",
    ]
    assert command("audit", "--repair") == 2
    assert capsys.readouterr().out.splitlines()[0].startswith("repaired: host sim-1")
    assert command("audit") == 2
    assert len(capsys.readouterr().out.splitlines()) == 1
