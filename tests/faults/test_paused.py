"""A manager that is paused for longer than its claims repeats nothing when it continues."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from climate.core.lease.model import Lease
from climate.core.lease.schedule import START
from climate.manager.admission.requirements import ReservationRequest
from tests.faults.world import SOON, World, instances, whole_hosts
from tests.support.process import eventually


@pytest.mark.parametrize(
    ("asked", "made", "removed"),
    [
        (whole_hosts, "ensure_pool", "delete_pool"),
        pytest.param(
            instances,
            "open_slots",
            "delete_slots",
            marks=pytest.mark.nightly("the same fence, and 25 seconds"),
        ),
    ],
)
def test_a_manager_resumed_after_the_end_changes_nothing(
    database_url: str,
    tmp_path: Path,
    programs: ExitStack,
    asked: Callable[[int], ReservationRequest],
    made: str,
    removed: str,
) -> None:
    """Paused before its first change, resumed after the end: nothing would undo a change."""
    options = {"manager__claim_timeout": SOON, "simulated__delay": 2.0}
    world = World(database_url, tmp_path, programs, **options)
    managers = world.start_managers(2)
    lease: Lease = world.reserve(asked(1))
    world.until(lease, "STARTING")
    asleep = world.claim_owner(managers, lease, START)
    world.freeze(asleep)
    assert not world.journal(made), "too late to interfere"
    world.until(lease, "ACTIVE")
    world.end(lease)
    world.until(lease, "TERMINATED")
    asleep.signal(signal.SIGCONT)
    eventually(
        lambda: "nothing was changed" in asleep.errors or len(world.journal(made)) > 1,
        "the manager that woke up went on",
    )
    assert [effect["effect"] for effect in world.journal(made, removed)] == [made, removed]
    eventually(world.is_quiet, "all is done")
    assert world.count_notifications(lease, START) == 1
