"""The calendar: what resources are occupied by in a window, for a viewer of one project or all."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import InvalidInput
from climate.core.matching.calendar_rows import (
    BookedSpan,
    Group,
    ListedRow,
    RowFilter,
    VisibleLease,
)
from climate.core.matching.occupancy import Interval, Kind, Occupied, Row, intervals
from climate.core.matching.query import Compare, Operand, Query
from climate.core.provisioning.host_state import HostFacts, HostState, host_state
from climate.core.window import Window
from climate.db.notifications import outbox
from climate.db.resources import capacity
from climate.db.resources.occupancy import bookings, rows
from climate.manager.admission.availability import check_span
from climate.manager.admission.requirements import check_names
from climate.manager.process.runtime import Runtime

# Bounds the rows that one request reads and its answer.
MAX_BOOKINGS = 20_000
MAX_GROUPS = 1_000
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarView:
    """The part of a calendar to show, and its viewer.

    ``project_id`` is the project whose leases the viewer may see; None: of all projects.
    ``private``: the viewer may name private properties.
    """

    filter: RowFilter
    window: Window
    offset: int
    limit: int
    project_id: str | None
    private: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRow:
    """A resource, its state, and its intervals."""

    id: int
    name: str
    group: str | None
    state: HostState
    intervals: Sequence[Interval]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarPage:
    """A page of a calendar.

    ``version`` is the number of the last notification before it was read. ``leases`` are those
    that the viewer may see, by id.
    """

    version: int
    total: int
    groups: Sequence[Group] | None
    rows: Sequence[CalendarRow]
    leases: Mapping[str, VisibleLease]


def type_of_rows(runtime: Runtime, resource_type: str) -> str:
    """Return the type of the resources that reservations of a type are on.

    Raises UnsupportedResourceType.
    """
    plugin = runtime.plugin(resource_type)
    return plugin.resources_type or plugin.resource_type


def show(runtime: Runtime, view: CalendarView) -> CalendarPage:
    """Return a page of a calendar in intervals.

    Raises InvalidDate, InvalidQuery, and InvalidInput if the page has too many bookings or groups.
    """
    check_span(view.window)
    with runtime.database.snapshot() as session:
        # Read first: changes that the page may lack have higher numbers.
        version = outbox.last_seq(session)
        _check_names(runtime, session, view)
        total, groups = _count(session, view.filter, runtime.clock.now())
        listed = rows.page(session, view.filter, view.offset, view.limit)
        spans = _spans(session, listed, view)
        shown, leases = _rows(session, listed, spans, view)
    return CalendarPage(version=version, total=total, groups=groups, rows=shown, leases=leases)


def _check_names(runtime: Runtime, session: Session, view: CalendarView) -> None:
    wanted = view.filter
    check_names(session, runtime.catalog, wanted.resource_type, wanted.query, private=view.private)
    if wanted.group_by is not None:
        grouped: Query = Compare("==", wanted.group_by, Operand(""), at="in group_by")
        check_names(session, runtime.catalog, wanted.resource_type, grouped, private=view.private)


def _count(
    session: Session, wanted: RowFilter, now: datetime
) -> tuple[int, Sequence[Group] | None]:
    if wanted.group_by is None:
        return rows.count(session, wanted), None
    groups = rows.groups(session, wanted, now, MAX_GROUPS + 1)
    if len(groups) > MAX_GROUPS:
        raise InvalidInput(
            f"{wanted.group_by} has more than {MAX_GROUPS} values: group by another property, or"
            " filter with properties"
        )
    return sum(group.rows for group in groups), groups


def _spans(
    session: Session, listed: Sequence[ListedRow], view: CalendarView
) -> dict[int, list[BookedSpan]]:
    ids = [row.id for row in listed]
    found = bookings.find(session, ids, view.window, view.project_id, MAX_BOOKINGS + 1)
    if len(found) > MAX_BOOKINGS:
        raise InvalidInput(
            f"These {len(ids)} resources have more than {MAX_BOOKINGS} bookings in the window:"
            " request fewer rows (limit), a shorter window, or buckets (resolution)"
        )
    by_resource: dict[int, list[BookedSpan]] = defaultdict(list)
    for span in found:
        by_resource[span.resource_id].append(span)
    return by_resource


def _rows(
    session: Session,
    listed: Sequence[ListedRow],
    spans: Mapping[int, Sequence[BookedSpan]],
    view: CalendarView,
) -> tuple[list[CalendarRow], dict[str, VisibleLease]]:
    ids = [row.id for row in listed]
    shared = [id_ for id_ in ids if any(span.resource_class for span in spans.get(id_, ()))]
    inventories = capacity.find_some(session, shared)
    preparing = bookings.preparations(session, ids, view.window, view.project_id) if ids else {}
    shown = []
    for row in listed:
        state = host_state(HostFacts(reservable=row.reservable))
        amounts = {name: item.capacity for name, item in inventories.get(row.id, {}).items()}
        found = intervals(
            Row(
                length=_after(view.window.end, view.window),
                occupied=[_occupied(span, view) for span in spans.get(row.id, ())],
                capacity=amounts,
                unbookable_since=None
                if row.reservable
                else max(0, _after(row.changed_at, view.window)),
                preparing=[_between(item, view.window) for item in preparing.get(row.id, ())],
            )
        )
        shown.append(
            CalendarRow(id=row.id, name=row.name, group=row.group, state=state, intervals=found)
        )
    return shown, _leases(spans.values())


def _leases(spans: Iterable[Sequence[BookedSpan]]) -> dict[str, VisibleLease]:
    found = {
        span.lease.id: span.lease
        for of_resource in spans
        for span in of_resource
        if span.lease is not None
    }
    # In a fixed order, so that equal calendars have equal ETags.
    return dict(sorted(found.items(), key=lambda item: (item[1].start, item[0])))


def _occupied(span: BookedSpan, view: CalendarView) -> Occupied:
    start, end = _after(span.start, view.window), _after(span.end, view.window)
    if span.lease is not None:
        lease_end = _after(span.lease.end, view.window)
        named = span.lease.id, lease_end, span.resource_class, span.amount
        return Occupied(start, end, Kind.OWN, *named)
    kind = _anonymous(span, sees_all=view.project_id is None)
    return Occupied(start, end, kind, resource_class=span.resource_class, amount=span.amount)


def _anonymous(span: BookedSpan, *, sees_all: bool) -> Kind:
    """Return what the viewer sees of an allocation without a visible lease."""
    if span.is_held:
        return Kind.HELD
    # The allocation of a deleted lease ends with the cleaning after it.
    return Kind.CLEANING if span.is_deleted and sees_all else Kind.TAKEN


def _between(span: Window, window: Window) -> tuple[int, int]:
    return _after(span.start, window), _after(span.end, window)


def _after(moment: datetime, window: Window) -> int:
    """Return the whole seconds from the start of the window to a moment."""
    return (moment - window.start) // _SECOND
