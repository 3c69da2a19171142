"""Waiting for what is new: hints wake those who follow the log, and there is a bound to them.

Whoever waits holds no connection to the database. One thread looks for all of them, when a hint
comes and, as hints may be lost, every poll interval; while nobody waits it sleeps.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from climate.core.errors import TooManyFollowers
from climate.db import outbox
from climate.db.engine import Database
from climate.wakeup import Wakeup

LOG = logging.getLogger(__name__)


class Latest:
    """The last number that was given, as far as this process knows, and who waits for the next."""

    def __init__(self, database: Database, news: Wakeup, poll_interval: float, places: int) -> None:
        """Let up to ``places`` follow at once; nothing runs before the first of them waits."""
        self._database = database
        self._news = news
        self._poll_interval = poll_interval
        self._places = places
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._seq = 0
        self._followers = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def is_closed(self) -> bool:
        """Tell whether the process is about to end: nobody should wait any more."""
        return self._is_closed

    def take_place(self) -> Callable[[], None]:
        """Take one of the places; return how to leave it (once or more often).

        Raises TooManyFollowers.
        """
        with self._changed:
            if self._followers >= self._places:
                raise TooManyFollowers(
                    f"{self._places} others wait for something at this process, which is all"
                    " that it has room for: try again later, or ask without waiting"
                )
            self._followers += 1
        left = threading.Event()

        def leave() -> None:
            with self._changed:
                if not left.is_set():
                    left.set()
                    self._followers -= 1

        return leave

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold a place within the block; raises TooManyFollowers."""
        leave = self.take_place()
        try:
            yield
        finally:
            leave()

    def wait(self, seen: int, seconds: float) -> bool:
        """Wait for a number beyond ``seen``; False if there is none within so many seconds."""
        with self._changed:
            if self._thread is None and not self._is_closed:
                self._news.subscribe(self._wake.set)
                self._thread = threading.Thread(target=self._look, name="latest", daemon=True)
                self._thread.start()
            self._changed.notify_all()  # the thread looks while somebody follows
            self._changed.wait_for(lambda: self._is_closed or self._seq > seen, seconds)
            return self._seq > seen and not self._is_closed

    def close(self) -> None:
        """Have all who wait give up at once."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(self._poll_interval)

    def _look(self) -> None:
        while not self._is_closed:
            try:
                with self._database.read() as session:
                    seq = outbox.last_seq(session)
            except Exception as error:  # noqa: BLE001 - it is asked again
                LOG.warning("those who wait for notifications wait on: %s", error)
                seq = 0
            with self._changed:
                self._seq = max(self._seq, seq)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closed or self._followers > 0)
            self._wake.wait(self._poll_interval)
            self._wake.clear()
