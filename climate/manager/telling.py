"""Events that only tell, heads-ups and users' own; and, once, that a lease's events are late."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.lease import Event, Lease
from climate.core.lifecycle import EventStatus, LeaseStatus
from climate.core.misfire import Late, is_overtaken, late_events
from climate.core.schedule import BEFORE_START
from climate.db import leases, outbox
from climate.manager.announcements import News, announce
from climate.manager.claims import Seen, close_all
from climate.manager.runtime import Runtime

_GOING = frozenset(
    {LeaseStatus.PENDING, LeaseStatus.STARTING, LeaseStatus.ACTIVE, LeaseStatus.ERROR}
)


def tell(session: Session, seen: Sequence[Seen], now: datetime) -> None:
    """Finish events that only tell."""
    if not seen:
        return
    close_all(session, [one.claim for one in seen], now, EventStatus.DONE)
    leases.count_up(session, {one.lease.id for one in seen})
    announce(session, [news for one in seen for news in _news(one.lease, one.event, now)], now)


def _news(lease: Lease, event: Event, now: datetime) -> Iterable[News]:
    """Return what there is to tell. A heads-up after the start has nothing left to say."""
    told = replace(lease, events=events_with_done(lease.events, event, now))
    if event.kind != BEFORE_START:
        yield News(event.kind, told)
    elif (
        lease.status is LeaseStatus.PENDING
        and now < lease.window.start
        and not is_overtaken(lease, event, now)
    ):
        starts_in = (lease.window.start - now).total_seconds()
        yield News(event.kind, told, {"starts_in": starts_in})


def events_with_done(events: Iterable[Event], event: Event, now: datetime) -> tuple[Event, ...]:
    """Return events as they are with one of them done."""
    done = replace(event, status=EventStatus.DONE, owner=None, updated_at=now)
    return tuple([done if one.id == event.id else one for one in events])


def tell_if_late(runtime: Runtime, session: Session, seen: Sequence[Seen], now: datetime) -> None:
    """If nobody was there in time, tell what is late of leases and what becomes of it.

    That is told with the first of a lease; the others were said then. The leases are locked.
    """
    after = runtime.settings.late_after
    late: dict[str, tuple[Lease, tuple[Late, ...]]] = {}
    for _, lease, event in seen:
        found = late_events(lease, now, after)
        is_said = lease.caught_up_at is not None and lease.caught_up_at >= event.promised_at + after
        if event.id in {one.event.id for one in found} and not is_said:
            late.setdefault(lease.id, (lease, found))
    if late:
        leases.catch_up(session, late, now)
        told = (
            ("lease.catch_up", wire.payload(lease, {"late": [one.told() for one in found]}))
            for lease, found in late.values()
            if lease.status in _GOING
        )
        outbox.write_all(session, told, now)
