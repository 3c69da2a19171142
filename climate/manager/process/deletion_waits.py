"""Limits the requests that wait for the deletion of a lease: one per lease, and a few in all.

Before climate deletes a running lease, a manager ends it. A request may wait until that is done.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class DeletionWaits:
    """Limits the requests of this process that wait until a lease is deleted.

    Thread-safe.
    """

    def __init__(self, places: int) -> None:
        """Allow at most ``places`` waiting requests at a time."""
        self._places = places
        self._lock = threading.Lock()
        self._leases: set[str] = set()

    @contextmanager
    def place(self, lease_id: str) -> Iterator[bool]:
        """Return a context in which a request may wait for the deletion of the lease.

        The context yields True if the request may wait. The request then counts as waiting until
        the context ends. The context yields False if too many requests are waiting already, or if
        another request waits for the same lease. The request must then not wait.
        """
        with self._lock:
            may_wait = len(self._leases) < self._places and lease_id not in self._leases
            if may_wait:
                self._leases.add(lease_id)
        try:
            yield may_wait
        finally:
            if may_wait:
                with self._lock:
                    self._leases.discard(lease_id)
