"""Hints that there is work: loss-tolerant, as the database is the truth and a poll is the net.

``hint`` is called after a commit; whoever subscribed is called back soon, in another thread. In
one process that is a direct call; across processes PostgreSQL's NOTIFY carries it. Elsewhere
other processes find the work at their next poll.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol

from climate.db.engine.database import Database

LOG = logging.getLogger(__name__)
#: Something is due, or may be soon; notifications were numbered.
WORK, NEWS = "climate_work", "climate_news"
_RECONNECT = 5.0
# Hints of so many seconds are told as one: each costs the server a commit.
_PAUSE = 0.02


class Wakeup(Protocol):
    """Carries hints from those who wrote work to those who do it."""

    def hint(self) -> None:
        """Say that something was written that may be due. Never raises."""

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` (quick, thread-safe) called at each hint."""

    def close(self) -> None:
        """Stop calling back."""


class LocalWakeup:
    """Hints within one process."""

    def __init__(self) -> None:
        """Start without subscribers."""
        self._callbacks: list[Callable[[], None]] = []

    def hint(self) -> None:
        """Call every subscriber."""
        for callback in self._callbacks:
            callback()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Add a subscriber."""
        self._callbacks.append(callback)

    def close(self) -> None:
        """Forget the subscribers."""
        self._callbacks.clear()


class PostgresWakeup(LocalWakeup):
    """Hints between processes by LISTEN/NOTIFY, besides those within the process."""

    def __init__(self, database: Database, channel: str = WORK) -> None:
        """Prepare; the listening connection is opened by the first subscriber."""
        super().__init__()
        self._channel = channel
        self._engine = database.engine.execution_options(isolation_level="AUTOCOMMIT")
        self._stopping = threading.Event()
        self._hinted = threading.Event()
        self._starting = threading.Lock()
        self._listener: threading.Thread | None = None
        self._teller: threading.Thread | None = None

    def hint(self) -> None:
        """Tell this process directly, and have the others told by NOTIFY, after the commit.

        NOTIFY inside the transaction would take a lock that serialises all commits; and whoever
        waits for an answer need not wait until others are told.
        """
        super().hint()
        self._hinted.set()
        with self._starting:
            if self._teller is None:
                self._teller = threading.Thread(target=self._tell, name="hints", daemon=True)
                self._teller.start()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Add a subscriber and listen, if nobody did yet."""
        super().subscribe(callback)
        if self._listener is None:
            self._listener = threading.Thread(target=self._listen, name="wakeup", daemon=True)
            self._listener.start()

    def close(self) -> None:
        """Stop listening, when the others were told."""
        super().close()
        self._stopping.set()
        if self._teller is not None:
            self._hinted.set()
            self._teller.join(_RECONNECT)

    def _tell(self) -> None:
        while True:
            self._hinted.wait()
            self._hinted.clear()
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql(f"NOTIFY {self._channel}")
            except Exception as error:  # noqa: BLE001 - a lost hint only costs time
                LOG.warning("wake-up hint not sent, the next poll will find the work: %s", error)
            if self._stopping.wait(_PAUSE) and not self._hinted.is_set():
                return

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen_once()
            except Exception as error:  # noqa: BLE001 - whatever broke it, listen again
                LOG.warning("wake-up channel lost, polling until it is back: %s", error)
                self._stopping.wait(_RECONNECT)

    def _listen_once(self) -> None:
        with self._engine.connect() as connection:
            connection.detach()  # a listening connection must not go back to the pool
            connection.exec_driver_sql(f"LISTEN {self._channel}")
            raw: Any = connection.connection.dbapi_connection
            super().hint()  # whatever was missed while nobody listened
            while not self._stopping.is_set():
                for _notify in raw.notifies(timeout=1.0, stop_after=1):
                    super().hint()


def for_database(database: Database, channel: str = WORK) -> Wakeup:
    """Return the best wake-up that ``database`` offers for one kind of hints."""
    if database.dialect == "postgresql":
        return PostgresWakeup(database, channel)
    return LocalWakeup()
