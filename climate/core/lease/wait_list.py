"""The wait list: leases that wait for capacity, and the rules of their order. Pure.

The waiting leases of one *pool* (one combination of resource types) form one list, in the order of
``rank_at``. Some of the first leases have a *promise*: a booking in the future, whose start only
moves to earlier times. Other leases may overtake them if they delay no promise (backfilling).

Source: Mu'alem and Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates
in Scheduling the IBM SP2 with Backfilling", IEEE TPDS 12(6), 2001.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from climate.core.record import record
from climate.core.window import Window

MAX_PRIORITY = 9

# Start, end (exclusive), and number of free resources.
FreeStep = tuple[datetime, datetime, int]


class HeldBack(StrEnum):
    """Why climate does not place a waiting lease now, although the lease may be the first."""

    LIMIT = "limit"
    NO_WINDOW = "no_window"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitListRules:
    """The operator's rules for the wait list.

    ``promises`` is the number of leases of a pool that have a booking in the future. If
    ``backfills`` is set, other leases may start before them, if they delay no booking. If
    ``is_firm`` is not set, a request with a fixed start may take the place of a promise. One level
    of priority is worth as much as ``priority_worth`` of waiting.
    """

    promises: int = 4
    backfills: bool = True
    is_firm: bool = True
    priority_worth: timedelta = timedelta(days=1)


@record(frozen=True, slots=True, kw_only=True)
class Wait:
    """The entry of a lease in the wait list.

    - ``pool``: the resource types of the lease. ``shape`` is equal for leases whose reservations
      are equal.
    - ``rank_at``: the place in the list; see ``rank``.
    - ``asked_at``: when the request arrived. ``priority``: from 0 to MAX_PRIORITY, higher is
      earlier.
    - ``length``: the duration of the lease, which starts at ``earliest`` or later, and ends at
      ``end_by`` or earlier. If it has no promise at ``until``, it leaves the list.
    - ``is_exempt``: no limit applied to the user who asked.
    - ``promised_start``: the start of its booking (None: it has no booking).
    - ``held_back``: why climate did not place it at ``tried_at``.
    """

    lease_id: str
    project_id: str
    user_id: str
    pool: str
    shape: str
    rank_at: datetime
    priority: int
    asked_at: datetime
    length: timedelta
    earliest: datetime
    end_by: datetime
    until: datetime
    is_exempt: bool = False
    promised_start: datetime | None = None
    held_back: HeldBack | None = None
    tried_at: datetime | None = None


def rank(asked_at: datetime, priority: int, rules: WaitListRules) -> datetime:
    """Return the time by which a waiting lease is ordered; the earliest is first.

    All leases age equally. So the order of two leases never changes, and age and priority fit into
    one value that the database can index.
    """
    return asked_at - priority * rules.priority_worth


def may_start_earlier(
    steps: Sequence[FreeStep], own: Window, begin: datetime, needed: int, booked: int
) -> bool:
    """Return whether enough resources are free for a booked lease to start earlier.

    ``steps`` are the free resources over time, without gaps, at least until the end of ``own``.
    ``own`` is the booking of the lease, with cleaning time, and ``booked`` the number of its
    resources, which are not free in ``steps``. The lease needs ``needed`` resources, and may start
    at ``begin``. Which resources are free is not considered, so the lease may still not fit.
    """
    since, length = None, own.end - own.start
    for start, end, free in _split(steps, own, begin):
        if free + booked * (own.start <= start < own.end) < needed:
            since = None
        elif since is None:
            since = start
        if (since or start) >= own.start:
            return False
        if since is not None and end - since >= length:
            return True
    return False


def _split(steps: Sequence[FreeStep], own: Window, begin: datetime) -> Iterator[FreeStep]:
    """Yield the parts of the steps after ``begin``; each is inside ``own`` or outside it."""
    for start, end, free in steps:
        cuts = sorted({start, end, *(at for at in (own.start, own.end) if start < at < end)})
        for first, last in pairwise(cuts):
            if last > begin:
                yield max(first, begin), last, free
