"""Heartbeats of manager processes, and a trial write to a database that may be full.

A heartbeat is a time that a running manager stores again and again, with the state of its loops. A
loop is a task that the manager repeats at an interval. If a manager has stored no heartbeat for the
time ``FRESH``, climate treats it as dead. After the time ``KEPT``, climate removes its row.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.tables.bulk import record
from climate.db.tables.processes import ManagerRow

FRESH = timedelta(seconds=30)
KEPT = timedelta(days=1)
# A loop has stalled if its last run without an error is older than this many intervals, and FRESH.
_MISSED_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The last heartbeat of a manager process: its time ``beat_at``, and the state of its loops.

    A loop is a task that the manager repeats. ``loops`` maps the name of each loop to two numbers
    of seconds: ``age``, the time since its last run without an error, and ``interval``, the time
    between two runs.
    """

    id: str
    started_at: datetime
    beat_at: datetime
    loops: Mapping[str, Mapping[str, float]]

    def is_alive(self, now: datetime) -> bool:
        """Return whether the manager is alive at ``now``: its last heartbeat is recent."""
        return self.beat_at >= now - FRESH

    def stalled(self, now: datetime) -> dict[str, float]:
        """Return the loops of the manager that have stalled, by name.

        Each value is the age of the loop: the seconds since its last run without an error. A loop
        has stalled if its age is more than ``FRESH`` and more than five of its intervals.
        """
        since = (now - self.beat_at).total_seconds()
        ages = {name: since + loop["age"] for name, loop in self.loops.items()}
        limits = {
            name: max(FRESH.total_seconds(), _MISSED_RUNS * loop["interval"])
            for name, loop in self.loops.items()
        }
        return {name: age for name, age in ages.items() if age > limits[name]}


def beat(session: Session, manager_id: str, now: datetime, loops: Mapping[str, Any]) -> None:
    """Store ``now`` as the heartbeat of a manager, with the state of its loops.

    ``loops`` is described in ``Heartbeat``. Also remove the rows of managers that died long ago.
    """
    values = {"beat_at": now, "loops": dict(loops)}
    is_mine = ManagerRow.id == manager_id
    updated = session.execute(sa.update(ManagerRow).where(is_mine).values(**values))
    if not updated.rowcount:  # type: ignore[attr-defined]
        session.execute(sa.insert(ManagerRow).values(id=manager_id, started_at=now, **values))
    old = session.scalars(sa.select(ManagerRow.id).where(ManagerRow.beat_at < now - KEPT)).all()
    if old:
        session.execute(sa.delete(ManagerRow).where(ManagerRow.id.in_(old)))


def remove(session: Session, manager_id: str) -> None:
    """Remove the row of a manager that stops."""
    session.execute(sa.delete(ManagerRow).where(ManagerRow.id == manager_id))


def alive(session: Session, now: datetime) -> list[Heartbeat]:
    """Return the last heartbeats of the managers that are alive, sorted by id."""
    query = sa.select(ManagerRow).where(ManagerRow.beat_at >= now - FRESH).order_by(ManagerRow.id)
    return [record(Heartbeat, row) for row in session.scalars(query)]


def known(session: Session) -> list[Heartbeat]:
    """Return the last heartbeats of all stored managers, dead ones too, sorted by id."""
    query = sa.select(ManagerRow).order_by(ManagerRow.id)
    return [record(Heartbeat, row) for row in session.scalars(query)]


def last_beat(session: Session) -> datetime | None:
    """Return the time of the latest heartbeat of any manager; None if no manager is stored."""
    return session.scalar(sa.select(sa.func.max(ManagerRow.beat_at, type_=ManagerRow.beat_at.type)))


def try_write(session: Session, now: datetime) -> None:
    """Insert a row and delete it again, to find out whether the database accepts writes.

    A full or read-only database raises an error.
    """
    id_ = f"trial:{uuid.uuid4()}"
    trial = {"id": id_, "started_at": now, "beat_at": now, "loops": {}}
    session.execute(sa.insert(ManagerRow).values(**trial))
    remove(session, id_)
