"""Limits the requests that wait for the deletion of a lease: one per lease, and a few in all.

Before climate deletes a running lease, a manager ends it. A request may wait until that is done.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class DeletionWaits:
    """The set of leases for which a request in this process waits until they are deleted.

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

        The context yields True if the request may wait. It yields False if as many requests as
        allowed are waiting already, or if another request waits for the same lease. Then the
        request must not wait. The request counts as waiting until the context ends.
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
