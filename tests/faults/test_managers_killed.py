"""Managers that die, stop or freeze during a start: another one completes it."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from climate.core.lease.schedule import START
from climate.manager.leases.read import get_lease
from tests.faults.world import HOSTS, NEVER, SOON, World

pytestmark = pytest.mark.faults

NIGHTLY = pytest.mark.nightly(reason="PostgreSQL and the matrix of faults cover the same in CI")


@pytest.fixture
def world(database_url: str, tmp_path: Path, programs: ExitStack) -> World:
    """Return a world with short claims, on each kind of database."""
    return World(database_url, tmp_path, programs, manager__claim_timeout=SOON)


def test_another_manager_finishes_the_start_of_a_killed_one(world: World) -> None:
    managers = world.start_managers(2)
    lease = world.reserve()
    world.until_half("add_host")
    world.claim_owner(managers, lease, START).kill()
    assert world.effects("add_host") != HOSTS
    world.until(lease, "ACTIVE")
    assert world.effects("add_host") == HOSTS
    assert world.count_notifications(lease, START) == 1


@NIGHTLY
def test_a_stopping_manager_finishes_its_start(
    database_url: str, tmp_path: Path, programs: ExitStack
) -> None:
    world = World(database_url, tmp_path, programs, manager__claim_timeout=NEVER)
    [manager] = world.start_managers(1)
    lease = world.reserve()
    world.until_half("add_host")
    assert manager.stop() == 0
    assert get_lease(world.runtime, lease.id).status == "ACTIVE"
    assert world.effects("add_host") == HOSTS
    assert world.count_notifications(lease, START) == 1


@NIGHTLY
def test_a_manager_that_may_not_finish_releases_its_start(
    database_url: str, tmp_path: Path, programs: ExitStack
) -> None:
    options = {"manager__claim_timeout": NEVER, "manager__shutdown_timeout": 0}
    world = World(database_url, tmp_path, programs, **options)
    managers = world.start_managers(2)
    lease = world.reserve()
    world.until_half("add_host")
    stopping = world.claim_owner(managers, lease, START)
    assert stopping.stop() == 0
    assert "released them for other managers" in stopping.errors
    world.until(lease, "ACTIVE")
    assert world.effects("add_host") == HOSTS
    assert world.count_notifications(lease, START) == 1
