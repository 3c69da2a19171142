"""Queries for overdue events, and for the leases and events that block them.

An event is overdue if it was due by now and no manager has finished it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.model import StartWhen
from climate.core.lease.overdue import Blocker, OverdueEvent
from climate.core.lease.schedule import ACTIONS, END, START, UPDATE
from climate.core.page import Page, Part
from climate.db.engine.types import any_of
from climate.db.events.ordering import IN_PROGRESS, OPEN, UNDONE, previous_holders
from climate.db.resources.pages import cut
from climate.db.tables.bulk import record
from climate.db.tables.leases import EVENTS, LEASES, columns

# More than the longest pause before a retry: bounds the search, as the index is by ``run_at``.
_LONGEST_PAUSE = timedelta(minutes=2)
_COLUMNS = (
    *columns(
        EVENTS, "id lease_id kind status due_at run_at attempt owner claimed_until last_error"
    ),
    LEASES.c.name.label("lease_name"),
    *columns(LEASES, "project_id start_when ready_at"),
)


def find(session: Session, now: datetime, page: Page) -> Part[OverdueEvent]:
    """Return a page of the events that are overdue at ``now``, sorted by due time.

    Each item names what the event waits for, if anything: a lease that must release a resource, and
    another event of its own lease. Executes at most four statements.
    """
    query = sa.select(*_COLUMNS).outerjoin(LEASES, LEASES.c.id == EVENTS.c.lease_id)
    rows = session.execute(
        cut(query.where(*_is_overdue(now)), EVENTS.c.due_at, EVENTS.c.id, page)
    ).all()
    events = [_event(row) for row in rows[: page.limit]]
    blockers = _blockers(session, [event.id for event in events])
    siblings = _siblings(session, {event.lease_id for event in events if event.lease_id})
    items = [
        replace(
            event,
            blocked_by=blockers.get(event.id),
            sibling=_sibling(event.id, siblings.get(event.lease_id or "", ())),
        )
        for event in events
    ]
    return Part(items=items, more=len(rows) > page.limit)


def oldest(session: Session, now: datetime) -> datetime | None:
    """Return the earliest due time of all overdue events, or None if no event is overdue."""
    first = sa.select(EVENTS.c.due_at).where(*_is_overdue(now)).order_by(EVENTS.c.due_at)
    return session.scalar(first.limit(1))


def _is_overdue(now: datetime) -> tuple[sa.ColumnElement[bool], ...]:
    is_due = sa.and_(EVENTS.c.status == UNDONE, EVENTS.c.run_at <= now + _LONGEST_PAUSE)
    return sa.or_(is_due, EVENTS.c.status == IN_PROGRESS), EVENTS.c.due_at <= now


def _event(row: Any) -> OverdueEvent:  # noqa: ANN401 - a row of _COLUMNS
    waits = row.kind == START and row.start_when == StartWhen.READY and row.ready_at is None
    more = {"status": EventStatus(row.status), "waits_for_hosts": waits}
    return record(OverdueEvent, row, **more, blocked_by=None, sibling=None)


def _blockers(session: Session, event_ids: Collection[str]) -> dict[str, Blocker]:
    """Return, by event id, a lease that must release a resource before the event can run.

    Events that wait for no lease are left out. For an event that waits for several leases, the
    result has the one with the lowest id.
    """
    rows = session.execute(_BLOCKED, {"ids": list(event_ids)}).all() if event_ids else ()
    held = {row.id: (row.blocker, row.resource) for row in rows if row.blocker is not None}
    if not held:
        return {}
    ids = list({lease_id for lease_id, _ in held.values()})
    names: Mapping[str, str] = dict(session.execute(_NAMES, {"ids": ids}).all())
    return {
        event_id: Blocker(lease_id, names.get(lease_id, ""), resource)
        for event_id, (lease_id, resource) in held.items()
    }


def _siblings(session: Session, lease_ids: Collection[str]) -> dict[str, list[Any]]:
    """Return the unfinished actions (start, update, before-end, end) of each lease, by lease id.

    Each action is a row of the table of events. The actions of a lease are in the order in which
    managers run them.
    """
    by_lease: dict[str, list[Any]] = {}
    for row in session.execute(_ACTIONS, {"ids": list(lease_ids)}) if lease_ids else ():
        by_lease.setdefault(row.lease_id, []).append(row)
    return by_lease


def _sibling(event_id: str, actions: Collection[Any]) -> str | None:
    """Return the kind of the action for which the event ``event_id`` must wait, or None.

    ``actions`` are all unfinished actions of the event's lease (start, update, before-end, end), in
    the order in which managers run them. The module ``ordering`` describes the rule.
    """
    own = next((action for action in actions if action.id == event_id), None)
    if own is None:
        return None
    before = True
    for action in actions:
        if action.id == event_id:
            before = False
        elif action.status == IN_PROGRESS or (before and (own.kind != END or action.attempt == 0)):
            return str(action.kind)
    return None


_HOLDERS = previous_holders()
_FIRST = _HOLDERS.order_by(*_HOLDERS.selected_columns).limit(1)
_BLOCKED = sa.select(
    EVENTS.c.id,
    _FIRST.with_only_columns(_HOLDERS.selected_columns.lease_id).scalar_subquery().label("blocker"),
    _FIRST.with_only_columns(_HOLDERS.selected_columns.resource)
    .scalar_subquery()
    .label("resource"),
).where(any_of(EVENTS.c.id, "ids"), EVENTS.c.status == UNDONE, EVENTS.c.kind.in_([START, UPDATE]))
_NAMES = sa.select(LEASES.c.id, LEASES.c.name).where(any_of(LEASES.c.id, "ids"))
_ACTIONS = (
    sa.select(*columns(EVENTS, "id lease_id kind status attempt"))
    .where(any_of(EVENTS.c.lease_id, "ids"), EVENTS.c.status.in_(OPEN), EVENTS.c.kind.in_(ACTIONS))
    .order_by(*columns(EVENTS, "due_at rank id"))
)
