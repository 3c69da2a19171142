"""The calendar: what occupies resources in a window.

A calendar has a row for each resource. A row contains either intervals with exact times, or
buckets: parts of the window that have equal length.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import InvalidInput
from climate.core.matching import property_type
from climate.core.matching.calendar_rows import (
    BookedSpan,
    Group,
    ListedRow,
    RowFilter,
    VisibleLease,
)
from climate.core.matching.occupancy import (
    Filled,
    Interval,
    Kind,
    Occupied,
    Row,
    digits,
    filled,
    intervals,
)
from climate.core.matching.query import Compare, Operand, Query, both
from climate.core.provisioning.host_state import HostState
from climate.core.window import Window
from climate.db.provisioning import host_facts
from climate.db.resources import capacity
from climate.db.resources.occupancy import bookings, rows, sums
from climate.manager.admission.availability import check_span
from climate.manager.admission.requirements import check_names
from climate.manager.process.runtime import Runtime
from climate.manager.resources import calendar_changes
from climate.manager.resources.calendar_changes import Version

# Bounds the rows that one request reads and its answer.
MAX_BOOKINGS = 20_000
MAX_GROUPS = 1_000
# Rows times buckets of one request.
MAX_CELLS = 400_000
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarView:
    """The part of a calendar to show, and who views it.

    The calendar shows up to ``limit`` rows, after the first ``offset`` rows. ``filter`` selects and
    sorts the resources. ``resolution`` is the length of a bucket in seconds (0: intervals instead
    of buckets).

    ``viewer`` is the viewer's project. The calendar names only the leases of this project; if
    ``sees_all`` is set, it names all leases. If ``private`` is set, the viewer may name private
    properties (hidden from ordinary users) in the filter.
    """

    filter: RowFilter
    window: Window
    offset: int
    limit: int
    resolution: int
    viewer: str
    sees_all: bool
    private: bool

    @property
    def visible_project(self) -> str | None:
        """The project whose leases the calendar names (None: all projects)."""
        return None if self.sees_all else self.viewer

    def seconds(self, moment: datetime) -> int:
        """Return the whole seconds from the start of the window to ``moment``."""
        return (moment - self.window.start) // _SECOND

    def offsets(self, span: Window) -> tuple[int, int]:
        """Return the whole seconds from the window's start to the start and the end of ``span``."""
        return self.seconds(span.start), self.seconds(span.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRow:
    """A row of a calendar: a resource, its state, and its intervals or buckets.

    ``group`` is the value of the property by which the rows are grouped, if any. If the calendar
    has buckets, ``digits`` contains a digit for each bucket, from 0 (always free) to 9 (never
    free), and ``own`` states for each bucket whether the viewer's project has bookings in it.
    """

    id: int
    name: str
    group: str | None
    state: HostState
    intervals: Sequence[Interval] = ()
    digits: str = ""
    own: Sequence[bool] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarPage:
    """A page of a calendar.

    ``version`` is the version of the calendar just before the page was read. ``total`` is the
    number of rows on all pages, ``reservable`` how many of them new leases can book. A group
    consists of the rows with the same value of a property; if the viewer requested no groups,
    ``groups`` is None. ``leases`` contains the leases that the page names, by id.
    """

    version: Version
    total: int
    reservable: int
    groups: Sequence[Group] | None
    rows: Sequence[CalendarRow]
    leases: Mapping[str, VisibleLease]


def show(runtime: Runtime, view: CalendarView) -> CalendarPage:
    """Return a page of a calendar.

    Raises InvalidDate, InvalidQuery. Raises InvalidInput if the page has too many bookings or
    buckets, or the calendar too many groups.
    """
    check_span(view.window)
    _check_cells(view)
    with runtime.database.snapshot() as session:
        # Read first: changes that the page may lack have higher numbers.
        version = calendar_changes.current(session)
        _check_names(runtime, session, view)
        view = _permitted(runtime, view)
        total, reservable = rows.count(session, view.filter)
        groups = _groups(session, view.filter, runtime.clock.now())
        listed = rows.page(session, view.filter, view.offset, view.limit)
        states = _states(runtime, session, listed)
        leases: Mapping[str, VisibleLease] = {}
        if view.resolution:
            shown = _in_buckets(session, listed, states, view)
        else:
            spans = _spans(session, listed, view)
            leases = _leases(spans.values())
            shown = _in_intervals(session, listed, states, spans, view)
    return CalendarPage(
        version=version,
        total=total,
        reservable=reservable,
        groups=groups,
        rows=shown,
        leases=leases,
    )


def _permitted(runtime: Runtime, view: CalendarView) -> CalendarView:
    """Return the view without resources that the viewer's project may not book.

    Operators, who may see private properties, see all resources.
    """
    if view.private:
        return view
    permitted = property_type.permitted(runtime.settings.property_types, view.viewer)
    query = both(view.filter.query, permitted)
    return replace(view, filter=replace(view.filter, query=query))


def _states(
    runtime: Runtime, session: Session, listed: Sequence[ListedRow]
) -> dict[int, HostState]:
    """Return the states of the resources on the page, by id."""
    provisioning = runtime.settings.provisioning is not None
    found = host_facts.find(session, [row.id for row in listed], provisioning=provisioning)
    return {id_: report.state for id_, report in found.items()}


def _check_cells(view: CalendarView) -> None:
    if not view.resolution:
        return
    buckets = -(-view.seconds(view.window.end) // view.resolution)
    if buckets * view.limit > MAX_CELLS:
        raise InvalidInput(
            f"{view.limit} rows of {buckets} buckets are more than {MAX_CELLS} in all: request"
            " fewer rows (limit), a shorter window, or a coarser resolution"
        )


def _check_names(runtime: Runtime, session: Session, view: CalendarView) -> None:
    wanted = view.filter
    check_names(session, runtime.catalog, wanted.resource_type, wanted.query, private=view.private)
    if wanted.group_by is not None:
        grouped: Query = Compare("==", wanted.group_by, Operand(""), at="in group_by")
        check_names(session, runtime.catalog, wanted.resource_type, grouped, private=view.private)


def _groups(session: Session, wanted: RowFilter, now: datetime) -> Sequence[Group] | None:
    if wanted.group_by is None:
        return None
    groups = rows.groups(session, wanted, now, MAX_GROUPS + 1)
    if len(groups) > MAX_GROUPS:
        raise InvalidInput(
            f"{wanted.group_by} has more than {MAX_GROUPS} values: group by another property, or"
            " filter with properties"
        )
    return groups


def _spans(
    session: Session, listed: Sequence[ListedRow], view: CalendarView
) -> dict[int, list[BookedSpan]]:
    ids = [row.id for row in listed]
    found = bookings.find(session, ids, view.window, view.visible_project, MAX_BOOKINGS + 1)
    if len(found) > MAX_BOOKINGS:
        raise InvalidInput(
            f"These {len(ids)} resources have more than {MAX_BOOKINGS} bookings in the window:"
            " request fewer rows (limit), a shorter window, or buckets (resolution)"
        )
    by_resource: dict[int, list[BookedSpan]] = defaultdict(list)
    for span in found:
        by_resource[span.resource_id].append(span)
    return by_resource


def _in_intervals(
    session: Session,
    listed: Sequence[ListedRow],
    states: Mapping[int, HostState],
    spans: Mapping[int, Sequence[BookedSpan]],
    view: CalendarView,
) -> list[CalendarRow]:
    ids = [row.id for row in listed]
    shared = [id_ for id_ in ids if any(span.resource_class for span in spans.get(id_, ()))]
    inventories = capacity.find_some(session, shared)
    project_id = view.visible_project
    preparing = bookings.preparations(session, ids, view.window, project_id) if ids else {}
    shown = []
    for row in listed:
        occupied = [_occupied(span, view) for span in spans.get(row.id, ())]
        facts = Row(
            length=view.seconds(view.window.end),
            occupied=occupied,
            capacity={name: i.capacity for name, i in inventories.get(row.id, {}).items()},
            unbookable_since=_unbookable_since(row, view),
            preparing=[
                (view.seconds(s.start), view.seconds(s.end)) for s in preparing.get(row.id, ())
            ],
        )
        shown.append(_row(row, states[row.id], intervals=intervals(facts)))
    return shown


def _in_buckets(
    session: Session,
    listed: Sequence[ListedRow],
    states: Mapping[int, HostState],
    view: CalendarView,
) -> list[CalendarRow]:
    ids, length = [row.id for row in listed], view.seconds(view.window.end)
    found = sums.of_resources(session, ids, view.window, view.resolution, view.viewer)
    by_name = filled(found, length, view.resolution)
    count = -(-length // view.resolution)
    nothing = Filled([0.0] * count, [False] * count)
    shown = []
    for row in listed:
        of_row = by_name.get(str(row.id), nothing)
        since = _unbookable_since(row, view)
        text = digits(of_row.seconds, length, view.resolution, since)
        shown.append(_row(row, states[row.id], digits=text, own=of_row.own))
    return shown


def _row(row: ListedRow, state: HostState, **shown: Any) -> CalendarRow:
    return CalendarRow(id=row.id, name=row.name, group=row.group, state=state, **shown)


def _unbookable_since(row: ListedRow, view: CalendarView) -> int | None:
    """Return the time since which a resource cannot be booked; None if it can be booked.

    The result is in whole seconds from the window's start, and at least 0. It is the time of the
    resource's last change, because the resource has been unbookable at least since then.
    """
    return None if row.reservable else max(0, view.seconds(row.changed_at))


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
    start, end = view.seconds(span.start), view.seconds(span.end)
    if span.lease is not None:
        named = span.lease.id, view.seconds(span.lease.end), span.resource_class, span.amount
        return Occupied(start, end, Kind.OWN, *named)
    kind = _anonymous(span, sees_all=view.sees_all)
    return Occupied(start, end, kind, resource_class=span.resource_class, amount=span.amount)


def _anonymous(span: BookedSpan, *, sees_all: bool) -> Kind:
    """Return why a resource is occupied, for a booking whose lease the calendar does not name.

    - HELD: an external service still decides about the lease.
    - CLEANING: the lease was deleted, and the resource is still being cleaned. Only viewers who may
      see all leases (``sees_all``) get this kind; others get TAKEN.
    - TAKEN: all other bookings.
    """
    if span.is_held:
        return Kind.HELD
    # The allocation of a deleted lease ends with the cleaning after it.
    return Kind.CLEANING if span.is_deleted and sees_all else Kind.TAKEN
