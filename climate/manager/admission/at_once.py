"""Admission without a transaction: book a new lease in one SQL statement, or refuse it from memory.

Both decide only the common case: one requirement, for whole resources, and the operator has
configured neither filters nor weighers. The module ``admission`` decides all other cases.

The calendar in memory suggests free resources to the statement, which then need not search. Memory
may lack the latest bookings, so the statement checks that the suggested resources are free. climate
refuses a lease in two cases: the statement has searched all resources and found too few, or memory
has too few after it was brought up to date.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto

from sqlalchemy.exc import DBAPIError

from climate.core.lease.model import Lease
from climate.core.matching.expression import MAX_CONDITIONS
from climate.core.matching.query import has_misfits, names, written
from climate.core.matching.requirement import Requirement
from climate.core.window import Window
from climate.db.engine.database import conflict, is_transient
from climate.db.resources import allocations, booking_statement
from climate.db.resources.booking_statement import BookingPlan, Verdict
from climate.db.tables.bulk import Rows
from climate.manager.admission.admission import InsufficientResources, insufficient
from climate.manager.admission.candidates import Demand, few
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import occupied_by
from climate.manager.process.calendar_memory.view import CalendarView
from climate.manager.process.runtime import Runtime

# If the single statement loses this many races, a transaction takes over, which can wait for locks.
_ATTEMPTS_AT_ONCE = 2
# If resources that memory suggests are booked this many times, the database searches.
_ATTEMPTS_FROM_MEMORY = 3
# Memory suggests so many more resources than needed, because others may have booked some of them.
_SPARES = 16


class AtOnce(Enum):
    """What became of a lease that one statement should book.

    - BOOKED: the lease is stored.
    - SHORT: others have booked what memory suggested, and memory has too few resources now.
    - UNDECIDED: one statement cannot do it, or it lost races with other transactions.

    Unless the lease is BOOKED, nothing is stored.
    """

    BOOKED = auto()
    SHORT = auto()
    UNDECIDED = auto()


def book_at_once(
    runtime: Runtime,
    lease: Lease,
    demands: Sequence[Demand],
    plan: BookingPlan | None,
    gates: Sequence[Gate],
    suggested: Sequence[int] | None,
) -> AtOnce:
    """Book resources for a new lease and store the lease, in one SQL statement.

    ``plan`` is the result of ``plan_at_once``, ``suggested`` that of ``suggest``. Raises
    InsufficientResources if the statement has searched all resources and found too few.
    """
    for gate in gates:
        plan = plan and gate.planned(plan, lease)
    for attempt in _attempts(runtime, plan, suggested) if plan else ():
        if attempt is None:
            return AtOnce.SHORT
        verdict = _try_to_book(runtime, attempt)
        if verdict is None or (verdict.is_allowed and not verdict.is_booked and attempt.among):
            continue
        if verdict.free is not None:
            with runtime.database.read() as session:
                matching = allocations.count(session, attempt.requirement)
            raise insufficient(demands, 0, attempt.busy, matching=matching, free=verdict.free)
        return AtOnce.BOOKED if verdict.is_booked else AtOnce.UNDECIDED
    return AtOnce.UNDECIDED


def _attempts(
    runtime: Runtime, plan: BookingPlan, suggested: Sequence[int] | None
) -> Iterator[BookingPlan | None]:
    """Yield the plans to try: first among resources that are free in memory, then among all.

    Resources from memory save the search in the database. Memory may lack the latest bookings. So
    it is brought up to date for further plans, and before climate gives a lease less than its
    maximum. If memory then has too few, the function yields None.
    """
    requirement = plan.requirement
    # Memory does not know which resources come first.
    ids = None if runtime.settings.packs_hosts else suggested
    if ids is not None and len(ids) < requirement.maximum:
        ids = _free_now(runtime, plan)
    for _ in range(_ATTEMPTS_FROM_MEMORY):
        if ids is None:
            break
        if len(ids) < requirement.minimum:
            yield None
        yield _among(plan, ids)
        ids = _free_now(runtime, plan)
    for _ in range(_ATTEMPTS_AT_ONCE):
        yield plan


def _free_now(runtime: Runtime, plan: BookingPlan) -> list[int] | None:
    """Return ids of free resources for a plan, after memory is brought up to date."""
    view = runtime.calendar.view(plan.requirement.resource_type)
    return _free_in(view, plan.requirement, plan.busy, plan.rotation) if view else None


def _among(plan: BookingPlan, ids: Sequence[int]) -> BookingPlan:
    """Return the plan to book the maximum of the resources ``ids``, or all if they are fewer."""
    requirement = plan.requirement
    most = min(requirement.maximum, len(ids))
    return replace(plan, among=ids, requirement=replace(requirement, maximum=most))


def suggest(runtime: Runtime, lease: Lease, demands: Sequence[Demand]) -> list[int] | None:
    """Return ids of resources that are free for a new lease according to memory.

    Memory may lack the latest bookings. The result has some more than the maximum of the demand, or
    all free resources if they are fewer. None if memory cannot answer.
    """
    requirement = only_whole(runtime, [demand.requirement for demand in demands])
    if requirement is None:
        return None
    view = runtime.calendar.view_without_catching_up(requirement.resource_type)
    if view is None:
        return None
    return _free_in(view, requirement, _occupied(runtime, lease), runtime.preference().rotation)


def _free_in(
    view: CalendarView, requirement: Requirement, busy: Window, rotation: float
) -> list[int] | None:
    return view.suggest(requirement, busy, requirement.maximum + _SPARES, rotation)


def _try_to_book(runtime: Runtime, plan: BookingPlan) -> Verdict | None:
    """Run the statement of a plan; return None if it lost a race with another transaction."""
    try:
        return booking_statement.book(runtime.database, plan)
    except DBAPIError as error:
        if not is_transient(error):
            raise
        runtime.database.on_conflict(conflict(error))
        return None


def plan_at_once(
    runtime: Runtime,
    lease: Lease,
    demands: Sequence[Demand],
    tables: Sequence[Rows],
    *,
    sees_private: bool,
) -> BookingPlan | None:
    """Return the plan to book and store a new lease in one statement; None if that is impossible.

    The statement can book whole resources for one demand, without the operator's filters and
    weighers. ``tables`` are the rows to store, without the bookings. ``sees_private`` states
    whether the user may name private properties (hidden from ordinary users) in a query.
    """
    requirement = only_whole(runtime, [demand.requirement for demand in demands])
    if runtime.database.dialect != "postgresql" or requirement is None:
        return None
    if written(requirement.query) > MAX_CONDITIONS or has_misfits(requirement.query):
        return None
    native = runtime.catalog.plugins[requirement.resource_type].native_properties
    (demand,) = demands
    return BookingPlan(
        requirement=requirement,
        reservation_id=demand.reservation_id,
        busy=_occupied(runtime, lease),
        limit=few(demand),
        rotation=runtime.preference().rotation,
        rows=tables,
        names=names(requirement.query) - native,
        sees_private=sees_private,
    )


def _occupied(runtime: Runtime, lease: Lease) -> Window:
    """Return the time during which no other lease can have the resources of a new lease."""
    return occupied_by(lease, lease.created_at, runtime.settings)


def find_shortage(
    runtime: Runtime, lease: Lease, demands: Sequence[Demand]
) -> tuple[InsufficientResources, CalendarView] | None:
    """Look for a shortage of resources for a new lease in the calendar in memory.

    Returns the error and the view that found the shortage. Returns None if there are enough
    resources, or if memory cannot answer. The answer contains all bookings that were committed
    before the call. Some of the answers are checked with SQL. If SQL finds enough resources and
    memory still does not, memory is loaded again.
    """
    requirement = only_whole(runtime, [demand.requirement for demand in demands])
    if requirement is None:
        return None
    busy = _occupied(runtime, lease)
    view = runtime.calendar.view(requirement.resource_type)
    if view is None or view.has_enough(requirement, busy):
        return None
    is_checked = runtime.calendar.shall_check(runtime.rng.random(), runtime.clock.elapsed())
    if is_checked and _is_wrong(runtime, requirement, busy):
        return None
    matching, free = view.count_matching(requirement), view.count_free(requirement, busy)
    return insufficient(demands, 0, busy, matching=matching, free=free), view


def _is_wrong(runtime: Runtime, requirement: Requirement, busy: Window) -> bool:
    """Return whether SQL finds enough resources; report it if memory still does not."""
    least = requirement.minimum
    with runtime.database.read() as session:
        found = allocations.candidates(session, requirement, busy, limit=least, rotation=0.0)
    if len(found) < least:
        return False
    # Another transaction may have released resources just now: then memory knows it by now.
    view = runtime.calendar.view(requirement.resource_type)
    if view is not None and not view.has_enough(requirement, busy):
        runtime.calendar.found_wrong(f"memory found too few resources, SQL found {found}")
    return True


def calendar_view(runtime: Runtime, requirements: Sequence[Requirement]) -> CalendarView | None:
    """Return the calendar in memory, if it can answer questions about these requirements."""
    requirement = only_whole(runtime, requirements)
    return None if requirement is None else runtime.calendar.view(requirement.resource_type)


def only_whole(runtime: Runtime, requirements: Sequence[Requirement]) -> Requirement | None:
    """Return the requirement of a lease if there is only one, for whole resources; else None.

    None also if the operator has configured filters or weighers: only Python can apply them.
    """
    if len(requirements) != 1 or runtime.selection:
        return None
    (requirement,) = requirements
    return requirement if requirement.is_whole and requirement.maximum else None
