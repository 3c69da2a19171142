"""Change a lease in one transaction, so that a rejected change stores nothing.

Before the transaction searches for resources, it deletes the lease's own bookings, so that the
search finds these resources free. A pending lease then keeps those of its resources that still fit.
A running lease keeps all its resources, or the change is rejected. If a running lease gains
resources, the transaction adds an ``update_lease`` event, which is due now: with it, a manager
gives the users access to the new resources. Optional features such as limits take part through
gates, as in ``create``.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from climate.core.errors import Contention, Forbidden, InvalidInput, LeaseBusy
from climate.core.lease import blazar_wire
from climate.core.lease.change import (
    changed_notices,
    changed_start,
    changed_window,
    check_changeable,
    earliest_span,
    moved,
)
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease, Reservation, StartWhen
from climate.core.lease.schedule import START
from climate.core.notifications import event_type
from climate.core.window import Window
from climate.db.engine.database import LostRace
from climate.db.events import queue as event_queue
from climate.db.leases import leases, waits
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.manager.admission import window_search
from climate.manager.admission.admission import InsufficientResources
from climate.manager.admission.gates import Gate
from climate.manager.admission.limits.limits import LimitGate
from climate.manager.admission.preview import Preview, free_capacity, use_after
from climate.manager.admission.reallocation import reallocate
from climate.manager.admission.refusal.bookings import StoredBookings
from climate.manager.admission.refusal.refusal import Refusal, explain
from climate.manager.admission.requirements import (
    any_acts_as_user,
    any_prepares,
    check_queries,
    margins_of,
    requirements_of,
)
from climate.manager.enforcement import Enforcer
from climate.manager.leases import trusts
from climate.manager.leases.create import Owner
from climate.manager.leases.event_plan import add_update_event, remargined, reschedule
from climate.manager.leases.holds import prepared
from climate.manager.leases.read import as_enforced, check_expected
from climate.manager.leases.ready_start import ReadyStartGate
from climate.manager.leases.reservation_changes import (
    LeaseChange,
    change_reservations,
    complete,
    needs_start,
    requested,
)
from climate.manager.process.runtime import Catalog, Runtime
from climate.observability.metrics import counted
from climate.plugins.base import Requester

T = TypeVar("T")

# Calls of the enforcement service per change. Another call is necessary if concurrent requests have
# altered the outcome that the service agreed to.
_PROPOSALS = 3


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A changed lease, and what the enforcement service gets: the lease before and after it."""

    lease: Lease = field(compare=False)
    current: Mapping[str, Any]
    new: Mapping[str, Any]


class _OutcomeChanged(Exception):
    """Raised if the result of a change is not what the enforcement service allowed."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to change a lease.

    ``owner`` sends the request. The change fails if the stored lease differs from ``expected``, the
    lease that the client has read. ``trust_id`` is the trust that was created for this request.
    """

    lease_id: str
    change: LeaseChange
    owner: Owner | None
    expected: Lease | None
    trust_id: str | None


@counted("update")
def update_lease(
    runtime: Runtime,
    lease_id: str,
    change: LeaseChange,
    owner: Owner | None = None,
    expected: Lease | None = None,
) -> Lease:
    """Change a lease and return the changed lease.

    ``owner`` is the user who sends the request. If it is None, the change does not use the cloud.

    Raises NotFound, LeaseBusy, InvalidInput, Conflict, NotEnoughResources, LimitExceeded,
    Contention, EnforcementDenied, EnforcementUnavailable, and the errors of ``trusts.make``,
    ``trusts.check_owner``, ``reservation_changes.complete`` and ``holds.prepared``. Raises
    LeaseChanged if the stored lease differs from ``expected``, and SearchTooLong.
    """
    request = _Request(lease_id, change, owner, expected, None)
    if change.earliest is not None:
        return _at_earliest(runtime, request, partial(_update, runtime))
    return _update(runtime, request)


def _update(runtime: Runtime, request: _Request) -> Lease:
    lease_id, owner = request.lease_id, request.owner
    make_trust = partial(trusts.make, runtime)
    change = _completed(runtime, lease_id, request.change, owner)
    trust_id = _trust_for(runtime, lease_id, change, owner, make_trust) if owner else None
    request = replace(request, change=change, trust_id=trust_id)
    try:
        return _write_prepared(runtime, request)
    except Exception:
        if trust_id is not None:
            now = runtime.clock.now()
            runtime.database.write(partial(trusts.schedule_revocation, trust_id=trust_id, now=now))
        raise
    finally:
        runtime.wakeup.hint()


@counted("update_dry_run")
def preview_change(
    runtime: Runtime,
    lease_id: str,
    change: LeaseChange,
    owner: Owner,
    expected: Lease | None = None,
) -> Preview:
    """Return what climate would store for a change of a lease, without storing it (a dry run).

    The transaction does everything that a real request does, and is then rolled back. Raises the
    errors of ``update_lease``, but not those of the services in ``Preview.not_checked``.
    """
    request = _Request(lease_id, change, owner, expected, None)
    preview = partial(_preview, runtime, owner)
    if change.earliest is not None:
        return _at_earliest(runtime, request, preview)
    return preview(request)


def _preview(runtime: Runtime, owner: Owner, request: _Request) -> Preview:
    lease_id = request.lease_id
    change = _completed(runtime, lease_id, request.change, owner)
    # The transaction stores an id of no trust, as if Keystone had created one, and rolls back.
    check_trust = partial(trusts.check_possible, runtime)
    trust_id = _trust_for(runtime, lease_id, change, owner, check_trust)
    request, now = replace(request, change=change, trust_id=trust_id), runtime.clock.now()
    enforcer = runtime.enforcer
    is_checked = enforcer is not None and enforcer.checks_update and not change.keeps_bookings
    is_prepared = any_prepares(runtime.catalog, change.added)
    needs = {"enforcement": is_checked, "trust": trust_id, "preparation": is_prepared}

    def work(session: Session) -> Preview:
        lease = _change(runtime, session, request, now)
        requester = (owner.user_id, owner.project_id, owner.roles)
        accounts = use_after(runtime, session, lease, requester, now)
        live = [reservation.id for reservation in lease.reservations if reservation.stays]
        held = allocations.held(session, live)
        allocations.release(session, live)
        capacity = free_capacity(runtime, session, lease, now, held)
        return Preview(
            lease=lease,
            reservations=capacity,
            accounts=accounts,
            not_checked=[name for name, is_needed in needs.items() if is_needed],
        )

    return runtime.database.rehearse(work)


def _at_earliest(runtime: Runtime, request: _Request, apply: Callable[[_Request], T]) -> T:
    """Find the earliest window for a changed lease, and call ``apply`` with a request for it."""
    change = _completed(runtime, request.lease_id, request.change, request.owner)
    # One deadline for all attempts, because each search holds the lock of the lease.
    deadline = runtime.clock.elapsed() + runtime.settings.search_timeout
    search = partial(
        _find_earliest, runtime, request=replace(request, change=change), deadline=deadline
    )
    for _ in range(window_search.ATTEMPTS):
        within, length, found = runtime.database.rehearse(search)
        start = within.start if found is None else found.start
        dates = replace(request.change.dates, start=start, duration=length)
        try:
            return apply(replace(request, change=replace(change, dates=dates, earliest=None)))
        except Refusal as error:
            if found is None:
                raise error.in_no_window(within, length) from None
    raise Contention("What becomes free is taken by others at once: try again shortly")


def _find_earliest(
    runtime: Runtime, session: Session, request: _Request, deadline: float
) -> tuple[Window, timedelta, Window | None]:
    """Return the span of a search, the duration of the lease, and the earliest free window or None.

    The function removes the bookings of the lease in this transaction, so that they count as free;
    the caller rolls back. Until then, other leases that want the same time wait.
    """
    change, now = request.change, runtime.clock.now()
    lease = leases.get(session, request.lease_id, lock=True)
    check_expected(lease, request.expected)
    check_changeable(lease, only_name=False, wants_more=change.changes_reservations)
    end_by = change.earliest.end_by if change.earliest else None
    within, length = earliest_span(lease, change.dates, end_by, now)
    reservations = lease.reservations
    if change.changes_reservations:
        reservations, _ = change_reservations(runtime, session, lease, change, now)
        _check_queries(runtime.catalog, session, lease, reservations, request.owner)
    live = [reservation for reservation in reservations if reservation.stays]
    parts = (requirements_of(runtime.catalog, each, lease.project_id) for each in live)
    requirements = list(chain.from_iterable(parts))
    margins = margins_of(runtime, session, live, requirements, now)
    query = window_search.window_search(runtime, requirements, length, within, deadline, margins)
    allocations.release(session, [reservation.id for reservation in lease.reservations])
    offer = next(window_search.offers(runtime, session, query), None)
    return within, length, None if offer is None else offer.window


def _completed(
    runtime: Runtime, lease_id: str, change: LeaseChange, owner: Owner | None
) -> LeaseChange:
    """Return ``change``, with data that plug-ins read from the cloud for changed reservations.

    If ``owner`` is None, plug-ins read nothing, and the result is ``change``.
    """
    if owner is None or not change.reservations:
        return change
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    reservations = complete(runtime, lease, change, owner.requester)
    return replace(change, reservations=reservations)


def _trust_for(
    runtime: Runtime,
    lease_id: str,
    change: LeaseChange,
    owner: Owner,
    make: Callable[[Requester], str],
) -> str | None:
    """Create a Keystone trust with ``make`` if the change needs a new one; return its id or None.

    In a dry run, ``make`` only checks whether climate could create a trust. With a trust, climate
    acts in the cloud as the user. A change needs a new trust in two cases:

    - The lease has no trust, and a changed or added reservation requires one.
    - The lease's trust no longer works, and the requester is the lease's user.
    """
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    if lease.trust_id is None:
        if change.changes_reservations:
            changed = [new for _, new in requested(runtime.catalog, lease, change.reservations)]
            if any_acts_as_user(runtime.catalog, (*changed, *change.added)):
                trusts.check_owner(owner.requester, lease)
                return make(owner.requester)
    elif lease.trust_lost is not None and trusts.is_owner(owner.requester, lease):
        with nullcontext() if change == LeaseChange() else suppress(Forbidden):
            return make(owner.requester)
    return None


def _write_prepared(runtime: Runtime, request: _Request) -> Lease:
    """Let plug-ins prepare the cloud for the change, and store the change."""
    if request.owner is None or not request.change.changes_reservations:
        return _write(runtime, request)
    with runtime.database.read() as session:
        lease = leases.get(session, request.lease_id)
    check_expected(lease, request.expected)
    with prepared(runtime, lease, request.change, request.owner.requester) as change:
        return _write(runtime, replace(request, change=change))


def _write(runtime: Runtime, request: _Request) -> Lease:
    if runtime.enforcer and runtime.enforcer.checks_update and not request.change.keeps_bookings:
        return _write_agreed(runtime, runtime.enforcer, request)
    now = runtime.clock.now()
    return runtime.database.write(lambda session: _change(runtime, session, request, now))


def _change(runtime: Runtime, session: Session, request: _Request, now: datetime) -> Lease:
    """Change the lease in this transaction and return it."""
    change = request.change
    lease = leases.get(session, request.lease_id, lock=True)
    check_expected(lease, request.expected)
    check_changeable(lease, only_name=change.keeps_bookings, wants_more=change.changes_reservations)
    if request.trust_id is not None:
        lease = trusts.replace_trust(session, lease, request.trust_id, now)
    elif change == LeaseChange():
        return lease
    gates = _gates(runtime, request)
    start = changed_start(lease, change.start_when)
    renamed = replace(lease, name=change.name or lease.name, start=start, updated_at=now)
    if change.keeps_bookings:
        leases.update(session, renamed)
    else:
        _rebook(runtime, session, renamed, request, now, gates)
    changed = leases.get(session, lease.id)
    for gate in gates:
        gate.after(session, changed, now)
    if changed.trust_id is None and any_acts_as_user(runtime.catalog, changed.reservations):
        raise LeaseBusy(f"Lease {lease.id} was changed by others meanwhile: try again")
    if lease.start.delayed_at is not None:  # it may wait for hosts that it no longer needs
        event_queue.run_now(session, lease.id, [START], now)
    outbox.write(session, event_type.LEASE_UPDATE, blazar_wire.payload(changed), now, lease.window)
    return changed


def _gates(runtime: Runtime, request: _Request) -> list[Gate]:
    """Return the gates of this change, one per optional feature, in the order of their calls."""
    gates: list[Gate] = []
    if runtime.settings.limits.enabled and not request.change.keeps_bookings:
        roles = request.owner.roles if request.owner else ()
        gates.append(LimitGate(runtime.settings.limits, roles))
    if request.change.start_when is StartWhen.READY:
        gates.append(ReadyStartGate(runtime.settings, runtime.catalog))
    return gates


def _rebook(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    request: _Request,
    now: datetime,
    gates: Collection[Gate],
) -> None:
    """Store new dates and reservations of the lease, with their allocations and events."""
    change = request.change
    window = changed_window(lease, change.dates, now)
    for gate in gates:
        gate.before(session, replace(lease, window=window), now, lease)
    if window.end <= now and (change.reservations or change.added):
        raise InvalidInput("The lease ends now: send the end without changed or new reservations")
    notices = changed_notices(lease, change.dates, window)
    reservations, leaving = lease.reservations, False
    if change.changes_reservations:
        reservations, leaving = change_reservations(runtime, session, lease, change, now)
        _check_queries(runtime.catalog, session, lease, reservations, request.owner)
    before = lease
    lease = remargined(runtime, session, lease, reservations, window, now)
    after = replace(lease, window=window, reservations=reservations)
    try:
        has_gains = reallocate(runtime, session, lease, after, change.joining, now)
    except InsufficientResources as shortage:
        bookings = StoredBookings.about(runtime, session, shortage)
        raise explain(bookings, shortage, after, gates, lease) from None
    changed = moved(replace(lease, reservations=reservations), window, notices, now)
    leases.update(session, changed)
    if lease.status is LeaseStatus.PENDING:
        waits.leave(session, lease.id)  # its owner has chosen the dates
    reschedule(session, before, changed, now)
    unfinished = bool(change.added) or (lease.degraded and bool(change.reservations))
    unfinished |= any(reservation.planned for reservation in change.reservations)
    unfinished |= bool(needs_start(runtime.catalog, lease, reservations))
    if (has_gains or unfinished or leaving) and lease.status is LeaseStatus.ACTIVE:
        add_update_event(session, lease, now)


def _check_queries(
    catalog: Catalog,
    session: Session,
    lease: Lease,
    reservations: Sequence[Reservation],
    owner: Owner | None,
) -> None:
    """Raise InvalidQuery if the property expression of a changed reservation is not allowed.

    An expression must not name unknown properties. It may name private properties (hidden from
    ordinary users) only if ``owner``, the user who sends the request, may see them. The expressions
    that the lease already has stay allowed in any case.
    """
    before, after = (
        [part for r in each if r.stays for part in requirements_of(catalog, r, lease.project_id)]
        for each in (lease.reservations, reservations)
    )
    private = owner is not None and owner.sees_private
    check_queries(session, catalog, after, private=private, present=before)


def _write_agreed(runtime: Runtime, enforcer: Enforcer, request: _Request) -> Lease:
    """Change a lease to exactly the result that the enforcement service allows.

    1. A transaction makes the change and rolls back.
    2. With no transaction open, the service decides about this result.
    3. A second transaction makes the change with the same random choices.

    If other requests altered the result meanwhile, for example because they booked the resources
    that this lease would gain, the function starts again, at most ``_PROPOSALS`` times.
    """
    for _ in range(_PROPOSALS):
        change = partial(_outcome, runtime, request, runtime.clock.now(), runtime.rng.random())
        agreed = runtime.database.rehearse(change)
        enforcer.check_update(agreed.current, agreed.new)
        try:
            return runtime.database.write(partial(change, agreed=agreed)).lease
        except _OutcomeChanged:
            continue
    raise LostRace


def _outcome(
    runtime: Runtime,
    request: _Request,
    now: datetime,
    seed: float,
    session: Session,
    agreed: _Outcome | None = None,
) -> _Outcome:
    """Change the lease in this transaction, and return the result.

    ``agreed`` is the result that the enforcement service has allowed (None: it was not called
    yet). Raises _OutcomeChanged if the result differs. ``seed`` makes random choices repeatable.
    """
    seeded = replace(runtime, rng=random.Random(seed))  # noqa: S311 - not a secret
    current = as_enforced(session, leases.get(session, request.lease_id, lock=True))
    lease = _change(seeded, session, request, now)
    outcome = _Outcome(lease, current, as_enforced(session, lease))
    if agreed is not None and outcome != agreed:
        raise _OutcomeChanged
    return outcome
