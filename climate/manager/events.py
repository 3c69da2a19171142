"""Running events: what each kind does, and how its outcome is stored.

An event is claimed (transaction 1), begun (2: the lease is looked at again, under its lock), acted
on through the plugins (no transaction), and finished (3: fenced on owner and attempt, with the
lease's new state and the notification). Events that only tell need one transaction after the
claim. What becomes of failures is in ``failures``.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.lease import Event, Lease
from climate.core.lifecycle import (
    LEASE,
    EventStatus,
    LeaseStatus,
    ReservationStatus,
    step,
)
from climate.core.schedule import (
    ACTIONS,
    BEFORE_END,
    END,
    PATIENCE,
    RELEASE,
    START,
    UPDATE,
)
from climate.db import allocations, events, leases
from climate.db.engine import on_commit
from climate.db.limits import keep_past_use
from climate.manager import acting, holds, outcomes
from climate.manager.announcements import announce, resources_of, tell_nodes_of
from climate.manager.calling import call_all
from climate.manager.claims import Claim, Work, close, give_way, lease_of
from climate.manager.failures import fail
from climate.manager.farewells import note_end
from climate.manager.leases import remove
from climate.manager.outcomes import Done
from climate.manager.runtime import Runtime
from climate.manager.telling import tell, tell_if_late

LOG = logging.getLogger(__name__)

# What the cloud is still at is looked at again so soon.
_SHORTLY = timedelta(seconds=1)


def run(runtime: Runtime, claim: Claim) -> None:
    """Run a claimed event to its outcome, good or bad."""
    work = runtime.database.write(lambda session: _begin(runtime, session, claim))
    if work is None:
        return
    if work.event.kind == RELEASE:
        holds.expire(runtime, claim, work.lease)
    else:
        _perform(runtime, claim, work)


def _perform(runtime: Runtime, claim: Claim, work: Work) -> None:
    """Act on each reservation, and store the outcome."""
    outcome = call_all(runtime, claim, work)
    lost = _lost(runtime, work, {**outcome.waiting, **outcome.failed})
    if runtime.clock.now() - work.event.due_at > PATIENCE:
        outcome.failed.update(outcome.waiting)
    if claim.permit.was_refused:  # whatever the plugin made of that: some of it was not done
        runtime.database.write(lambda session: give_way(session, claim))
    elif outcome.failed and not lost:
        runtime.database.write(lambda session: fail(runtime, session, claim, work, outcome.failed))
    elif outcome.waiting and not lost:
        again = runtime.clock.now() + _SHORTLY
        runtime.database.write(lambda session: give_way(session, claim, run_at=again))
    else:
        runtime.database.write(
            lambda session: _succeed(runtime, session, claim, work, Done(outcome.details, lost))
        )


def _lost(runtime: Runtime, work: Work, undone: Mapping[str, str]) -> Mapping[str, str]:
    """Return why which stacks could not be ended, if nothing else is left to be done."""
    patience = runtime.settings.stack_patience
    given_up = acting.given_up(work, undone, runtime.clock.now(), patience)
    return {id_: undone[id_] for id_ in given_up}


def _begin(runtime: Runtime, session: Session, claim: Claim) -> Work | None:
    """Look at the lease again; return the work to do, None if there is none (any more)."""
    now, lease = runtime.clock.now(), lease_of(session, claim)
    if lease is None:
        return None
    event = next(event for event in lease.events if event.id == claim.event_id)
    late = now - event.due_at
    on_commit(session, lambda: runtime.metrics.begun(event.kind, claim.attempt, late))
    if event.kind == RELEASE:
        return holds.begin_release(session, lease, event)
    tell_if_late(runtime, session, lease, event, now)
    if event.kind not in ACTIONS:
        tell(session, claim, lease, event, now)
        on_commit(session, lambda: runtime.metrics.event(event.kind, "done"))
        return None
    if _is_at_work(lease, event):
        give_way(session, claim)
        return None
    if not _is_called_for(lease, event, now):
        # A start that comes too late has failed; of the others nothing is missing.
        close(session, claim, now, EventStatus.ERROR if event.kind == START else EventStatus.DONE)
        return None
    status = _status_while(lease, event)
    if status is not lease.status:
        leases.set_status(session, lease.id, status, now)
    if event.kind == END:
        events.give_up(session, lease.id, START, now)
    live = [r.id for r in lease.reservations if r.status is not ReservationStatus.DELETED]
    return Work(event, lease, resources_of(session, live))


def _status_while(lease: Lease, event: Event) -> LeaseStatus:
    """Return where the lease stands while the action runs."""
    if lease.status is LeaseStatus.DELETING:
        return lease.status
    if event.kind == START:
        if lease.status is LeaseStatus.ERROR:  # tried again: no news before it has succeeded
            return lease.status
        return step(LEASE, lease.status, LeaseStatus.STARTING)
    if event.kind == END:
        present: LeaseStatus = lease.status
        if present is LeaseStatus.PENDING:  # whoever was to start it died before it could begin
            present = step(LEASE, present, LeaseStatus.STARTING)
        if present is LeaseStatus.STARTING:  # the start never succeeded, and its time is over
            present = step(LEASE, present, LeaseStatus.ERROR)
        return step(LEASE, present, LeaseStatus.TERMINATING)
    return lease.status


def _is_at_work(lease: Lease, event: Event) -> bool:
    """Tell whether another action of the lease is claimed too.

    The claim avoids that, but two managers may claim at the very moment at which an end becomes
    due. Seen under the lease's lock, at most one of the two goes on.
    """
    return any(
        other.status is EventStatus.IN_PROGRESS and other.kind in ACTIONS and other.id != event.id
        for other in lease.events
    )


def _is_called_for(lease: Lease, event: Event, now: datetime) -> bool:
    """Tell whether an action still makes sense in the lease's present state."""
    if event.kind == START:
        return lease.status in _STARTABLE and now < lease.window.end
    if event.kind in {UPDATE, BEFORE_END}:
        # Nothing is handed over any more that is taken back at once.
        in_time = event.kind == BEFORE_END or now < lease.window.end
        return lease.status is LeaseStatus.ACTIVE and in_time
    return lease.status is not LeaseStatus.TERMINATED


def _succeed(
    runtime: Runtime,
    session: Session,
    claim: Claim,
    work: Work,
    done: Done,
) -> None:
    """Store that the action is done; what the lease became meanwhile (DELETING) stays."""
    details = done.details
    now, lease = runtime.clock.now(), lease_of(session, claim)
    if lease is None or not close(session, claim, now, EventStatus.DONE):
        return
    late = now - work.event.due_at
    on_commit(session, lambda: runtime.metrics.done(work.event.kind, late))
    outcomes.store(session, work, lease, done, now)
    _let_go(runtime, session, lease, [id_ for id_ in details if work.is_leaving(id_)], now)
    if work.event.kind in {START, UPDATE}:
        short = any(one.missing_resources for one in leases.get(session, lease.id).reservations)
        leases.update(session, replace(lease, degraded=short, updated_at=now))
    if work.event.kind == END:
        _drop_open(session, lease)
        note_end(runtime, session, lease, now)
    if lease.status is not LeaseStatus.DELETING:
        after = _LEASE_AFTER.get(work.event.kind, lease.status)
        leases.set_status(session, lease.id, step(LEASE, lease.status, after), now)
    error = {"error": "; ".join(done.lost.values())} if done.lost else {}
    announce(session, lease.id, work.event.kind, now, **error)
    settings = runtime.settings.provisioning
    tell_nodes_of(settings, session, work.event.kind, lease, work.resources, now)
    if lease.status is LeaseStatus.DELETING and work.event.kind == END:
        remove(session, leases.get(session, lease.id), now, runtime.settings)


def _let_go(
    runtime: Runtime, session: Session, lease: Lease, reservation_ids: Sequence[str], now: datetime
) -> None:
    """Leave what reservations had to its cleaning; that they had it still counts."""
    if reservation_ids:
        if runtime.settings.limits.enabled:
            keep_past_use(session, lease, reservation_ids, now)
        allocations.detach(session, reservation_ids, now + runtime.settings.cleaning_time)


_STARTABLE = {LeaseStatus.PENDING, LeaseStatus.STARTING, LeaseStatus.ERROR}
_LEASE_AFTER = {START: LeaseStatus.ACTIVE, END: LeaseStatus.TERMINATED}


def _drop_open(session: Session, lease: Lease) -> None:
    """Remove what a lease that is over will not need: a start in retry, a snapshot, a notice."""
    waiting = [event.id for event in lease.events if event.status is EventStatus.UNDONE]
    events.remove(session, waiting)
