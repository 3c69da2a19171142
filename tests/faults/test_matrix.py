"""Each fault at each moment: every lease lives its life once, with all notifications."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import evidence, results
from tests.faults.cell import LEASES, Cell
from tests.faults.conftest import Databases
from tests.faults.injection import FAULTS, Fault, step
from tests.faults.private import RabbitMQ
from tests.faults.stage import Moment

# What is tried with each change: every fault once, every moment, and both servers.
_SHORT = {
    "mariadb-broker-unreachable-relay",
    "mariadb-clock-forward-end",
    "mariadb-database-restart-heads-up",
    "mariadb-kill-before-end",
    "mariadb-slow-plugin-start",
    "postgresql-broker-restart-relay",
    "postgresql-clock-back-before-end",
    "postgresql-database-unreachable-end",
    "postgresql-failing-plugin-end",
    "postgresql-pause-start",
    "sqlite-disk-full-start",
}


def cells() -> Iterator[object]:
    for fault in FAULTS:
        for backend in fault.databases:
            for moment in Moment:
                name = f"{backend}-{fault.name}-{moment}"
                marks = () if name in _SHORT else (pytest.mark.nightly,)
                yield pytest.param(backend, fault, moment, id=name, marks=marks)


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("backend", "fault", "moment"), list(cells()))
def test_every_lease_lives_its_life_once(
    backend: str,
    fault: Fault,
    moment: Moment,
    databases: Databases,
    broker: RabbitMQ,
    tmp_path: Path,
) -> None:
    with (
        results.noted(backend, fault.name, moment) as note,
        Cell(tmp_path, databases.on(backend), broker, moment) as cell,
    ):
        note.gap = cell.pace.gap(LEASES)
        cell.live(fault.lasts, step(fault, moment))
        note.held = cell.stage.held().total()
        fault.inject(cell)
        cell.wait_until_over()
        note.outcome = evidence.check(cell.end())
