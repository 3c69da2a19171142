"""Every fault at every moment: each lease lives its life once, and the world is told of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import evidence, results
from tests.faults.cell import PACE, Cell
from tests.faults.conftest import Grounds
from tests.faults.injection import FAULTS, Fault, step
from tests.faults.private import RabbitMQ
from tests.faults.stage import Moment

# What is tried with each change: every fault, every moment, and both servers with most of either.
_QUICK = {
    "mariadb-clock-forward-start",
    "mariadb-database-restart-heads-up",
    "mariadb-database-unreachable-end",
    "mariadb-failing-plugin-end",
    "mariadb-kill-before-end",
    "mariadb-kill-relay",
    "mariadb-pause-end",
    "mariadb-slow-plugin-start",
    "postgresql-broker-restart-relay",
    "postgresql-broker-unreachable-relay",
    "postgresql-clock-back-before-end",
    "postgresql-clock-forward-heads-up",
    "postgresql-database-restart-end",
    "postgresql-database-unreachable-start",
    "postgresql-kill-start",
    "postgresql-pause-start",
    "postgresql-slow-plugin-end",
    "sqlite-disk-full-start",
}


def cells() -> Iterator[object]:
    """Return all, by name."""
    for fault in FAULTS:
        for backend in fault.databases:
            for moment in Moment:
                name = f"{backend}-{fault.name}-{moment}"
                marks = () if name in _QUICK else (pytest.mark.slow,)
                yield pytest.param(backend, fault, moment, id=name, marks=marks)


@pytest.mark.faults
@pytest.mark.timeout(600 * PACE)
@pytest.mark.parametrize(("backend", "fault", "moment"), list(cells()))
def test_every_lease_lives_its_life_once(
    backend: str, fault: Fault, moment: Moment, grounds: Grounds, broker: RabbitMQ, tmp_path: Path
) -> None:
    with (
        results.noted(backend, fault.name, moment) as note,
        Cell(tmp_path, grounds.on(backend), broker, moment) as cell,
    ):
        cell.live(fault.lasts, step(fault, moment))
        note.held = cell.stage.held().total()
        fault.inject(cell)
        cell.until_over()
        note.outcome = evidence.check(cell.end())
