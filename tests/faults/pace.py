"""The time between the moments of leases, as this machine needs it."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from climate.manager.events.dispatcher import Dispatcher
from climate.manager.process.runtime import Runtime

# Leases that are not counted, as statements are compiled with them, and such that are.
_FIRST, _COUNTED = 2, 8
#: Hosts that these have.
HOSTS = _FIRST + _COUNTED
# How often what was measured, as the machine may have more to do later; and seconds in any case, in
# which managers look, and what has just begun is done.
_MARGIN, _LEAST = 2.0, 3.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds to create a lease, and to process an event."""

    make: float
    run: float

    def creation_time(self, leases: int) -> float:
        """Return the seconds in which ``count`` leases are certainly created."""
        return _LEAST + _MARGIN * leases * self.make

    def gap(self, leases: int) -> float:
        """Return the seconds in which one event of each lease is certainly processed."""
        return _LEAST + _MARGIN * leases * self.run


def measure(runtime: Runtime, lease_from_now: Callable[[], object]) -> Pace:
    """Create leases that start at once, and start them in this process."""
    dispatcher = Dispatcher(runtime, "pace")
    for _ in range(_FIRST):
        lease_from_now()
    dispatcher.run_due()
    began = time.monotonic()
    for _ in range(_COUNTED):
        lease_from_now()
    made = time.monotonic()
    count = dispatcher.run_due()
    done = time.monotonic()
    return Pace((made - began) / _COUNTED, (done - made) / max(count, 1))
