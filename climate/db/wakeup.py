"""Wake-up hints: a process tells others that new work is stored, so that they do it at once.

A hint has no content. The receiver reads the work from the database. A lost hint only costs time,
because every subscriber also polls. Processes call ``hint`` after a commit. Subscribers in the same
process are called directly. Subscribers in other processes are called through PostgreSQL's NOTIFY.
With another database, other processes find the work at their next poll.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from climate.db.engine.database import Database
from climate.db.engine.driver_statement import convert

LOG = logging.getLogger(__name__)
#: Channels. WORK: events may be due. NEWS: notifications got a public sequence number.
WORK, NEWS = "climate_work", "climate_news"
_RECONNECT = 5.0
# Hints within so many seconds are sent as one NOTIFY: each costs the server a commit.
_PAUSE = 0.05
# A crash of the server may lose a hint, so its commit need not wait for the disk.
_NOTIFY = convert(
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%(channel)s, '')"
)


class Wakeup:
    """Wake-up hints within one process, from threads that store work to threads that do it."""

    def __init__(self) -> None:
        """Start without subscribers."""
        self._callbacks: list[Callable[[], None]] = []

    def hint(self) -> None:
        """Call every subscriber, because new work is committed. Never raises."""
        for callback in self._callbacks:
            callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` at each hint from now on.

        ``callback`` must be quick and thread-safe, and must not raise.
        """
        self._callbacks.append(callback)

    def close(self) -> None:
        """Remove the subscribers."""
        self._callbacks.clear()


class PostgresWakeup(Wakeup):
    """Wake-up hints to this process, and through PostgreSQL's LISTEN and NOTIFY to others."""

    def __init__(self, database: Database, channel: str = WORK) -> None:
        """Store the channel, without a connection yet.

        The first call of ``subscribe`` starts a thread that listens to other processes. The first
        call of ``hint`` starts a thread that sends to them. Each thread opens its own connection.
        """
        super().__init__()
        self._database, self._channel = database, channel
        self._engine = database.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._stopping = threading.Event()
        self._hinted = threading.Event()
        self._starting = threading.Lock()
        self._listener: threading.Thread | None = None
        self._sender: threading.Thread | None = None

    def hint(self) -> None:
        """Call the subscribers of this process, and let a thread send NOTIFY to other processes.

        The caller does not wait for this thread. NOTIFY is not sent in the caller's transaction,
        because it would serialise all commits.
        """
        super().hint()
        self._hinted.set()
        with self._starting:
            self._sender = self._sender or _started(self._send, "hints")

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` at each hint from now on, whether from this process or from another.

        The first call starts the thread that listens to other processes.
        """
        super().subscribe(callback)
        with self._starting:
            self._listener = self._listener or _started(self._listen, "wakeup")

    def close(self) -> None:
        """Remove the subscribers, send pending hints, and stop the threads."""
        super().close()
        self._stopping.set()
        if self._sender is not None:
            self._hinted.set()
            self._sender.join(_RECONNECT)

    def _send(self) -> None:
        """Send one NOTIFY for all hints since the previous one; runs in a thread."""
        while True:
            self._hinted.wait()
            self._hinted.clear()
            try:
                self._database.query_at_once(_NOTIFY, {"channel": self._channel})
            except Exception as error:  # noqa: BLE001 - a lost hint only costs time
                LOG.warning(
                    "cannot notify managers of new work, they find it with their next query: %s",
                    error,
                )
            if self._stopping.wait(_PAUSE) and not self._hinted.is_set():
                return

    def _listen(self) -> None:
        """Listen to hints of other processes; connect again after an error; runs in a thread."""
        while not self._stopping.is_set():
            try:
                self._listen_once()
            except Exception as error:  # noqa: BLE001 - listen again after any error
                LOG.warning(
                    "cannot listen for new work, querying for it until the connection is back: %s",
                    error,
                )
                self._stopping.wait(_RECONNECT)

    def _listen_once(self) -> None:
        """Call the subscribers at each NOTIFY from any process, until ``close`` or an error."""
        with self._engine.connect() as connection:
            connection.detach()  # a listening connection must not return to the pool
            connection.exec_driver_sql(f"LISTEN {self._channel}")
            raw: Any = connection.connection.dbapi_connection
            super().hint()  # for hints that were sent before LISTEN
            while not self._stopping.is_set():
                for _notify in raw.notifies(timeout=1.0, stop_after=1):
                    super().hint()


def _started(target: Callable[[], None], name: str) -> threading.Thread | None:
    """Return a thread that runs ``target``; None if the process has too many threads."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        LOG.warning("cannot exchange hints of new work, queries find it later: %s", error)
        return None
    return thread


def for_database(database: Database, channel: str = WORK) -> Wakeup:
    """Return the object that sends and receives wake-up hints on ``channel``.

    On PostgreSQL, the hints reach all processes. On other databases, they reach only this process.
    """
    return PostgresWakeup(database, channel) if database.dialect == "postgresql" else Wakeup()
