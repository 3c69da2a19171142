"""The processor time of processes on this machine, from Linux's ``/proc``.

A meter sums the time of the same kind of processes, of which some may begin between the two
readings. Processes that end before the second reading are not counted.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import sqlalchemy as sa

from climate.db.engine.database import Database

_TICKS = os.sysconf("SC_CLK_TCK")
_BACKENDS = sa.text("""
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
    AND pid <> pg_backend_pid()
""")


class Meter:
    """The seconds of processor time that processes use between ``begin`` and ``end``."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        """Measure the processes whose ids ``pids`` returns at the time of each reading."""
        self._pids = pids
        self._before: dict[int, float] = {}
        self.seconds: float | None = None

    def begin(self) -> None:
        """Read the time that the processes have used so far."""
        self._before = self._read()

    def end(self) -> None:
        """Set ``seconds``; None if there are no such processes on this machine."""
        after = self._read()
        used = [seconds - self._before.get(pid, 0.0) for pid, seconds in after.items()]
        self.seconds = sum(used) if used else None

    def _read(self) -> dict[int, float]:
        return {pid: used for pid in self._pids() if (used := seconds_of(pid)) is not None}


def backends(database: Database) -> Callable[[], list[int]]:
    """Return a function with the processes that serve the database's other connections.

    The function returns no process if the server is not PostgreSQL on this machine.
    """

    def pids() -> list[int]:
        if database.dialect != "postgresql":
            return []
        with database.read() as session:
            return [pid for pid in session.scalars(_BACKENDS) if _name(pid) == "postgres"]

    return pids


def seconds_of(pid: int) -> float | None:
    """Return the processor time of all threads of a process, None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return parse(stat, _TICKS)


def parse(stat: str, ticks_per_second: int) -> float:
    """Return the seconds in user and system mode; the name in ``stat`` may contain spaces."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / ticks_per_second


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
