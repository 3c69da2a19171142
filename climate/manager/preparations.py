"""The use cases of those who get hosts ready: what is wanted, and how far they are with it.

A report is stored under the preparation's lock; of what it means for the lease, a manager takes
care (``preparing``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core import preparation
from climate.core.errors import PreparationOver
from climate.core.page import Page, Part, PreparationFilter
from climate.core.preparation import Preparation, PreparationState
from climate.db import preparations, readiness
from climate.manager.runtime import Runtime


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
    if told.state is PreparationState.FAILED:
        runtime.wakeup.hint()
    return after


def _report(runtime: Runtime, id_: str, told: Report, session: Session) -> Preparation:
    now = runtime.clock.now()
    before = preparations.get(session, id_, lock=True)
    after = _after_all(before, told, now) if before.over_at else _applied(before, told, now)
    if after == before:
        return before
    preparations.store(session, after)
    if after.ready_at is not None and before.ready_at is None:
        _learn(session, after, told, now)
    return after


def _applied(before: Preparation, told: Report, now: datetime) -> Preparation:
    match told.state:
        case PreparationState.ACCEPTED:
            return preparation.accept(before, told.owner, now, now + told.claim)
        case PreparationState.READY:
            return preparation.ready(before, told.owner, now, told.seconds)
        case PreparationState.FAILED:
            return preparation.failed(before, told.owner, told.seconds, told.reason)
        case _:
            return preparation.released(before, told.owner)


def _after_all(over: Preparation, told: Report, now: datetime) -> Preparation:
    """Return what is over, with the news that its host got ready after all."""
    is_news = told.state is PreparationState.READY and told.owner == over.owner
    if not is_news or over.ready_at is not None:
        return over
    return replace(over, ready_at=now, seconds=dict(told.seconds))


def _learn(session: Session, mine: Preparation, told: Report, now: datetime) -> None:
    """Remember how long it took; a host that was set aside works after all."""
    total = sum(told.seconds.values())
    if told.cold and total > 0:
        readiness.remember(session, mine.resource_id, mine.hardware, total)
    if readiness.find(session, mine.resource_id).set_aside is not None:
        readiness.set_aside(session, mine.resource_id, None, now)
