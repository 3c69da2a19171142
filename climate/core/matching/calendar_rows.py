"""The rows of a calendar (one per resource) and their bookings, as the database returns them."""

from dataclasses import dataclass
from datetime import datetime

from climate.core.matching.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which resources are the rows of a calendar, and in which order.

    ``part`` is a part of the name, in upper or lower case. If ``group_by`` names a property, rows
    are sorted by its values. Resources without the property come last.
    """

    resource_type: str
    query: Query
    part: str | None = None
    group_by: str | None = None
    by_name: bool = True


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A resource as a row of a calendar.

    If the rows are grouped by a property, ``group`` is its value.
    """

    id: int
    name: str
    reservable: bool
    changed_at: datetime
    group: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of a calendar that have the same value of a property.

    ``first`` is the offset of the first of them. ``free_now`` is the number of resources that can
    be booked and that nothing occupies now.
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
    """An allocation of a resource that overlaps the window of a calendar.

    ``lease`` is None if the viewer may not see the lease, or if it is deleted (``is_deleted``).
    ``is_held`` means that the lease waits for the decision of a service.
    """

    resource_id: int
    start: datetime
    end: datetime
    resource_class: str | None
    amount: int
    is_held: bool
    is_deleted: bool
    lease: VisibleLease | None
