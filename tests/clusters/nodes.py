"""A service for each node of a cluster, and what its users have been promised."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from climate.cmd import main
from climate.db.engine.database import Database
from climate.db.tables.leases import LeaseRow
from climate.db.tables.notifications import OutboxRow
from tests.clusters.testbed import Server
from tests.support.process import Program, Service, free_port, write_config

# Enough for the leases that start during ten promotions.
HOSTS = 250


class Node:
    """``climate-standalone`` (API and manager) on one server of a cluster."""

    def __init__(self, server: Server, home: Path, **options: object) -> None:
        self.service = Service(free_port())
        self.home = home / f"service-{self.service.port}"
        self.home.mkdir()
        given: dict[str, object] = {"database__connection": server.url("climate"), **options}
        self._conf = write_config(
            self.home / "climate.conf",
            simulated__journal=home / "cloud",
            simulated__hosts=HOSTS,
            manager__poll_interval=1,
            manager__claim_timeout=10,
            limits__enabled=True,
            **given,
        )
        self.url = str(given["database__connection"])
        self.program: Program | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.program is not None:
            self.program.kill()

    def start(self) -> None:
        """Start the service and wait until it answers."""
        arguments = (f"--config-file={self._conf}", "--port", str(self.service.port), "--empty")
        self.program = Program(self.home, "climate-standalone", *arguments)
        self.program.says("climate is ready at")

    def manage(self, *arguments: str) -> None:
        """Run ``climate-manage``, which must succeed."""
        assert main.manage([*arguments, f"--config-file={self._conf}"]) == 0

    def upgrade(self) -> None:
        """Upgrade the schema through this node."""
        assert main.db_manage(["upgrade", f"--config-file={self._conf}"]) == 0

    def register_hosts(self, count: int = 60) -> None:
        """Register hosts of the simulated cloud."""
        for number in range(1, count + 1):
            self.service.ok("POST", "/v1/os-hosts", {"name": f"sim-{number}"})


def lateness(node: Node, lease_ids: Collection[str]) -> list[float]:
    """Return how many seconds after its creation each lease, which starts at once, was active.

    Asserts that each was started once: the start and its notification commit together.
    """
    database = Database(node.url)
    started = (
        sa.select(LeaseRow.id, LeaseRow.created_at, OutboxRow.created_at.label("started_at"))
        .join(OutboxRow, OutboxRow.lease_id == LeaseRow.id)
        .where(LeaseRow.id.in_(lease_ids), OutboxRow.event_type == "lease.event.start_lease")
    )
    with database.read() as session:
        found = session.execute(started).all()
    database.dispose()
    assert sorted(row.id for row in found) == sorted(lease_ids)
    return [(row.started_at - row.created_at).total_seconds() for row in found]


def rows(server: Server, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of a table of a server."""
    return sorted(map(tuple, server.execute(f"SELECT * FROM climate.{table}")), key=repr)
