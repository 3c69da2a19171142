"""The rows of a calendar (one per resource) and their bookings, as the database returns them."""

from dataclasses import dataclass
from datetime import datetime

from climate.core.matching.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which resources a calendar shows as rows, and in which order.

    The rows are the resources of ``resource_type`` that match ``query``. Their names must contain
    ``part``; upper and lower case are equal. Rows are sorted by name, or by id if ``by_name`` is
    false. If ``group_by`` names a property, its value is the first sort key, and resources without
    the property come last.
    """

    resource_type: str
    query: Query
    part: str | None = None
    group_by: str | None = None
    by_name: bool = True


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A resource that is a row of a calendar.

    ``group`` is the value of the property by which the rows are grouped (None: the resource has no
    such property, or rows are not grouped).
    """

    id: int
    name: str
    reservable: bool
    changed_at: datetime
    group: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of a calendar that have the same value (``name``) of the property to group by.

    ``first`` is the position of the first row, from 0. ``free_now`` is how many of the resources
    can be booked and are not occupied now.
    """

    name: str | None
    first: int
    rows: int
    free_now: int


@dataclass(frozen=True, slots=True)
class VisibleLease:
    """A lease that the viewer of a calendar may see."""

    id: str
    name: str
    status: str
    degraded: bool
    start: datetime
    end: datetime
    project_id: str


@dataclass(frozen=True, slots=True)
class BookedSpan:
    """A booking of a resource in the window of a calendar.

    The booking is for an ``amount`` of ``resource_class`` (None: for the whole resource). ``lease``
    is None if the viewer may not see the lease, or if the lease was deleted (``is_deleted``).
    ``is_held`` means that the lease is not admitted yet: an external service still decides about
    it.
    """

    resource_id: int
    start: datetime
    end: datetime
    resource_class: str | None
    amount: int
    is_held: bool
    is_deleted: bool
    lease: VisibleLease | None
