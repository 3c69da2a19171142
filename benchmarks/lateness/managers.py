"""The processes that start leases: managers of climate, and the least that such a process does."""

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from benchmarks.lateness import stopwatch
from climate.cmd import launch
from climate.core.lease.lifecycle import EventStatus, LeaseStatus, ReservationStatus
from climate.core.lease.schedule import START
from climate.core.notifications import event_type
from climate.db.engine.types import any_of
from climate.db.events.ordering import IN_PROGRESS, due
from climate.db.notifications import outbox
from climate.db.tables.leases import EVENTS, LEASES, RESERVATIONS
from climate.manager.events.dispatcher import Dispatcher, owner_name
from climate.manager.events.queue import LARGEST_BATCH

_POLL = 10.0
# The file whose existence lets the managers begin, and the seconds until they look for it again.
GO = "go"
_GO_PAUSE = 0.01
# Seconds until the floor looks again for due events.
_PAUSE = 0.5


def as_shipped(url: str, folder: Path, options: dict[str, Any]) -> None:
    """Run a manager until this process is killed."""
    runtime = stopwatch.make_runtime(url, folder, **options)
    launch.settle()
    manager = stopwatch.make_manager(runtime)
    _wait_for_go(folder)
    manager.start()
    while True:
        time.sleep(60)


def by_polling(url: str, folder: Path, _options: dict[str, Any]) -> None:
    """Poll every 10 s, until this process is killed."""
    runtime = stopwatch.make_runtime(url, folder)
    dispatcher = Dispatcher(runtime, owner_name())
    _wait_for_go(folder)
    while True:
        time.sleep(_POLL)
        dispatcher.run_due()


def barely(url: str, folder: Path, _options: dict[str, Any]) -> None:
    """Process events with the least work that a queue needs, until this process is killed."""
    database = stopwatch.make_runtime(url, folder).database
    _wait_for_go(folder)
    while True:
        if claimed := database.write(_claim_some):
            database.write(partial(_finish_some, claimed=claimed))
        else:
            time.sleep(_PAUSE)


def _claim_some(session: Session) -> Sequence[Any]:
    of, now = EVENTS.c, datetime.now(UTC)
    first = sa.select(of.id, of.lease_id).where(*due(sa.literal(now, of.run_at.type)))
    first = first.order_by(of.run_at, of.rank, of.id).limit(LARGEST_BATCH)
    rows = session.execute(first.with_for_update(skip_locked=True)).all()
    claimed = {"status": IN_PROGRESS, "owner": "me", "attempt": 1, "claimed_until": now}
    mine = any_of(of.id, [row.id for row in rows])
    session.execute(sa.update(EVENTS).where(mine).values(claimed))
    return rows


def _finish_some(session: Session, claimed: Sequence[Any]) -> None:
    leases, now = [row.lease_id for row in claimed], datetime.now(UTC)
    done = {"status": EventStatus.DONE.value, "owner": None, "claimed_until": None}
    for table, column, values in (
        (EVENTS, EVENTS.c.id, done),
        (LEASES, LEASES.c.id, {"status": LeaseStatus.ACTIVE.value}),
        (RESERVATIONS, RESERVATIONS.c.lease_id, {"status": ReservationStatus.ACTIVE.value}),
    ):
        mine = [row.id for row in claimed] if table is EVENTS else leases
        session.execute(sa.update(table).where(any_of(column, mine)).values(values))
    started = event_type.of_event(START)
    told = ((started, {"lease_id": id_, "project_id": ""}) for id_ in leases)
    outbox.write_all(session, told, now)


def _wait_for_go(folder: Path) -> None:
    """Wait until all managers are ready, so that none begins before the time is taken."""
    (folder / f"{os.getpid()}.ready").touch()
    while not (folder / GO).exists():
        time.sleep(_GO_PAUSE)
