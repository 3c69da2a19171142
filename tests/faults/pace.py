"""How far apart the moments of leases have to be: as far as this machine needs for all of them.

What makes a lease late shall be the fault and the work that it left behind, and that shall not take
the lease's whole time. So a few leases are made and started in this process, with no fault: what
that took is what each takes in the cell, where managers share the machine.
"""

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
    """Seconds that it took to make a lease, and to run an event of one."""

    make: float
    run: float

    def to_make(self, leases: int) -> float:
        """Return the seconds in which so many leases are surely made."""
        return _LEAST + _MARGIN * leases * self.make

    def gap(self, leases: int) -> float:
        """Return the seconds in which one event of each of so many leases is surely run."""
        return _LEAST + _MARGIN * leases * self.run


def measure(runtime: Runtime, lease_from_now: Callable[[], object]) -> Pace:
    """Make some leases that start at once, and start them here."""
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
