"""The beginning of events: what is to be done now, seen under the locks of their leases.

Much may have happened since an event was planned, and even since it was claimed. So each lease is
looked at again, and says what becomes of the event. That is stored for all of them together.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto

from sqlalchemy.orm import Session

from climate.core.lease import Event, Lease
from climate.core.lifecycle import LEASE, EventStatus, LeaseStatus, ReservationStatus, step
from climate.core.schedule import ACTIONS, BEFORE_END, END, RELEASE, START, UPDATE
from climate.db import events, leases
from climate.db.engine import on_commit
from climate.manager.announcements import resources_of
from climate.manager.claims import Claim, Seen, Task, Work, close_all, give_way, look
from climate.manager.leases import holds
from climate.manager.leases import ready_start as starting
from climate.manager.runtime import Runtime
from climate.manager.telling import tell, tell_if_late

_STARTABLE = {LeaseStatus.PENDING, LeaseStatus.STARTING, LeaseStatus.ERROR}
# A lease that somebody else has locked is looked at again so soon.
_AT_ONCE = timedelta(milliseconds=50)


class _Way(Enum):
    """What becomes of an event."""

    ACT = auto()
    TELL = auto()
    RELEASE = auto()
    WAIT = auto()
    TOO_LATE = auto()
    NEEDLESS = auto()


def begin(runtime: Runtime, session: Session, claims: Sequence[Claim]) -> list[Task]:
    """Look at the leases again; return the work to do, and finish what has none (any more)."""
    now = runtime.clock.now()
    seen, unseen = look(session, claims, patient=len(claims) == 1)
    ways: dict[_Way, list[Seen]] = defaultdict(list)
    looks = [starting.unless_waiting(runtime, session, one, now) for one in seen]
    seen = [one for one in looks if one is not None]
    for one in seen:
        ways[_way(one.lease, one.event, now)].append(one)
    tell_if_late(runtime, session, [s for s in seen if s.event.kind != RELEASE], now)
    tell(session, ways[_Way.TELL], now)
    for claim in unseen:
        give_way(session, claim, run_at=now + _AT_ONCE)
    for one in ways[_Way.WAIT]:
        give_way(session, one.claim)
    close_all(session, [one.claim for one in ways[_Way.TOO_LATE]], now, EventStatus.ERROR)
    close_all(session, [one.claim for one in ways[_Way.NEEDLESS]], now, EventStatus.DONE)
    on_commit(session, lambda: _count(runtime, seen, ways[_Way.TELL], now))
    released = [
        Task(one.claim, holds.begin_release(session, one.lease, one.event))
        for one in ways[_Way.RELEASE]
    ]
    return released + _act(runtime, session, ways[_Way.ACT], now)


def _count(runtime: Runtime, seen: Sequence[Seen], told: Sequence[Seen], now: datetime) -> None:
    for one in seen:
        runtime.metrics.event(one.event.kind, "claimed")
    for _, lease, event in told:
        if event.is_untried:
            runtime.metrics.tried(event.kind, now - lease.due(event, now))
        runtime.metrics.event(event.kind, "done")


def _act(runtime: Runtime, session: Session, seen: Sequence[Seen], now: datetime) -> list[Task]:
    """Store that these are acted on, and return what that takes."""
    if not seen:
        return []
    begun = {one.lease.id: _at_work(one.lease, one.event, now) for one in seen}
    leases.advance(session, [(one.lease, begun[one.lease.id]) for one in seen])
    ending = [one.lease for one in seen if one.event.kind == END]
    if unstarted := [lease.id for lease in ending if _is_to_start(lease)]:
        events.give_up(session, unstarted, START, now)
        for id_ in unstarted:  # whose events are others now
            del begun[id_]
    for lease in ending:
        starting.note_end(runtime, session, lease, now)
    live = {
        one.lease.id: [
            r.id for r in one.lease.reservations if r.status is not ReservationStatus.DELETED
        ]
        for one in seen
    }
    given = resources_of(session, {id_ for ids in live.values() for id_ in ids})
    return [
        Task(
            claim,
            Work(event, lease, {id_: given[id_] for id_ in live[lease.id]}, begun.get(lease.id)),
        )
        for claim, lease, event in seen
    ]


def _is_to_start(lease: Lease) -> bool:
    return any(one.kind == START and one.status is EventStatus.UNDONE for one in lease.events)


def _at_work(lease: Lease, event: Event, now: datetime) -> Lease:
    status = _status_while(lease, event)
    return lease if status is lease.status else replace(lease, status=status, updated_at=now)


def _way(lease: Lease, event: Event, now: datetime) -> _Way:
    if event.kind == RELEASE:
        return _Way.RELEASE
    if event.kind not in ACTIONS:
        return _Way.TELL
    if _is_at_work(lease, event):
        return _Way.WAIT
    if _is_called_for(lease, event, now):
        return _Way.ACT
    # A start that comes too late has failed; of the others nothing is missing.
    return _Way.TOO_LATE if event.kind == START else _Way.NEEDLESS


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
