"""Use cases for operators: which managers run, how late they are, and what is overdue."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from climate.core.lease.overdue import Cause, OverdueEvent, reason
from climate.core.page import Page, Part
from climate.db import managers
from climate.db.events import overdue
from climate.db.events import queue as event_queue
from climate.db.managers import Heartbeat
from climate.db.notifications import outbox
from climate.manager.process.heartbeat import Beats
from climate.manager.process.runtime import Store
from climate.observability.metrics import label

# Counts stop here, so that they stay cheap even with a long backlog.
_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """What waits for managers. ``due`` counts unclaimed due events by kind.

    ``oldest_due_at`` is the due time of the first overdue event, ``unpublished`` the number of
    notifications that are not published yet, the first since ``unpublished_since``. Counts stop at
    10,000.
    """

    due: Mapping[str, int]
    oldest_due_at: datetime | None
    unpublished: int
    unpublished_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagersAtWork:
    """The managers of the last day, what waits for them at ``now``, and warnings (sentences)."""

    managers: Sequence[Heartbeat]
    lateness: Lateness
    warnings: Sequence[str]
    now: datetime


def managers_at_work(store: Store) -> ManagersAtWork:
    """Return the managers of the last day, dead ones included, and what waits for them."""
    now = store.clock.now()
    with store.database.read() as session:
        known = managers.known(session)
        due: Counter[str] = Counter()
        for kind, count in event_queue.count_due(session, now, _MOST).items():
            due[label(kind)] += count
        unpublished, since = outbox.lag(session, _MOST)
        lateness = Lateness(
            due=due,
            oldest_due_at=overdue.oldest(session, now),
            unpublished=unpublished,
            unpublished_since=since,
        )
    alive = [manager for manager in known if manager.is_alive(now)]
    last = max((manager.beat_at for manager in known), default=None)
    warnings = Beats(alive=alive, last=last, now=now).warnings()
    return ManagersAtWork(managers=known, lateness=lateness, warnings=warnings, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedEvent:
    """An overdue event, how late it is (seconds), and why."""

    event: OverdueEvent
    late_seconds: float
    cause: Cause
    reason: str


def find_overdue(store: Store, page: Page) -> tuple[list[ExplainedEvent], Part[OverdueEvent]]:
    """Return a page of the overdue events by due time, explained, and the page itself."""
    now = store.clock.now()
    with store.database.read() as session:
        part = overdue.find(session, now, page)
        alive = {manager.id for manager in managers.alive(session, now)}
    explained = []
    for event in part.items:
        cause, text = reason(event, alive, now)
        late = (now - event.due_at).total_seconds()
        explained.append(ExplainedEvent(event=event, late_seconds=late, cause=cause, reason=text))
    return explained, part
