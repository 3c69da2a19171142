"""Changing a lease: all of it in one transaction, so a refused change changes nothing.

The lease's own bookings do not count against it: they are given up first, and a pending lease
then keeps those of its resources that still fit. A running lease keeps all it has or the change
is refused; what it gains is handed over by an ``update_lease`` event that is due at once.
"""

import random
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import Forbidden, LeaseBusy
from climate.core.lease import blazar_wire
from climate.core.lease.blazar_wire import enforcement_body
from climate.core.lease.change import (
    Change,
    changed_notices,
    changed_start,
    changed_window,
    check_changeable,
    moved,
)
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import START, UPDATE, Planned
from climate.core.start import StartWhen
from climate.db import events, leases
from climate.db.engine.database import LostRace
from climate.db.notifications import outbox
from climate.enforcement import Enforcer
from climate.manager import children, composition, limits, starting, trusts
from climate.manager.admission import Shortage
from climate.manager.announcements import resources_of
from climate.manager.composition import ReservationChange
from climate.manager.drafts import Owner, new_event
from climate.manager.leases import Precondition
from climate.manager.limits import Guard
from climate.manager.reallocation import reallocate
from climate.manager.refusal import explained
from climate.manager.requests import ReservationRequest
from climate.manager.rescheduling import reschedule
from climate.manager.runtime import Runtime
from climate.observability.metrics import counted

# How often an enforcement service is asked about a change, if others change what it would be.
_PROPOSALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseChange:
    """What is to change; None or nothing keeps what is."""

    name: str | None = None
    dates: Change = field(default_factory=Change)
    reservations: tuple[ReservationChange, ...] = ()
    added: tuple[ReservationRequest, ...] = ()
    removed: tuple[str, ...] = ()
    start_when: StartWhen | None = None

    @property
    def keeps_bookings(self) -> bool:
        """Tell whether neither the dates nor what the lease reserves change."""
        return self.dates == Change() and not self.composes

    @property
    def composes(self) -> bool:
        """Tell whether what the lease reserves changes."""
        return bool(self.reservations or self.added or self.removed)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a change comes to, and what an enforcement service is told about it."""

    lease: Lease
    current: Mapping[str, Any]
    new: Mapping[str, Any]


class _Different(Exception):
    """What would be stored is not what was asked about."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """A change of a lease, who asks for it on what condition, and the trust made for it."""

    lease_id: str
    change: LeaseChange
    roles: Collection[str]
    precondition: Precondition | None
    trust_id: str | None


@counted("update")
def update(
    runtime: Runtime,
    lease_id: str,
    change: LeaseChange,
    owner: Owner | None = None,
    precondition: Precondition | None = None,
) -> Lease:
    """Change a lease and return it as it is then; ``owner`` is whoever asks.

    Raises NotFound, LeaseBusy, InvalidInput, Conflict, NotEnoughResources, LimitExceeded,
    Contention, EnforcementDenied, EnforcementUnavailable, and what ``precondition`` and
    ``trusts.make_for`` raise.
    """
    if owner is not None and change.reservations:
        change = _looked_up(runtime, lease_id, change, owner)
    trust_id = _trust_for(runtime, lease_id, change, owner) if owner else None
    wish = _Wish(lease_id, change, owner.roles if owner else (), precondition, trust_id)
    try:
        return _made(runtime, wish)
    except Exception:
        if trust_id is not None:
            now = runtime.clock.now()
            runtime.database.write(lambda session: trusts.drop(session, trust_id, now))
        raise
    finally:
        runtime.wakeup.hint()


def _looked_up(runtime: Runtime, lease_id: str, change: LeaseChange, owner: Owner) -> LeaseChange:
    """Return the change with what must be looked up for it. No transaction is open."""
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    planned = children.replanned(runtime, lease, change.reservations, owner.requester)
    return replace(change, reservations=planned)


def _trust_for(runtime: Runtime, lease_id: str, change: LeaseChange, owner: Owner) -> str | None:
    """Return a new trust if the lease needs its first, or another for one that is lost."""
    with runtime.database.read() as session:
        lease = leases.get(session, lease_id)
    if lease.trust_id is None:
        wished = composition.wished(runtime, lease, change.reservations)
        if trusts.needed(runtime, (*wished, *change.added)):
            return trusts.make_for(runtime, owner.requester, lease)
    elif lease.trust_lost is not None and trusts.is_owner(owner.requester, lease):
        with nullcontext() if change == LeaseChange() else suppress(Forbidden):
            return trusts.make(runtime, owner.requester)
    return None


def _made(runtime: Runtime, wish: _Wish) -> Lease:
    if runtime.enforcer and runtime.enforcer.checks_update and not wish.change.keeps_bookings:
        return _agreed(runtime, runtime.enforcer, wish)
    now = runtime.clock.now()
    return runtime.database.write(lambda session: _change(runtime, session, wish, now))


def _change(runtime: Runtime, session: Session, wish: _Wish, now: datetime) -> Lease:
    change = wish.change
    lease = leases.get(session, wish.lease_id, lock=True)
    if wish.precondition is not None:
        wish.precondition(lease)
    check_changeable(lease, only_name=change.keeps_bookings, wants_more=change.composes)
    if wish.trust_id is not None:
        lease = trusts.give(session, lease, wish.trust_id, now)
    elif change == LeaseChange():
        return lease
    start = changed_start(lease, change.start_when)
    renamed = replace(lease, name=change.name or lease.name, start=start, updated_at=now)
    if change.keeps_bookings:
        leases.update(session, renamed)
    else:
        limit = limits.guard(session, runtime.settings.limits, lease, wish.roles)
        _apply(runtime, session, renamed, change, now, limit)
    after = leases.get(session, lease.id)
    if after.trust_id is None and trusts.needed(runtime, after.reservations):
        raise LeaseBusy(f"Lease {lease.id} was changed by others meanwhile: try again")
    if change.start_when is not None:
        starting.check_possible(runtime, after)
    if lease.start.delayed_at is not None:  # it may wait for what it does not need any more
        events.hurry(session, lease.id, [START], now)
    outbox.write(session, "lease.update", blazar_wire.payload(after), now)
    return after


def _agreed(runtime: Runtime, enforcer: Enforcer, wish: _Wish) -> Lease:
    """Change a lease as an enforcement service agrees to, and no other way.

    The change is rehearsed and undone; the service is asked about the outcome, with no
    transaction open; then the change is made with the same choices. If others have been there
    meanwhile, so that the outcome is another, that is asked about, a few times at most. What the
    lease has is never given up for this, what it would gain may be lost to others meanwhile.
    """
    for _ in range(_PROPOSALS):
        now, seed = runtime.clock.now(), runtime.rng.random()

        def work(session: Session, now: datetime = now, seed: float = seed) -> _Outcome:
            same = replace(runtime, rng=random.Random(seed))  # noqa: S311 - not a secret
            current = _told(session, leases.get(session, wish.lease_id, lock=True))
            lease = _change(same, session, wish, now)
            return _Outcome(lease, current, _told(session, lease))

        proposed = runtime.database.rehearse(work)
        enforcer.check_update(proposed.current, proposed.new)
        try:
            return runtime.database.write(partial(_as_proposed, work, proposed))
        except _Different:
            continue
    raise LostRace


def _as_proposed(
    work: Callable[[Session], "_Outcome"], proposed: "_Outcome", session: Session
) -> Lease:
    made = work(session)
    if (made.current, made.new) != (proposed.current, proposed.new):
        raise _Different
    return made.lease


def _told(session: Session, lease: Lease) -> dict[str, Any]:
    """Return what an enforcement service is told about a lease as it is stored."""
    return enforcement_body(lease, resources_of(session, [one.id for one in lease.reservations]))


def _apply(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    change: LeaseChange,
    now: datetime,
    limit: Guard,
) -> None:
    window = changed_window(lease, change.dates, now)
    limit.check_dates(lease, window, now)
    if window.end <= now:  # what ends now keeps what it has until it is taken back
        change = replace(change, reservations=(), added=())
    used = limit.uses_of(session, lease)
    notices = changed_notices(lease, change.dates, window)
    reservations = composition.changed(runtime, lease, change.reservations)
    parts = children.reconciled(runtime, lease, change.reservations, now)
    reservations = (*parts.onto(reservations), *parts.new)
    reservations += composition.added(runtime, lease, change.added, now)
    composition.check_removed(lease, change.removed)
    removed = children.with_parts(lease, {*change.removed, *parts.superfluous})
    leaving = composition.remove(runtime, session, lease, removed, now)
    reservations = tuple(one for one in reservations if one.id not in removed)
    composition.store(session, lease, reservations, now)
    try:
        grown = reallocate(runtime, session, lease, reservations, window, now)
    except Shortage as shortage:
        wished = replace(lease, window=window, reservations=reservations)
        leeway = limits.Leeway(limit=limit, before=lease, used=used)
        raise explained(runtime, session, shortage, wished, leeway) from None
    after = moved(replace(lease, reservations=reservations), window, notices, now)
    leases.update(session, after)
    limit.check_use(session, after, used)
    reschedule(session, lease, after, now)
    unfinished = lease.degraded and bool(change.reservations)
    unfinished |= any(one.planned for one in change.reservations)
    if (grown or unfinished or leaving) and lease.status is LeaseStatus.ACTIVE:
        leases.insert_events(session, [new_event(lease.id, Planned(UPDATE, now), now)])
