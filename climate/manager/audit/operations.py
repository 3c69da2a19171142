"""Use cases for operators: show which managers run, how late they are, and what is overdue."""

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
    """The work that waits for managers: events of leases, and notifications.

    ``due`` contains the number of due events that no manager has claimed, by kind (such as start).
    ``oldest_due_at`` is the earliest due time of all overdue events (None: there is none).
    ``unpublished`` is the number of unpublished notifications. The oldest was written at
    ``unpublished_since`` (None: all are published). Counting stops at 10,000.
    """

    due: Mapping[str, int]
    oldest_due_at: datetime | None
    unpublished: int
    unpublished_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagersAtWork:
    """The managers with a heartbeat in the last day, and the work that waits for them at ``now``.

    ``warnings`` are sentences about absent managers and about loops that have stalled.
    """

    managers: Sequence[Heartbeat]
    lateness: Lateness
    warnings: Sequence[str]
    now: datetime


def managers_at_work(store: Store) -> ManagersAtWork:
    """Return the managers seen in the last day, dead or alive, and the work that waits for them."""
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
    """An overdue event, how late it is in seconds, and why it has not run yet.

    ``cause`` is a code for programs, ``reason`` a text for people.
    """

    event: OverdueEvent
    late_seconds: float
    cause: Cause
    reason: str


def find_overdue(store: Store, page: Page) -> tuple[list[ExplainedEvent], Part[OverdueEvent]]:
    """Return a page of the overdue events, in order of due time, with the reason for each.

    The first result contains the events, with the reasons why they have not run. The second result
    is the same page without reasons, from which the caller makes the link to the next page.
    """
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
