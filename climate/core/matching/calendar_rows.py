"""The rows of a calendar and their bookings, as the database returns them to a viewer."""

from dataclasses import dataclass
from datetime import datetime

from climate.core.matching.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFilter:
    """Which resources are rows of a calendar, and their order.

    ``part`` is a part of the name, in any case. With ``group_by``, a property, rows are in the
    order of its values; resources without it come last.
    """

    resource_type: str
    query: Query
    part: str | None = None
    group_by: str | None = None
    by_name: bool = True


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A resource as a row of a calendar; ``group`` is the value of the property to group by."""

    id: int
    name: str
    reservable: bool
    changed_at: datetime
    group: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """The rows with the same value of a property; ``first`` is the offset of its first row.

    ``free_now`` counts resources that are bookable and that nothing occupies now.
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
    """An allocation that overlaps a window.

    ``lease`` is None if the viewer may not see it, or if it is deleted (``is_deleted``).
    ``is_held``: a service has not decided about the lease yet.
    """

    resource_id: int
    start: datetime
    end: datetime
    resource_class: str | None
    amount: int
    is_held: bool
    is_deleted: bool
    lease: VisibleLease | None
