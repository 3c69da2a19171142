"""Add a lease to the wait list, show its place, and change how long and how urgently it waits."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, Conflict, InvalidDate
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Event, Lease
from climate.core.lease.schedule import EXPIRE, Planned
from climate.core.lease.wait_list import Wait, rank
from climate.core.matching.property_type import ALLOWED_PROJECTS
from climate.core.notifications import event_type
from climate.core.window import Window, second_from
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import leases, waits
from climate.db.notifications import outbox
from climate.db.resources import allocations
from climate.db.tables.bulk import insert
from climate.manager.admission import window_search
from climate.manager.admission.admission import insufficient
from climate.manager.admission.candidates import Demand
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import (
    can_wait,
    check_queries,
    margins_of,
    may_fit,
    needs_of,
    requirements_of,
)
from climate.manager.leases.create import LeaseRequest, Owner, draft, gates_of
from climate.manager.leases.idempotency import IdempotentRequest
from climate.manager.leases.read import as_enforced, check_expected, visible
from climate.manager.process.periodic_task import logged
from climate.manager.process.runtime import Runtime
from climate.manager.wait_list.passes import place_pool
from climate.manager.wait_list.placing import requirements_of_lease
from climate.observability import log_context
from climate.observability.metrics import counted

# How long a request for a new lease runs passes; then managers continue.
_PATIENCE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRequest:
    """A request to wait for capacity until ``until``, with a priority from 0 to 9.

    For a new lease, None means as long as the lease can still end in time, and the priority 0. For
    a change, None means no change.
    """

    until: datetime | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of a lease in the wait list.

    ``position`` counts from 1. ``expected_start`` is the earliest start beside the present bookings
    (None: not computed, or there is none); leases that are earlier in the list may take it.
    """

    wait: Wait
    position: int
    expected_start: datetime | None


@counted("create")
def wait_for_lease(
    runtime: Runtime,
    owner: Owner,
    request: LeaseRequest,
    length: timedelta,
    wait: WaitRequest,
    idempotent: IdempotentRequest | None = None,
) -> Lease:
    """Create a lease that starts as soon as capacity is free, and return it.

    The lease has the duration ``length``, starts at ``request.start`` or later, and ends by
    ``request.end``. It is PENDING if it has a booking already, else WAITING. Raises Conflict if a
    lease of this kind cannot wait, NotEnoughResources if climate can never satisfy it, and the
    errors of ``create_lease``.
    """
    now = runtime.clock.now()
    _check_can_wait(runtime, owner.project_id, request, length, wait, now)
    drafted = draft(runtime, owner, replace(request, end=request.start + length), now)
    log_context.about_lease(drafted.id)
    entry = _entry(runtime, owner, drafted, request.end, wait)
    expire = Event.planned(Planned(EXPIRE, entry.until), drafted.id, ids.new_id(), now)
    lease = replace(drafted, status=LeaseStatus.WAITING, events=(expire,))
    gates = gates_of(runtime, owner, lease, idempotent)
    _check_with_service(runtime, lease)

    def work(session: Session) -> None:
        _check_matching(runtime, session, lease, private=owner.sees_private)
        _store(session, lease, entry, gates)

    runtime.database.write(work)
    with logged("no pass for the new lease, managers will try again"):  # it is stored
        place_pool(runtime, entry.pool, moves=False, patience=_PATIENCE)
    runtime.wakeup.hint()
    with runtime.database.read() as session:
        return leases.get(session, lease.id)


def places(runtime: Runtime, shown: Sequence[Lease]) -> Mapping[str, Place]:
    """Return the places of those leases that are in the wait list, by lease id.

    The expected start is computed only if ``shown`` contains a single lease.
    """
    listed = [lease.id for lease in shown if lease.status in _LISTED]
    if not listed:
        return {}
    with runtime.database.read() as session:
        found = waits.find(session, listed)
        positions = waits.positions(session, list(found.values()))
        return {
            id_: Place(
                wait=wait,
                position=positions[id_],
                expected_start=wait.promised_start
                or (_expected(runtime, session, shown[0], wait) if len(shown) == 1 else None),
            )
            for id_, wait in found.items()
            if id_ in positions  # else its start has begun meanwhile
        }


def change_wait(
    runtime: Runtime, lease_id: str, change: WaitRequest, expected: Lease | None = None
) -> Lease:
    """Change the priority of a waiting lease, and until when it waits; return the lease.

    Raises NotFound, LeaseChanged, InvalidDate. Raises Conflict if the lease does not wait.
    """
    now = runtime.clock.now()

    def work(session: Session) -> Lease:
        lease = visible(leases.get(session, lease_id, lock=True))
        check_expected(lease, expected)
        wait = waits.find(session, [lease_id]).get(lease_id)
        if wait is None or lease.status is not LeaseStatus.WAITING:
            raise Conflict(f"Lease {lease_id} does not wait: only a waiting lease has a priority")
        until = change.until or wait.until
        _check_until(until, wait.length, wait.end_by, now)
        priority = wait.priority if change.priority is None else change.priority
        rank_at = rank(wait.asked_at, priority, runtime.settings.wait_list)
        waits.change(session, lease_id, priority, rank_at, until)
        # A new event: no manager has begun to remove the lease from the list at the new time.
        event_queue.remove(session, [event.id for event in lease.events])
        expire = Event.planned(Planned(EXPIRE, until), lease_id, ids.new_id(), now)
        leases.insert_events(session, [expire])
        leases.update(session, replace(lease, updated_at=now))
        changed = leases.get(session, lease_id)
        outbox.write(session, event_type.LEASE_UPDATE, blazar_wire.payload(changed), now)
        return changed

    lease = runtime.database.write(work)
    runtime.wakeup.hint()
    return lease


def _store(session: Session, lease: Lease, entry: Wait, gates: Sequence[Gate]) -> None:
    now = lease.created_at
    for gate in gates:
        gate.before(session, lease, now)
    told = outbox.rows([(event_type.LEASE_WAITING, blazar_wire.payload(lease))], now)
    insert(session, *leases.rows(lease), waits.rows(entry), told)
    for gate in gates:
        gate.after(session, lease, now)


_LISTED = {LeaseStatus.WAITING, LeaseStatus.PENDING}


def _entry(
    runtime: Runtime, owner: Owner, lease: Lease, end_by: datetime, wait: WaitRequest
) -> Wait:
    rules = runtime.settings.limits
    length = lease.window.end - lease.window.start
    reservations = [[r.resource_type, dict(r.params)] for r in lease.reservations]
    types, screens = runtime.settings.property_types, runtime.selection.screens
    restricted = ALLOWED_PROJECTS in types or bool(screens)
    packed = json.dumps(
        [reservations, *([lease.project_id] if restricted else [])], sort_keys=True, default=str
    )
    asked_at = lease.created_at
    return Wait(
        lease_id=lease.id,
        project_id=lease.project_id,
        user_id=lease.user_id,
        pool=",".join(sorted({r.resource_type for r in lease.reservations}))[:255],
        shape=hashlib.sha256(packed.encode()).hexdigest(),
        rank_at=rank(asked_at, wait.priority or 0, runtime.settings.wait_list),
        priority=wait.priority or 0,
        asked_at=asked_at,
        length=length,
        earliest=lease.window.start,
        end_by=end_by,
        until=wait.until or end_by - length,
        is_exempt=not rules.apply_to(owner.project_id, owner.user_id, owner.roles),
    )


def _check_can_wait(
    runtime: Runtime,
    project_id: str,
    request: LeaseRequest,
    length: timedelta,
    wait: WaitRequest,
    now: datetime,
) -> None:
    """Raise Conflict or InvalidDate if a lease of this kind cannot wait."""
    reservations = [part for each in request.reservations for part in (each, *each.children)]
    if not can_wait(runtime.catalog, reservations):
        raise Conflict(
            "Leases with stacks, or with servers or volumes that climate creates, cannot wait,"
            " because climate needs the user's token when it books them: send the request without"
            " wait"
        )
    requirements = needs_of(runtime.catalog, request.reservations, project_id)
    within = Window(request.start, request.end)
    window_search.window_search(runtime, requirements, length, within)
    _check_until(wait.until or request.end - length, length, request.end, now)


def _check_until(until: datetime, length: timedelta, end_by: datetime, now: datetime) -> None:
    if until <= now:
        raise InvalidDate("wait.until must be later than now")
    if until > end_by - length:
        latest = f"{end_by - length:%Y-%m-%dT%H:%M:%SZ}"
        raise InvalidDate(
            "wait.until must be early enough for the lease to end by end_by: at the latest"
            f" {latest}"
        )


def _check_with_service(runtime: Runtime, lease: Lease) -> None:
    """Ask the enforcement service; it sees the lease at its earliest time, and without resources.

    No capacity is held meanwhile, because a waiting lease has none.
    """
    if runtime.enforcer is not None and runtime.enforcer.checks_create:
        with runtime.database.read() as session:
            body = as_enforced(session, lease)
        runtime.enforcer.check_create(body)


def _check_matching(runtime: Runtime, session: Session, lease: Lease, *, private: bool) -> None:
    """Raise InsufficientResources if even an empty cloud could not satisfy the lease.

    The check does not notice all such leases if leases share resources.
    """
    demands = [
        Demand(reservation_id=reservation.id, requirement=requirement)
        for reservation in lease.reservations
        for requirement in requirements_of(runtime.catalog, reservation, lease.project_id)
    ]
    requirements = [demand.requirement for demand in demands]
    check_queries(session, runtime.catalog, requirements, private=private)
    for index, requirement in enumerate(requirements):
        matching = allocations.count(session, requirement)
        if not may_fit(requirement, matching):
            raise insufficient(demands, index, lease.window, matching=matching, free=matching)


def _expected(runtime: Runtime, session: Session, lease: Lease, wait: Wait) -> datetime | None:
    """Return the earliest start of a waiting lease beside the present bookings.

    Returns None if it fits nowhere, or the search fails.
    """
    start = second_from(max(runtime.clock.now(), wait.earliest))
    if start + wait.length > wait.end_by:
        return None
    within = Window(start, wait.end_by)
    try:
        parts = requirements_of_lease(runtime, lease)
        now = runtime.clock.now()
        margins = margins_of(runtime, session, lease.reservations, parts, now)
        found = window_search.earliest(runtime, session, parts, wait.length, within, margins)
    except ClimateError:  # for example, the search takes too long
        return None
    return None if found is None else found.start
