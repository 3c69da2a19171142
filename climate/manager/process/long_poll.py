"""Long polling: requests wait for newer notifications, a limited number at a time.

A waiting request holds no database connection. One thread queries the database for all waiting
requests. It does so at each hint (a message that there are new notifications), and after every poll
interval, because hints may be lost. The thread sleeps while no request waits.

Each waiting request occupies a place. The requests of one project may occupy at most a quarter of
the places, so no project can occupy all places. Another quarter is reserved for provisioners, the
programs that power hosts on and off.
"""

import logging
import threading
from collections import Counter
from contextlib import ExitStack
from functools import partial

from climate.core.errors import TooManyFollowers
from climate.db.engine.database import Database
from climate.db.notifications import outbox
from climate.db.wakeup import Wakeup

LOG = logging.getLogger(__name__)


class LongPoll:
    """The requests of this process that wait for new notifications. Thread-safe."""

    def __init__(self, database: Database, news: Wakeup, poll_interval: float, places: int) -> None:
        """Allow at most ``places`` waiting requests; the first call of ``wait`` starts the thread.

        ``news`` reports the hints to this process. ``poll_interval`` is in seconds.
        """
        self._database, self._news = database, news
        self._poll_interval, self._places = poll_interval, places
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._seq = 0
        self._share, self._kept = max(1, places // 4), places // 4
        # Waiting requests by project; None: of provisioners.
        self._followers: Counter[str | None] = Counter()
        self._is_closed = self._is_subscribed = False
        self._thread: threading.Thread | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the process is stopping, so that no request should wait."""
        return self._is_closed

    def place(self, project_id: str | None) -> ExitStack:
        """Occupy a place for a waiting request until the caller closes the returned context.

        The caller may close the context several times. ``project_id`` is the requester's project
        (None: a provisioner). Raises TooManyFollowers if too many requests are waiting already.
        """
        with self._changed:
            self._check_place(project_id)
            self._followers[project_id] += 1
        context = ExitStack()
        context.callback(partial(self._leave, project_id))
        return context

    def _check_place(self, project_id: str | None) -> None:
        total = self._followers.total()
        limits = [(total, self._places, "requests")]
        if project_id is not None:
            of_projects = total - self._followers[None]
            limits += [
                (of_projects, self._places - self._kept, "requests of projects"),
                (self._followers[project_id], self._share, f"requests of project {project_id}"),
            ]
        for count, most, which in limits:
            if count >= most:
                raise TooManyFollowers(
                    f"{count} {which} are waiting at this process, the maximum: try again later, or"
                    " send the request without waiting"
                )

    def _leave(self, project_id: str | None) -> None:
        with self._changed:
            self._followers[project_id] -= 1
            self._followers += Counter()  # forgets projects without a request

    def wait(self, seen: int, seconds: float) -> bool:
        """Wait until there is a notification with a number above ``seen``; return True.

        Returns False after ``seconds``, or as soon as ``close`` is called. The caller must have
        called ``place`` before, because the thread queries the database only while a request
        occupies a place. Raises TooManyFollowers if the process has too many threads.
        """
        with self._changed:
            if self._thread is None and not self._is_closed:
                if not self._is_subscribed:  # before the thread's first query: no hint is lost
                    self._news.subscribe(self._wake.set)
                    self._is_subscribed = True
                self._thread = self._started()
            self._changed.notify_all()  # the thread queries while requests wait
            self._changed.wait_for(lambda: self._is_closed or self._seq > seen, seconds)
            return self._seq > seen and not self._is_closed

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._query, name="latest", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise TooManyFollowers(
                "this process has too many threads: try again later, or send the request without"
                " waiting"
            ) from error
        return thread

    def close(self) -> None:
        """End the wait of all requests, and let all later calls of ``wait`` return at once."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(self._poll_interval)

    def _query(self) -> None:
        while not self._is_closed:
            try:
                with self._database.read() as session:
                    seq = outbox.last_seq(session)
            except Exception as error:  # noqa: BLE001 - the next query may succeed
                LOG.warning("the query for new notifications failed, will try again: %s", error)
                seq = 0
            with self._changed:
                self._seq = max(self._seq, seq)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closed or self._followers.total() > 0)
            self._wake.wait(self._poll_interval)
            self._wake.clear()
