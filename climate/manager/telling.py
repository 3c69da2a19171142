"""Events that only tell, heads-ups and users' own; and, once, that a lease's events are late."""

from datetime import datetime

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.lease import Event, Lease
from climate.core.lifecycle import EventStatus, LeaseStatus
from climate.core.misfire import is_overtaken, late_events
from climate.core.schedule import BEFORE_START
from climate.db import leases, outbox
from climate.manager.announcements import announce
from climate.manager.claims import Claim, close
from climate.manager.runtime import Runtime

_GOING = frozenset(
    {LeaseStatus.PENDING, LeaseStatus.STARTING, LeaseStatus.ACTIVE, LeaseStatus.ERROR}
)


def tell(session: Session, claim: Claim, lease: Lease, event: Event, now: datetime) -> None:
    """Finish an event that only tells. A heads-up after the start has nothing left to say."""
    if not close(session, claim, now, EventStatus.DONE):
        return
    if event.kind != BEFORE_START:
        announce(session, lease.id, event.kind, now)
    elif (
        lease.status is LeaseStatus.PENDING
        and now < lease.window.start
        and not is_overtaken(lease, event, now)
    ):
        starts_in = (lease.window.start - now).total_seconds()
        announce(session, lease.id, event.kind, now, starts_in=starts_in)


def tell_if_late(
    runtime: Runtime, session: Session, lease: Lease, event: Event, now: datetime
) -> None:
    """If nobody was there in time, tell what is late of the lease and what becomes of it.

    That is told with the first of them; the others were said then. The lease is locked.
    """
    after = runtime.settings.late_after
    late = late_events(lease, now, after) if lease.status in _GOING else ()
    if event.id not in {one.event.id for one in late}:
        return
    if leases.catch_up(session, lease.id, now, event.due_at + after):
        told = {"late": [one.told() for one in late]}
        outbox.write(session, "lease.catch_up", wire.payload(lease, told), now)
