"""Three managers at one database: the work is spread, and nothing is done twice or lost."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from climate.core.lease.schedule import END, START
from tests.faults.world import SOON, World, whole_hosts
from tests.support.process import eventually

LEASES = 30


@pytest.mark.nightly
def test_managers_come_and_go_and_every_lease_lives_its_life_once(
    database_url: str, tmp_path: Path, programs: ExitStack
) -> None:
    """One is killed, one is stopped, one is frozen for longer than claims last: none is missed."""
    options = {"manager__claim_timeout": SOON, "simulated__delay": 0.05}
    world = World(database_url, tmp_path, programs, **options)
    world.register(*(f"sim-{number}" for number in range(6, LEASES + 1)))
    killed, stopped, frozen = world.start_managers(3)
    leases = [world.reserve(whole_hosts(1), start=0.1 * n, seconds=30) for n in range(LEASES)]
    eventually(lambda: len(world.effects("add_host")) > 3, "some leases were started")
    killed.kill()
    assert stopped.stop() == 0
    world.start_managers(1)
    world.pause(frozen, 1.5 * SOON)
    for lease in leases:
        world.until(lease, "TERMINATED")
    for lease in leases:
        assert (world.told(lease, START), world.told(lease, END)) == (1, 1)
        [pool] = [r.id for r in lease.reservations]
        done = [one["effect"] for one in world.journal() if one.get("pool") == pool]
        assert done == ["ensure_pool", "add_host", "remove_host", "delete_pool"]
    assert sum(world.attempts().values()) > 0
    assert Counter(world.effects("add_host")) == Counter(world.effects("remove_host"))
