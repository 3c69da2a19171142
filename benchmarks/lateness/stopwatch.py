"""A plug-in without resources that records the start time of each lease, and leases of it."""

import logging
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa

from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.core.lease.lifecycle import LeaseStatus, ReservationStatus
from climate.core.lease.model import Event, Granted, Lease, Reservation
from climate.core.lease.schedule import plan
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine import ids
from climate.db.leases import leases
from climate.db.tables.bulk import insert
from climate.db.tables.leases import LeaseRow
from climate.db.tables.notifications import OutboxRow
from climate.manager.process.runtime import Runtime
from climate.plugins.base import DiscoveredResource, ResourcePlugin
from climate.plugins.request_fields import RequestSchema

_CHUNK = 500


class Stopwatch(ResourcePlugin):
    """Writes a line for each start to a file of this process in ``folder``.

    With ``looks`` it creates a file per lease, and so detects that a lease was started before.
    """

    resource_type: ClassVar[str] = "benchmark:stopwatch"
    schema: ClassVar[type[RequestSchema]] = RequestSchema
    native_properties: frozenset[str] = frozenset()

    def __init__(self, folder: Path, *, looks: bool) -> None:
        """Open the file of this process."""
        self.runtime: Runtime | None = None
        self._folder, self._looks = folder, looks
        self._told = os.open(folder / f"{os.getpid()}.late", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def requirement(self, params: Mapping[str, Any]) -> Requirement:  # noqa: ARG002
        """Return a requirement of no resources."""
        return Requirement(self.resource_type, 0, 0, Everything())

    def start(
        self,
        lease: Lease,
        reservation: Reservation,  # noqa: ARG002
        resources: Sequence[Granted],  # noqa: ARG002
    ) -> Mapping[str, Any]:
        """Record the lateness in seconds, unless it detects that the lease was started before."""
        assert self.runtime is not None
        late = (self.runtime.clock.now() - lease.window.start).total_seconds()
        if not (self._looks and self._is_done(lease)):
            os.write(self._told, f"{lease.id} {late}\n".encode())
        return {}

    def _is_done(self, lease: Lease) -> bool:
        try:
            os.close(os.open(self._folder / f"{lease.id}.done", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return True
        return False

    def end(self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]) -> None:
        """Do nothing."""

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        """Raise, as there are no resources."""
        raise NotImplementedError

    def inventory(self) -> Iterable[DiscoveredResource]:
        """Return no resources."""
        return ()


def make_runtime(
    url: str, folder: Path, claim_timeout: float = 30.0, *, looks: bool = False
) -> Runtime:
    """Return the runtime of a manager with only this plug-in."""
    conf = config_registry.new()
    config_registry.load(conf, "benchmarks.lateness", [])
    logging.getLogger("climate").setLevel(logging.ERROR)
    conf.set_override("connection", url, group="database")
    conf.set_override("claim_timeout", claim_timeout, group="manager")
    conf.set_override("project_leases", -1, group="limits")
    watch = Stopwatch(folder, looks=looks)
    made = replace(bootstrap.make_runtime(conf), plugins={watch.resource_type: watch})
    watch.runtime = made
    return made


def make_manager(runtime: Runtime) -> bootstrap.Manager:
    """Return a manager with the default options, which only logs notifications."""
    conf = config_registry.new()
    config_registry.load(conf, "benchmarks.lateness", [])
    logging.getLogger("climate").setLevel(logging.ERROR)
    return bootstrap.make_manager(conf, runtime)


def add_leases(runtime: Runtime, starts: Sequence[datetime]) -> list[str]:
    """Store leases, and update the statistics of the database; return the ids of the leases."""
    stored = [
        id_
        for at in range(0, len(starts), _CHUNK)
        for id_ in ask(runtime, starts[at : at + _CHUNK])
    ]
    if runtime.database.dialect == "postgresql":  # autovacuum would do so only within a minute
        with runtime.database.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("ANALYZE"))
    runtime.wakeup.hint()
    return stored


def ask(
    runtime: Runtime, starts: Sequence[datetime], project_id: str = "project"
) -> Collection[str]:
    """Store leases of one day without admission, as they need no resources; return their ids."""
    made = [_lease(start, project_id) for start in starts]
    tables = [
        (rows[0][0], [values for _, found in rows for values in found])
        for rows in zip(*map(leases.rows, made), strict=True)
    ]
    runtime.database.write(lambda session: insert(session, *tables))
    return [lease.id for lease in made]


def _lease(start: datetime, project_id: str) -> Lease:
    id_, window = ids.new_id(), Window(start, start + timedelta(days=1))
    reservation = Reservation(
        id=ids.new_id(),
        lease_id=id_,
        resource_type=Stopwatch.resource_type,
        status=ReservationStatus.PENDING,
        params={},
        created_at=start,
        updated_at=None,
    )
    return Lease(
        id=id_,
        name="lease",
        user_id="user",
        project_id=project_id,
        window=window,
        status=LeaseStatus.PENDING,
        degraded=False,
        notices=(),
        reservations=(reservation,),
        events=tuple(
            Event.planned(event, id_, ids.new_id(), start) for event in plan(window, (), start)
        ),
        created_at=start,
        updated_at=None,
    )


def late(folder: Path) -> dict[str, float]:
    """Return the lateness of each lease's start in seconds, by id."""
    return {id_: float(seconds) for id_, seconds in map(str.split, _lines(folder))}


def effects_twice(folder: Path) -> int:
    """Return how many leases were handed over more than once."""
    return sum(
        1 for count in Counter(line.split()[0] for line in _lines(folder)).values() if count > 1
    )


def forget(runtime: Runtime) -> None:
    """Remove all rows that the benchmark stored."""
    with runtime.database.engine.begin() as connection:
        for table in (LeaseRow, OutboxRow):
            connection.execute(sa.delete(table))


def _lines(folder: Path) -> list[str]:
    return [line for path in folder.glob("*.late") for line in path.read_text().splitlines()]
