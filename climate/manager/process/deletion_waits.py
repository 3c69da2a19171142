"""Limits the requests that wait for the deletion of a lease: one per lease, and a few in all.

Before climate deletes a running lease, a manager must end it. The request to delete the lease may
wait until the lease is deleted.
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

        The context yields True if the request may wait; the request occupies a place until the
        context ends. The context yields False, and the request must not wait, if all places are
        occupied or if another request waits for the same lease.
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
