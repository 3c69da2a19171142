"""A claim on an event, and its fence: what is stored in its name only while it holds.

A claim is kept by extending it, and is another's when nobody has extended it for a while
(``keeping``). What a worker does to the cloud for it is permitted until shortly before that.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.model import LEAVING, Event, Granted, Lease, Reservation
from climate.core.lease.schedule import END, START, UPDATE
from climate.core.record import record
from climate.db import events, leases
from climate.db.engine.database import is_retried
from climate.plugins import fencing
from climate.plugins.fencing import FencingToken

LOG = logging.getLogger(__name__)


@record(frozen=True, slots=True)
class Work:
    """What an action event needs: the lease, and the resources of each live reservation.

    ``begun`` is the lease as it was stored when the work began, if all of that is known.
    """

    event: Event
    lease: Lease
    resources: Mapping[str, tuple[Granted, ...]]
    begun: Lease | None = None

    @property
    def reservations(self) -> list[Reservation]:
        """Return the reservations that are to be acted on."""
        return [r for r in self.lease.reservations if r.id in self.resources]

    def is_leaving(self, reservation_id: str) -> bool:
        """Tell whether a reservation is taken back as it was removed from its lease.

        Those that are removed while others are handed over are not: they are handed over, too.
        """
        if self.event.kind not in {START, UPDATE, END}:
            return False
        for one in self.lease.reservations:
            if one.id == reservation_id:
                return LEAVING in one.details
        return False


@record(frozen=True, slots=True)
class Call:
    """A plugin that is at work for one reservation, ``since`` a moment of the clock's elapsed."""

    work: Work
    reservation_id: str
    since: float


@record(frozen=True, slots=True)
class Claim:
    """An event that this manager may run, as long as owner and attempt are still in its row.

    One that outlives its lease has no lease id. ``types`` are those of the lease's reservations.
    ``fencing_token`` limits its changes of the cloud; ``calls`` has the running plug-in call.
    """

    event_id: str
    lease_id: str | None
    owner: str
    attempt: int
    project_id: str | None = None
    types: frozenset[str] = frozenset()
    fencing_token: FencingToken = field(default_factory=FencingToken, compare=False)
    calls: list[Call] = field(default_factory=list, compare=False)

    def call_since_before(self, moment: float) -> Call | None:
        """Return the call under way if it began before a moment of the clock's elapsed."""
        return next((call for call in list(self.calls) if call.since < moment), None)

    @contextmanager
    def calling(self, work: Work, reservation: Reservation, since: float) -> Iterator[None]:
        """Let a plugin work under the permit, for others to see; raises Fenced if that is over."""
        self.fencing_token.check()
        self.calls.append(Call(work, reservation.id, since))
        try:
            with fencing.fenced(self.fencing_token):
                yield
        finally:
            self.calls.clear()


class Seen(NamedTuple):
    """A claim of ours, and its lease and event as they are under the lease's lock."""

    claim: Claim
    lease: Lease
    event: Event


class Task(NamedTuple):
    """A claim, and the work that it is about."""

    claim: Claim
    work: Work


def lease_of(session: Session, claim: Claim) -> Lease | None:
    """Lock and return the lease of a claim; None if the claim is not ours any more."""
    seen, _ = look(session, [claim], patient=True)
    return seen[0].lease if seen else None


def look(
    session: Session, claims: Sequence[Claim], *, patient: bool
) -> tuple[list[Seen], list[Claim]]:
    """Lock the leases of claims, and return them as far as the claims are ours.

    That may be over the next moment: what is stored as an outcome is fenced anew. Those that
    somebody else has locked are not waited for unless we are ``patient``: their claims are returned
    beside, and those whose lease is gone.
    """
    ids = {claim.lease_id for claim in claims if claim.lease_id is not None}
    found = leases.find_some(session, ids, lock=True, patient=patient)
    seen, unseen = [], []
    for claim in claims:
        lease = found.get(claim.lease_id or "")
        event = _held(lease, claim) if lease is not None else None
        if lease is None:
            unseen.append(claim)
        elif event is None:
            LOG.warning("event %s of lease %s was taken over", claim.event_id, claim.lease_id)
        else:
            seen.append(Seen(claim, lease, event))
    return seen, unseen


def look_again(session: Session, tasks: Sequence[Task]) -> tuple[list[Seen], list[Claim]]:
    """As ``look``, for claims whose work was done: what nobody has changed since it began is known.

    That a claim was taken over is seen when the outcome is stored, and then all is looked at.
    """
    patient = len(tasks) == 1
    if is_retried(session):
        return look(session, [task.claim for task in tasks], patient=patient)
    begun = [work.begun for _, work in tasks if work.begun is not None]
    same = leases.lock_unchanged(session, begun, patient=patient)
    known, others = [], []
    for claim, work in tasks:
        if work.begun is not None and work.begun.id in same:
            known.append(Seen(claim, work.begun, work.event))
        else:
            others.append(claim)
    seen, unseen = look(session, others, patient=patient) if others else ([], [])
    return known + seen, unseen


def _held(lease: Lease, claim: Claim) -> Event | None:
    """Return the event, if it is still claimed like that."""
    held = (claim.event_id, EventStatus.IN_PROGRESS, claim.owner, claim.attempt)
    mine = (e for e in lease.events if (e.id, e.status, e.owner, e.attempt) == held)
    return next(mine, None)


def close_all(
    session: Session, claims: Sequence[Claim], now: datetime, status: EventStatus
) -> None:
    """Store one outcome of claims of this manager; raises LostRace if not all are ours."""
    if claims:
        known = [(claim.event_id, claim.attempt) for claim in claims]
        events.finish_all(session, claims[0].owner, known, now, status.value)


def close(
    session: Session,
    claim: Claim,
    now: datetime,
    status: EventStatus,
    **outcome: Any,
) -> bool:
    """Store a claim's outcome; False if the claim is not ours any more."""
    return events.finish(
        session, claim.event_id, claim.owner, claim.attempt, now, status=status.value, **outcome
    )


def give_way(session: Session, claim: Claim, **again: datetime) -> None:
    """Undo the claim as if it had not been made, perhaps to a later ``run_at``."""
    events.give_way(session, claim.event_id, claim.owner, claim.attempt, **again)
