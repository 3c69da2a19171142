"""The use cases of those who get hosts ready: what is wanted, and how far they are with it.

A report is stored under the preparation's lock. That a lease can start with it is stored with it,
under the lease's lock before; of what else it means for the lease, a manager takes care
(``preparing``).
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core import preparation
from climate.core.errors import PreparationClaimed, PreparationOver
from climate.core.page import Page, Part, PreparationFilter
from climate.core.preparation import Preparation, PreparationState
from climate.db import leases, preparations, preparing, readiness, shutdowns
from climate.db.engine import on_commit
from climate.manager import notifications
from climate.manager.announcements import tell_nodes
from climate.manager.leases import ready_start as starting
from climate.manager.preparing import PREPARE, payload
from climate.manager.runtime import Runtime

# Seconds between two looks for a claim that is about to end.
_SHORTEST = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``owner`` says of a preparation.

    ``wanted`` hands it back. ``seconds`` were measured, by phase; of a host that was ``cold`` (had
    no power) they are learned from. A claim holds for ``claim``.
    """

    state: PreparationState
    owner: str
    claim: timedelta = timedelta(minutes=2)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cold: bool = False
    reason: str = ""


def find(runtime: Runtime, wanted: PreparationFilter, page: Page) -> Part[Preparation]:
    """Return a page of preparations."""
    with runtime.database.read() as session:
        return preparations.find(session, wanted, page)


def wait_for(
    runtime: Runtime, wanted: PreparationFilter, page: Page, seconds: float
) -> Part[Preparation]:
    """Return what ``find`` does, as soon as there is any, at the latest after ``seconds``.

    Raises TooManyFollowers if there is nothing yet and no place to wait.
    """
    found = find(runtime, wanted, page)
    if found.items or seconds <= 0:
        return found
    deadline = time.monotonic() + seconds
    with runtime.latest.place():
        while True:
            seen = notifications.last_seq(runtime)
            if wanted.claimable_at is not None:
                wanted = replace(wanted, claimable_at=runtime.clock.now())
            found = find(runtime, wanted, page)
            left = deadline - time.monotonic()
            if found.items or left <= 0 or runtime.latest.is_closed:
                return found
            runtime.latest.wait(seen, min(left, _until_expiry(runtime, wanted.claimable_at)))


def _until_expiry(runtime: Runtime, seen_at: datetime | None) -> float:
    """Return the seconds from a look for claims that have ended until the next ends.

    That is told to nobody.
    """
    if seen_at is None:
        return math.inf
    with runtime.database.read() as session:
        ends_at = preparing.next_expiry(session, seen_at)
    return max((ends_at - seen_at).total_seconds(), _SHORTEST) if ends_at else math.inf


def get(runtime: Runtime, id_: str) -> Preparation:
    """Return a preparation; raises NotFound."""
    with runtime.database.read() as session:
        return preparations.get(session, id_)


def report(runtime: Runtime, id_: str, told: Report) -> Preparation:
    """Store a report, and return what the preparation is now.

    Raises NotFound, PreparationClaimed, InvalidTransition, and PreparationOver; also then it is
    stored that the host got ready.
    """
    after = runtime.database.write(partial(_report, runtime, id_, told))
    if after.over_at is not None:
        raise PreparationOver(f"Preparation {id_} is over: nobody needs {after.node} for it")
    if told.state is not PreparationState.ACCEPTED:
        runtime.wakeup.hint()
    return after


def _report(runtime: Runtime, id_: str, told: Report, session: Session) -> Preparation:
    now = runtime.clock.now()
    if told.state is PreparationState.READY:  # it may be what its lease waits for
        leases.lock_one(session, preparations.get(session, id_).lease_id)
    before = preparations.get(session, id_, lock=True)
    if before.over_at:
        after = _after_all(before, told, now)
    else:
        after = _applied(session, before, told, now)
    if after == before:
        return before
    preparations.store(session, after)
    if told.state is PreparationState.WANTED:
        tell_nodes(session, PREPARE, [payload(after)], now)
    if after.ready_at is not None and before.ready_at is None:
        _learn(session, after, told, now)
        _note(runtime, session, after, now)
    return after


def _applied(session: Session, before: Preparation, told: Report, now: datetime) -> Preparation:
    match told.state:
        case PreparationState.ACCEPTED:
            return _accepted(session, before, told, now)
        case PreparationState.READY:
            return preparation.ready(before, told.owner, now, told.seconds)
        case PreparationState.FAILED:
            return preparation.failed(before, told.owner, told.seconds, told.reason)
        case _:
            return preparation.released(before, told.owner)


def _accepted(session: Session, before: Preparation, told: Report, now: datetime) -> Preparation:
    """Return it claimed, unless somebody is switching its host off: that comes first.

    Who has it already may keep it: nobody begins to switch off what is got ready.
    """
    after = preparation.accept(before, told.owner, now, now + told.claim)
    is_new = after.attempt != before.attempt
    if is_new and shutdowns.is_going_on(session, before.resource_id):
        raise PreparationClaimed(f"{before.node} is being switched off, or is not taken back yet")
    return after


def _after_all(over: Preparation, told: Report, now: datetime) -> Preparation:
    """Return what is over, with the news that its host got ready after all."""
    is_news = told.state is PreparationState.READY and told.owner == over.owner
    if not is_news or over.ready_at is not None:
        return over
    return replace(over, ready_at=now, seconds=dict(told.seconds))


def _note(runtime: Runtime, session: Session, mine: Preparation, now: datetime) -> None:
    """Note that a host is ready, which its lease may wait for; one that is over has none."""
    if mine.over_at is None:
        starting.note_ready(runtime, session, mine.lease_id, now)
        early = mine.early or 0.0
        on_commit(session, lambda: runtime.metrics.host_ready(mine.hardware, early))


def _learn(session: Session, mine: Preparation, told: Report, now: datetime) -> None:
    """Remember how long it took; a host that was set aside works after all."""
    total = sum(told.seconds.values())
    if told.cold and total > 0:
        readiness.remember(session, mine.resource_id, mine.hardware, total)
    if readiness.find(session, mine.resource_id).set_aside is not None:
        readiness.set_aside(session, mine.resource_id, None, now)
