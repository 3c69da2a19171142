"""Event plan: change the stored events of a lease if its dates change.

This module also adds ``update_lease`` events. Such an event gives the users of a running lease
access to its new resources, and reclaims the resources of removed reservations.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Protocol

from sqlalchemy.orm import Session

from climate.core.errors import InvalidDate
from climate.core.lease import blazar_wire
from climate.core.lease.change import has_started
from climate.core.lease.lifecycle import OPEN_EVENT, EventStatus, LeaseStatus
from climate.core.lease.model import Event, Lease, Reservation, Resource
from climate.core.lease.schedule import (
    BEFORE_END,
    BEFORE_END_REMINDER,
    BEFORE_START,
    END,
    OWN_KINDS,
    START,
    UPDATE,
    Anchor,
    Notice,
    Planned,
    before_end_notice,
    plan,
)
from climate.core.notifications import event_type, reminder
from climate.core.settings import Settings
from climate.core.window import Window
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.resources import resources
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import Requested, kinds_of, with_new_margins
from climate.manager.process.lead_times import LeadTimes
from climate.manager.process.runtime import Runtime


class Asked(Protocol):
    """What a request for a lease says about its reservations and events."""

    @property
    def reservations(self) -> Iterable[Requested]:
        """The requested reservations."""

    @property
    def user_events(self) -> Iterable[tuple[str, datetime]]:
        """The events that the user defines, as pairs (kind, due time)."""

    @property
    def before_end(self) -> datetime | None:
        """When to remind the user of the end; None: at the configured time."""


def planned_notices(request: Asked, window: Window, settings: Settings) -> tuple[Notice, ...]:
    """Return the notices of a new lease: its reminders, and the events that the user defined.

    For each kind of reminder that is not in the request, the configured reminders are added. Raises
    InvalidDate if an event may not be at its time.
    """
    notices = list(_user_notices(request.user_events, window))
    if request.before_end is not None:
        notices.append(before_end_notice(window, request.before_end))
    _check_before_end(request)
    kinds = {notice.kind for notice in notices}
    if BEFORE_START not in kinds:
        notices += _before_start(settings, _types(request.reservations), ())
    if BEFORE_END not in kinds and settings.before_end_lead:
        notices.append(Notice(BEFORE_END, Anchor.END, -settings.before_end_lead.total_seconds()))
    if BEFORE_END_REMINDER not in kinds:
        leads = settings.before_end_leads
        notices += [Notice(BEFORE_END_REMINDER, Anchor.END, -lead) for lead in leads]
    return tuple(notices)


def _before_start(
    settings: Settings, resource_types: Collection[str], booked: Collection[Resource]
) -> list[Notice]:
    """Return the reminders of the start that the operator configured for such a lease."""
    rule = reminder.find(settings.reminder_rules, resource_types, booked)
    return _reminders(settings.before_start_leads if rule is None else rule.leads)


def _reminders(leads: Iterable[float]) -> list[Notice]:
    return [Notice(BEFORE_START, Anchor.START, -lead) for lead in leads]


class ReminderGate(Gate):
    """Plans the reminders of the start of a new lease by its booked resources.

    The properties of these resources select the rule. Their learned lead times are offsets of
    reminders. The gate rejects no lease. It must come before the gates that call other services.
    """

    def __init__(self, settings: Settings, lead_times: LeadTimes | None) -> None:
        self._settings, self._lead_times = settings, lead_times
        self._notices: tuple[Notice, ...] = ()
        self._reminders: tuple[Event, ...] = ()

    def before_refusal(self, _session: Session, _lease: Lease, _now: datetime) -> bool:
        """Allow the refusal: a lease without resources gets no reminders."""
        return True

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Store the reminders of the rule that matches the stored lease, instead of the others."""
        booked = resources.booked_by(session, lease.id)
        types = _types(lease.reservations)
        starts = _before_start(self._settings, types, booked)
        starts += self._learned(session, types, booked, now)
        self._notices = (*(each for each in lease.notices if each.kind != BEFORE_START), *starts)
        leases.update(session, replace(lease, notices=self._notices))
        self._reminders = tuple(
            Event.planned(planned, lease.id, ids.new_id(), now)
            for planned in plan(lease.window, starts, now)
            if planned.kind == BEFORE_START
        )
        if lease.status is LeaseStatus.PENDING:  # else its events are stored later
            present = [event.id for event in lease.events if event.kind == BEFORE_START]
            event_queue.remove(session, present)
            leases.insert_events(session, self._reminders)

    def _learned(
        self, session: Session, types: Collection[str], booked: Collection[Resource], now: datetime
    ) -> list[Notice]:
        """Return the reminders at the learned lead times of the booked hosts."""
        rule = reminder.find(self._settings.reminder_rules, types, booked)
        if rule is None or self._lead_times is None:
            return []
        of_lease = partial(self._lead_times.of_lease, session, booked, now=now)
        leads = (math.ceil(of_lease(share)) for share in rule.shares)
        return _reminders(lead for lead in leads if lead)

    def settle(self, lease: Lease) -> Lease:
        """Return the lease with its reminders."""
        others = tuple(event for event in lease.events if event.kind != BEFORE_START)
        events = sorted((*self._reminders, *others), key=attrgetter("due_at"))
        return replace(lease, notices=self._notices, events=tuple(events))


def reminder_gates(runtime: Runtime, lease: Lease) -> list[Gate]:
    """Return the gate that plans reminders, if they depend on the resources that a lease books.

    A lease with reminders of its own does not need the gate.
    """
    settings, types = runtime.settings, _types(lease.reservations)
    if not reminder.need_resources(settings.reminder_rules, types):
        return []
    configured = _before_start(settings, types, ())
    is_default = configured == [each for each in lease.notices if each.kind == BEFORE_START]
    return [ReminderGate(settings, runtime.lead_times)] if is_default else []


def with_reminders(lease: Lease, gates: Iterable[Gate]) -> Lease:
    """Return a new lease, as requested, with the reminders that a transaction has planned for it.

    ``gates`` are those of the transaction, which may have been rolled back.
    """
    for gate in gates:
        if isinstance(gate, ReminderGate):
            lease = gate.settle(lease)
    return lease


def _types(reservations: Iterable[Requested]) -> set[str]:
    return {reservation.resource_type for reservation in reservations}


def _user_notices(events: Iterable[tuple[str, datetime]], window: Window) -> Iterator[Notice]:
    """Yield the notice for each event of a request; an InvalidDate has the place of the date."""
    for number, (kind, moment) in enumerate(events):
        try:
            yield _user_notice(kind, moment, window)
        except InvalidDate as error:
            error.place = ("events", str(number), "at")
            raise


def _user_notice(kind: str, moment: datetime, window: Window) -> Notice:
    if kind in {BEFORE_END, BEFORE_END_REMINDER}:
        return before_end_notice(window, moment, kind)
    if kind == BEFORE_START and moment >= window.start:
        raise InvalidDate("A before_start_lease event must be before the start of the lease")
    if moment > window.end:
        raise InvalidDate(f"Event {kind} must not be after the end of the lease")
    return Notice(kind, Anchor.START, (moment - window.start).total_seconds())


def _check_before_end(request: Asked) -> None:
    """Raise InvalidDate if a request has several dates for the one event before_end_lease."""
    places: dict[datetime, tuple[str, ...]] = {}
    for number, (kind, at) in enumerate(request.user_events):
        if kind == BEFORE_END:
            places.setdefault(at, ("events", str(number), "at"))
    if request.before_end is not None:
        places.setdefault(request.before_end, ("before_end",))
    if len(places) > 1:
        error = InvalidDate("A lease has one before_end_lease event, not one at several dates")
        error.place = list(places.values())[1]
        raise error


def reschedule(session: Session, before: Lease, after: Lease, now: datetime) -> None:
    """Move, remove and add stored events so that they match a lease's new dates and reminders.

    ``before`` is the lease before the change, ``after`` the lease after it.
    """
    planned = plan(after.window, after.notices, now)
    lead_changed = before.start.lead != after.start.lead
    for event in planned:
        if event.kind in {START, END, BEFORE_END}:
            has_moved = event.kind == START and lead_changed
            _move(session, after, before.event(event.kind), event, now, has_moved=has_moved)
    present = {event.kind for event in planned} | {event.kind for event in before.events}
    kinds = present - {START, UPDATE, END, BEFORE_END}
    if before.window.start == after.window.start:
        kinds.discard(BEFORE_START)  # reminders of an unchanged start are not repeated
    stale = [
        event.id
        for event in before.events
        if event.kind in kinds
        and event.status is EventStatus.UNDONE
        and (event.due_at > now or event.kind == BEFORE_START)
    ]
    event_queue.remove(session, stale)
    new = [e for e in planned if e.kind in kinds and (e.kind == BEFORE_START or e.due_at > now)]
    _insert(session, after, [*new, *_overtaken(before, after, now)], now)
    if after.reservations != before.reservations:
        create_again(session, after, now)


def _overtaken(before: Lease, after: Lease, now: datetime) -> set[Planned]:
    """Return the user's own events that an earlier start makes overdue; they become due now."""
    advance = before.window.start - after.window.start
    return {
        Planned(event.kind, now)
        for event in before.events
        if event.kind not in OWN_KINDS
        and event.status is EventStatus.UNDONE
        and timedelta(0) < event.due_at - now <= advance
    }


def create_again(session: Session, lease: Lease, now: datetime) -> None:
    """Let a manager create at once what a lease lacks since a change in its lead.

    Does nothing if climate has not begun to create resources, or if the lease has begun to start.
    """
    if lease.status is LeaseStatus.PENDING and lease.start.began_at is not None:
        leases.set_unready(session, lease.id, is_created=True)
        event_queue.run_now(session, lease.id, [START], now, is_ahead=True)


def remargined(
    runtime: Runtime,
    session: Session,
    lease: Lease,
    reservations: Sequence[Reservation],
    window: Window,
    now: datetime,
) -> Lease:
    """Return the lease with the margins that it has with ``reservations`` and ``window``.

    Its lead is computed again if the start moves, or if climate creates something of another kind;
    its cleaning time if the start moves, or if it may get other resources. Else they stay, because
    longer ones might not fit.
    """
    if has_started(lease, now):
        return lease
    live = [reservation for reservation in reservations if reservation.stays]
    new_kinds = kinds_of(runtime.catalog, live) - kinds_of(runtime.catalog, lease.reservations)
    is_moved = window.start != lease.window.start
    present = [reservation for reservation in lease.reservations if reservation.stays]
    is_other = [each.params for each in live] != [each.params for each in present]
    if not (is_moved or new_kinds or is_other):
        return lease
    changed = replace(lease, reservations=tuple(reservations))
    new = with_new_margins(runtime, session, changed, window.start, now)
    return replace(
        lease,
        start=new.start if is_moved or new_kinds else lease.start,
        cleaning=new.cleaning if is_moved or is_other else lease.cleaning,
    )


def add_update_event(session: Session, lease: Lease, now: datetime) -> None:
    """Add an ``update_lease`` event that is due now.

    The manager that runs this event gives the users access to the lease's new resources, and
    reclaims the resources of removed reservations.
    """
    _insert(session, lease, [Planned(UPDATE, now)], now)


def _insert(session: Session, lease: Lease, planned: Iterable[Planned], now: datetime) -> None:
    events = [Event.planned(event, lease.id, ids.new_id(), now) for event in planned]
    leases.insert_events(session, events, lead=lease.start.lead)


def _move(
    session: Session,
    lease: Lease,
    present: Event | None,
    planned: Planned,
    now: datetime,
    *,
    has_moved: bool,
) -> None:
    """Give the start, end or before-end event of a lease its new due time.

    ``has_moved`` says that the event moves although its due time may stay the same.

    ``planned`` is the event with its new due time. ``present`` is the stored event of the same
    kind. If ``present`` is None, the function stores ``planned``. A before-end event that has
    already run is replaced by ``planned`` if this is due in the future, so that the event runs
    again.
    """
    if present is None:
        _insert(session, lease, [planned], now)
    elif present.due_at == planned.due_at and not has_moved:
        return
    elif present.status in OPEN_EVENT:
        # No claim of the event has begun its work, as the lease is not busy. This ends the claim.
        lead = lease.start.lead if planned.kind == START else timedelta(0)
        run_at = planned.due_at - lead
        event_queue.reschedule(session, present.id, planned.due_at, now, run_at=run_at)
    elif planned.kind == BEFORE_END and planned.due_at > now:
        # It is completed or abandoned: insert a new event, which has all its attempts left.
        event_queue.remove(session, [present.id])
        _insert(session, lease, [planned], now)
        outbox.write(session, event_type.BEFORE_END_STOPPED, blazar_wire.payload(lease), now)
