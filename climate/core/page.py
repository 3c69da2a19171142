"""Pages of lists, and filters of their items.

The position of a page is the sort key of the last item on the page before, not an offset. So no
item is repeated or skipped if other items are created or deleted between two requests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from climate.core.lease.history import PastLease
from climate.core.lease.holding import Booking, LeaseResource
from climate.core.lease.model import Lease, Resource
from climate.core.lease.overdue import OverdueEvent
from climate.core.matching.query import Query
from climate.core.notifications.feed import Feed
from climate.core.notifications.subscription import Subscription
from climate.core.provisioning.preparation import Preparation
from climate.core.provisioning.shutdown import Shutdown

T = TypeVar("T")

# Sort keys of each list; the id decides between equal items.
Sorts = Mapping[str, Callable[[T], Any]]
LEASE_SORTS: Sorts[Lease] = {
    "start": lambda lease: lease.window.start,
    "end": lambda lease: lease.window.end,
    "created": lambda lease: lease.created_at,
    "name": lambda lease: lease.name,
}
# Of the wait list, whose items ``climate.core`` does not know.
WAIT_SORTS: Sorts[Any] = {"rank": lambda entry: entry.rank_at}
OFFER_SORTS: Sorts[Lease] = {"expires": lambda lease: lease.offered_until}
PAST_LEASE_SORTS: Sorts[PastLease] = {"ended": lambda lease: lease.ended_at}
LEASE_RESOURCE_SORTS: Sorts[LeaseResource] = {"name": lambda item: item.name}
RESOURCE_SORTS: Sorts[Resource] = {
    "id": lambda resource: resource.id,
    "name": lambda resource: resource.external_id,
}
BOOKING_SORTS: Sorts[Booking] = {"start": lambda booking: booking.start}
PREPARATION_SORTS: Sorts[Preparation] = {"needed": lambda task: task.needed_at}
SHUTDOWN_SORTS: Sorts[Shutdown] = {"wanted": lambda task: task.wanted_at}
OVERDUE_SORTS: Sorts[OverdueEvent] = {"due": lambda event: event.due_at}
FEED_SORTS: Sorts[Feed] = {"created": lambda item: item.created_at}
SUBSCRIPTION_SORTS: Sorts[Subscription] = {"created": lambda item: item.created_at}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A request for a page of a list: up to ``limit`` items after the item ``after``.

    ``sort`` names the sort key, such as ``start``. ``after`` is the sort key and the id of the last
    item of the page before (None: the first page).
    """

    sort: str
    descending: bool
    limit: int
    after: tuple[Any, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """The items of a page, and whether another page follows."""

    items: list[T]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFilter:
    """Which leases to list. A field that is None or empty matches all leases.

    ``name`` is the whole name of a lease. A lease that starts or ends exactly at a bound does not
    match.
    """

    project_id: str | None = None
    statuses: tuple[str, ...] = ()
    name: str | None = None
    resource_type: str | None = None
    starts_before: datetime | None = None
    starts_after: datetime | None = None
    ends_before: datetime | None = None
    ends_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastLeaseFilter:
    """Which past leases (removed leases in the history) to list.

    A field that is None matches all leases. A lease that ended exactly at a bound does not match.
    """

    project_id: str | None = None
    user_id: str | None = None
    ended_before: datetime | None = None
    ended_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFilter:
    """Which resources to list: those of the given types that match ``query``.

    ``name_part`` must occur in the name of a resource; upper and lower case are equal.
    """

    resource_types: tuple[str, ...]
    query: Query
    name_part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilter:
    """Which tasks of provisioners (preparations or shutdowns) to list.

    A field that is None or empty matches all tasks. ``claimable_at`` selects the tasks that a
    provisioner can claim at that time. ``lease_id`` is for preparations only.
    """

    states: tuple[str, ...] = ()
    node: str | None = None
    hardware: str | None = None
    lease_id: str | None = None
    claimable_at: datetime | None = None
