"""Create a lease: plan it, admit it and store it.

One transaction writes the lease, its reservations, allocations and events, and the notification. On
PostgreSQL, it is a single statement in the most common case: one reservation of whole hosts.

But if an external service must allow the lease first, this transaction only *holds* the lease
(module ``holds``), and a second transaction writes the events and the notification.

An optional feature takes part through a gate, a set of hooks in the transaction. Such features are
idempotency keys, limits, starts that wait until hosts are ready, and holds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from sqlalchemy.orm import Session

from climate.core.errors import Contention, InvalidDate
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Event, Lease, Start, StartWhen
from climate.core.lease.schedule import plan
from climate.core.notifications import event_type
from climate.core.window import Window, ends_too_early, minute_of, starts_in_the_past
from climate.db.engine import ids
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.tables.bulk import Rows, insert
from climate.db.tables.leases import AllocationRow
from climate.manager.admission import window_search
from climate.manager.admission.admission import InsufficientResources, admit, rows
from climate.manager.admission.at_once import (
    AtOnce,
    book_at_once,
    find_shortage,
    plan_at_once,
    suggest,
)
from climate.manager.admission.candidates import Demand
from climate.manager.admission.gates import Gate
from climate.manager.admission.limits.limits import Account, LimitGate, OpenLeasesGate
from climate.manager.admission.preview import Preview, free_capacity, use_after
from climate.manager.admission.refusal.bookings import Bookings, RememberedBookings, StoredBookings
from climate.manager.admission.refusal.refusal import Refusal, explain
from climate.manager.admission.requirements import (
    ReservationRequest,
    any_acts_as_user,
    any_prepares,
    check_queries,
    margined,
    new_reservations,
    occupied_by,
    requirements_of,
)
from climate.manager.leases import trusts
from climate.manager.leases.event_plan import planned_notices, reminder_gates, with_reminders
from climate.manager.leases.holds import HoldGate, needs_hold
from climate.manager.leases.idempotency import IdempotencyGate, IdempotentRequest, replay
from climate.manager.leases.ready_start import ReadyStartGate
from climate.manager.process.runtime import Runtime
from climate.observability import log_context
from climate.observability.metrics import counted
from climate.plugins.base import Requester

T = TypeVar("T")
# Receives a new lease, its demands, the error, and a function that books and stores the lease.
Store = Callable[[Session], None]
OnShortage = Callable[[Lease, Sequence[Demand], InsufficientResources, Store], None]


@dataclass(frozen=True, slots=True)
class Owner:
    """The user who sends a request, with the project and the roles from the user's token.

    If ``sees_private`` is true, the user may name private properties (hidden from ordinary users)
    in a query.
    """

    user_id: str
    project_id: str
    roles: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    sees_private: bool = field(default=False, kw_only=True)

    @property
    def requester(self) -> Requester:
        """The user in the form that plug-ins expect, without roles."""
        return Requester(self.project_id, self.user_id, self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """A request for a lease, with its dates, reservations and reminders.

    ``before_end`` is when to remind the user of the end (None: the configured default).
    ``user_events`` are further events, as pairs (kind, due time). If one of them is a reminder, it
    replaces the configured reminders of the same kind. ``asked_at`` is when the request arrived
    (None: now). The start date must not be before the minute of ``asked_at``. It may be before the
    present time, because climate may have spent some time reading data from the cloud after the
    request arrived.
    """

    name: str
    start: datetime
    end: datetime
    before_end: datetime | None = None
    reservations: tuple[ReservationRequest, ...] = ()
    user_events: tuple[tuple[str, datetime], ...] = field(default=())
    start_when: StartWhen = StartWhen.SCHEDULED
    asked_at: datetime | None = None


@counted("create")
def create_lease(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    idempotent: IdempotentRequest | None = None,
    on_shortage: OnShortage | None = None,
) -> Lease:
    """Admit and store a lease, and return it.

    If ``idempotent`` is set, the function admits at most one lease per idempotency key. If too few
    resources are free, ``on_shortage`` may store the lease in another way. Raises
    InvalidDate, InvalidQuery, UnsupportedResourceType, NotProvisioned, NotEnoughResources,
    LimitExceeded, Contention, and the errors of ``idempotency.replay`` and ``HoldGate.settle``.
    """
    lease = draft_once(runtime, owner, request, idempotent)
    gates = gates_of(runtime, owner, lease, idempotent)
    book(runtime, owner, lease, gates, on_shortage)
    for gate in gates:
        lease = gate.settle(lease)
    runtime.wakeup.hint()
    return lease


def draft_once(
    runtime: Runtime, owner: Owner, request: LeaseRequest, idempotent: IdempotentRequest | None
) -> Lease:
    """Return the result of ``draft``, and mention the lease in later log messages.

    Raises the errors of ``draft``. But if its dates have passed, and an earlier request with the
    idempotency key succeeded, raises AlreadyProcessed.
    """
    try:
        lease = draft(runtime, owner, request, runtime.clock.now())
    except InvalidDate:
        replay(runtime.database, idempotent)  # the first request may have been in time
        raise
    log_context.about_lease(lease.id)
    return lease


def book(
    runtime: Runtime,
    owner: Owner,
    lease: Lease,
    gates: Sequence[Gate],
    on_shortage: OnShortage | None = None,
) -> None:
    """Book resources for a new lease and store it, or raise Refusal or the error of a gate.

    If too few resources are free, ``on_shortage`` may store the lease in another way.
    """
    demands = _demands(runtime, lease)
    suggested = suggest(runtime, lease, demands)
    store = partial(_store, runtime, owner=owner, lease=lease, gates=gates)
    refuse = partial(_refuse_from_memory, runtime, owner, lease, demands, gates)
    with _explained(runtime, lease, gates):
        try:
            # This brings memory up to date, which is not needed if it suggests enough.
            if suggested is not None and len(suggested) < demands[0].requirement.minimum:
                refuse(explains=on_shortage is None)
            tables, private = _rows(lease, lease.created_at), owner.sees_private
            at_once = plan_at_once(runtime, lease, demands, tables, sees_private=private)
            outcome = book_at_once(runtime, lease, demands, at_once, gates, suggested)
            if outcome is AtOnce.SHORT:
                refuse(explains=on_shortage is None)
            if outcome is not AtOnce.BOOKED:
                runtime.database.write(store)
        except InsufficientResources as shortage:
            if on_shortage is None:
                raise
            on_shortage(lease, demands, shortage, store)


@counted("create_dry_run")
def preview_lease(runtime: Runtime, owner: Owner, request: LeaseRequest) -> Preview:
    """Return what climate would store for a new lease, without storing it (a dry run).

    The transaction does everything that a real request does, and is then rolled back. Raises the
    errors of ``create_lease``. A dry run does not call the services in ``Preview.not_checked``, so
    their errors do not occur.
    """
    now = runtime.clock.now()
    lease = draft(runtime, owner, request, now)
    not_checked = _not_checked(runtime, owner, lease)
    gates = gates_of(runtime, owner, lease, None)
    _refuse_from_memory(runtime, owner, lease, _demands(runtime, lease), gates)
    requester = (owner.user_id, owner.project_id, owner.roles)

    def work(session: Session) -> Sequence[Account] | None:
        _store(runtime, session, owner, lease, gates)
        return use_after(runtime, session, lease, requester, now)

    with _explained(runtime, lease, gates):
        accounts = runtime.database.rehearse(work)
    lease = with_reminders(lease, gates)
    with runtime.database.read() as session:  # without the locks of the transaction
        capacity = free_capacity(runtime, session, lease, now, {})
    return Preview(lease=lease, reservations=capacity, accounts=accounts, not_checked=not_checked)


def _not_checked(runtime: Runtime, owner: Owner, lease: Lease) -> list[str]:
    """Return the names of the services that only a real request calls, and a dry run does not.

    Raises Conflict if the lease requires a trust and the requester cannot create one.
    """
    names = []
    if runtime.enforcer is not None and runtime.enforcer.checks_create:
        names.append("enforcement")
    if any_acts_as_user(runtime.catalog, lease.reservations):
        trusts.check_possible(runtime, owner.requester)
        names.append("trust")
    if any_prepares(runtime.catalog, lease.reservations):
        names.append("preparation")
    return names


def _store(
    runtime: Runtime, session: Session, owner: Owner, lease: Lease, gates: Sequence[Gate]
) -> None:
    """Book resources for a new lease and store the lease, in this transaction.

    The gates (checks of optional features, such as limits) are called before and after the booking.
    """
    now = lease.created_at
    stored = lease
    for gate in gates:
        stored = gate.stored(stored)
    for gate in gates:
        gate.before(session, stored, now)
    _admit(runtime, session, stored, now, private=owner.sees_private)
    for gate in gates:
        gate.after(session, stored, now)


def _refuse_from_memory(
    runtime: Runtime,
    owner: Owner,
    lease: Lease,
    demands: Sequence[Demand],
    gates: Sequence[Gate],
    *,
    explains: bool = True,
) -> None:
    """Raise an error if the calendar in memory has too few free resources for a new lease.

    The error is a Refusal, or InsufficientResources if ``explains`` is not set. Raises
    InvalidQuery, LimitExceeded as the transaction would.
    """
    found = find_shortage(runtime, lease, demands)
    if found is None:
        return
    shortage, view = found
    requirements = [demand.requirement for demand in demands]
    with runtime.database.read() as session:
        check_queries(session, runtime.catalog, requirements, private=owner.sees_private)
        if all(gate.before_refusal(session, lease, lease.created_at) for gate in gates):
            if not explains:
                raise shortage
            bookings = RememberedBookings(runtime, session, view, runtime.rng.random())
            raise explain(bookings, shortage, lease, gates)


@contextmanager
def _explained(runtime: Runtime, lease: Lease, gates: Sequence[Gate]) -> Iterator[None]:
    """Return a context that adds an explanation to the error if too few resources are free.

    The caller runs the transaction of the lease in the context. The context computes the
    explanation after this transaction, in another one.
    """
    try:
        yield
    except InsufficientResources as shortage:
        found = find_shortage(runtime, lease, shortage.demands)
        with runtime.database.read() as session:
            bookings: Bookings
            if found is None:
                bookings = StoredBookings.about(runtime, session, shortage)
            else:
                bookings = RememberedBookings(runtime, session, found[1], runtime.rng.random())
            raise explain(bookings, shortage, lease, gates) from None


def gates_of(
    runtime: Runtime,
    owner: Owner,
    lease: Lease,
    idempotent: IdempotentRequest | None,
    *more: Gate,
) -> list[Gate]:
    """Return the gates of this request, one per optional feature, in the order of their calls.

    A gate can check or reject the lease. Limits and idempotency keys are examples of optional
    features. The gates ``more`` are called before those of limits.
    """
    gates = reminder_gates(runtime, lease)
    if lease.start.when is StartWhen.READY:
        gates.append(ReadyStartGate(runtime.settings, runtime.catalog))
    if idempotent is not None:
        gates.append(IdempotencyGate(idempotent, lease, tuple(gates)))
    gates += more
    if runtime.settings.limits.is_active:
        gate = LimitGate if runtime.settings.limits.enabled else OpenLeasesGate
        gates.append(gate(runtime.settings.limits, owner.roles))
    if not lease.is_offer and needs_hold(runtime, lease):
        gates.append(HoldGate(runtime, owner.requester, idempotent))
    return gates


def _admit(
    runtime: Runtime, session: Session, lease: Lease, now: datetime, *, private: bool
) -> None:
    """Choose and lock resources for the lease; store the lease with its bookings.

    Also write the notification ``lease.create``, but not if the lease has the status CREATING,
    because an external service must allow the lease first. ``private`` states whether the user may
    name private properties (hidden from ordinary users) in a query.
    """
    demands = _demands(runtime, lease)
    occupied = occupied_by(lease, now, runtime.settings)
    requirements = [demand.requirement for demand in demands]
    check_queries(session, runtime.catalog, requirements, private=private)
    chosen = admit(session, demands, occupied, runtime.preference())
    lease_row, reservations, *others = _rows(lease, now)
    insert(
        session, lease_row, reservations, (AllocationRow, rows(demands, chosen, occupied)), *others
    )


def _rows(lease: Lease, now: datetime) -> list[Rows]:
    """Return the rows of a new lease, its reservations and events, and of its notification."""
    tables: list[Rows] = [*leases.rows(lease)]
    if lease.status is not LeaseStatus.CREATING:  # the confirmation of a held lease notifies
        tables.append(outbox.rows([(event_type.LEASE_CREATE, blazar_wire.payload(lease))], now))
    return tables


def _demands(runtime: Runtime, lease: Lease) -> list[Demand]:
    """Return what the reservations of a new lease require."""
    return [
        Demand(reservation_id=reservation.id, requirement=requirement)
        for reservation in lease.reservations
        for requirement in requirements_of(runtime.catalog, reservation, lease.project_id)
    ]


def draft(runtime: Runtime, owner: Owner, request: LeaseRequest, now: datetime) -> Lease:
    """Return the lease that a request describes; nothing is stored or booked yet.

    The function has no side effects. Raises InvalidDate, UnsupportedResourceType.
    """
    window = Window(request.start, request.end)
    if window.start < minute_of(request.asked_at or now):
        raise starts_in_the_past(window.start, now)
    if window.end <= now:
        raise ends_too_early(window.end, now)
    lease_id, notices = ids.new_id(), planned_notices(request, window, runtime.settings)
    lease = Lease(
        id=lease_id,
        name=request.name,
        user_id=owner.user_id,
        project_id=owner.project_id,
        window=window,
        status=LeaseStatus.PENDING,
        degraded=False,
        notices=notices,
        reservations=new_reservations(runtime.catalog, lease_id, request.reservations, now),
        events=tuple(
            Event.planned(planned, lease_id, ids.new_id(), now)
            for planned in plan(window, notices, now)
        ),
        created_at=now,
        updated_at=None,
        start=Start(when=request.start_when),
    )
    return margined(runtime, lease, now)


def create_earliest(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    length: timedelta,
    idempotent: IdempotentRequest | None = None,
) -> Lease:
    """Create a lease of the duration ``length`` in the earliest free window, and return it.

    The window lies between ``request.start`` and ``request.end``. Raises SearchTooLong, and the
    errors of ``create_lease``.
    """
    create = partial(create_lease, runtime, owner, idempotent=idempotent)
    return in_earliest_window(runtime, owner, request, length, idempotent, create)


def preview_earliest(
    runtime: Runtime, owner: Owner, request: LeaseRequest, length: timedelta
) -> Preview:
    """Return what ``create_earliest`` would store, without storing it.

    Raises SearchTooLong, and the errors of ``preview_lease``.
    """
    preview = partial(preview_lease, runtime, owner)
    return in_earliest_window(runtime, owner, request, length, None, preview)


def in_earliest_window(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    length: timedelta,
    idempotent: IdempotentRequest | None,
    create: Callable[[LeaseRequest], T],
) -> T:
    """Return the result of ``create`` for the earliest free window of the duration ``length``.

    The window lies between ``request.start`` and ``request.end``. Raises SearchTooLong, Contention,
    and the errors of ``create``.
    """
    within = Window(request.start, request.end)
    project, private = owner.project_id, owner.sees_private
    for _ in range(window_search.ATTEMPTS):
        offer = window_search.search(
            runtime, request.reservations, length, within, project_id=project, private=private
        )
        window = offer.window if offer else Window(request.start, request.start + length)
        try:
            return create(replace(request, start=window.start, end=window.end))
        except Refusal as error:
            if offer is None:
                # The first request with the key may hold the resources.
                replay(runtime.database, idempotent)
                raise error.in_no_window(within, length) from None
    raise Contention("What becomes free is taken by others at once: try again shortly")
