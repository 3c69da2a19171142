"""Limits the requests that wait for the deletion of a lease: one per lease, and a few in all."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class DeletionWaits:
    """The leases whose deletion a request of this process is waiting for."""

    def __init__(self, places: int) -> None:
        """Allow ``places`` waiting requests."""
        self._places = places
        self._lock = threading.Lock()
        self._leases: set[str] = set()

    @contextmanager
    def place(self, lease_id: str) -> Iterator[bool]:
        """Yield whether the request may wait for the deletion of the lease.

        It may if the number of waiting requests allows it, and no other request waits for this
        lease.
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
