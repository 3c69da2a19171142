"""Which promised leases may start earlier, by the calendar in memory.

A pass looks for an earlier start of each promise, in a transaction of its own. After most changes,
few promises can move. So a pass first counts the free resources in memory, and leaves out the
promises that certainly cannot move. If memory is wrong, a promise moves in a later pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from climate.core.errors import ClimateError
from climate.core.lease.model import Lease
from climate.core.lease.wait_list import FreeStep, Wait, may_start_earlier
from climate.core.matching.requirement import Requirement
from climate.core.window import Window, second_from
from climate.db.leases import leases
from climate.manager.admission.at_once import only_whole
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list.placing import requirements_of_lease

# With more resources, counting takes longer than the search in the database.
_MOST_RESOURCES = 2_000


@dataclass(slots=True)
class EarlierRoom:
    """Says which of some promised leases may start earlier.

    ``promised`` are the leases and ``needs`` their requirements, by the id of the lease. The counts
    of free resources are those of the last call of ``read``.
    """

    runtime: Runtime
    promised: Mapping[str, Lease]
    needs: Mapping[str, Requirement]
    _steps: dict[str, Sequence[FreeStep] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, runtime: Runtime, promises: Sequence[Wait]) -> "EarlierRoom":
        """Read the promised leases."""
        with runtime.database.read() as session:
            found = leases.find_some(session, [wait.lease_id for wait in promises])
        needs = {id_: need for id_, each in found.items() if (need := _need(runtime, each))}
        return cls(runtime, found, needs)

    def read(self) -> None:
        """Forget the counts: the bookings have changed."""
        self._steps.clear()

    def may_help(self, wait: Wait) -> bool:
        """Return whether the promised lease may start earlier; True also if memory cannot tell."""
        need = self.needs.get(wait.lease_id)
        steps = need and self._free_steps(need)
        lease = self.promised.get(wait.lease_id)
        if need is None or not steps or lease is None:
            return True
        own = Window(lease.booked_from, self._busy_until(lease))
        begin = second_from(max(self.runtime.clock.now(), wait.earliest))
        return may_start_earlier(steps, own, begin, need.minimum, need.maximum)

    def _free_steps(self, need: Requirement) -> Sequence[FreeStep] | None:
        key = repr(replace(need, minimum=0, maximum=0))
        if key not in self._steps:
            view = self.runtime.calendar.view(need.resource_type)
            is_small = view is not None and view.count_matching(need) <= _MOST_RESOURCES
            span = Window(
                self.runtime.clock.now(), max(map(self._busy_until, self.promised.values()))
            )
            self._steps[key] = view.free_steps(need, span) if view and is_small else None
        return self._steps[key]

    def _busy_until(self, lease: Lease) -> datetime:
        return lease.busy_until(lease.window.end, self.runtime.settings.cleaning_time)


def _need(runtime: Runtime, lease: Lease) -> Requirement | None:
    try:
        return only_whole(runtime, requirements_of_lease(runtime, lease))
    except ClimateError:  # climate does not understand the reservations any more
        return None
