"""What becomes of an action that failed: when it is tried again, and what its lease shows.

It is tried again soon, after growing pauses. When ``event_max_retries`` of these have failed too,
the failure is shown and told, once. An update or before-end is given up then. A start or end is
tried on at a slow pace, with the lease in ERROR: the start until it succeeds or the end begins, the
end for ever. All of that is in the event's row (UNDONE, ``run_at``, ``attempt``, ``last_error``).
"""

import logging
import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.lease import Lease
from climate.core.lifecycle import (
    LEASE,
    RESERVATION,
    EventStatus,
    LeaseStatus,
    ReservationStatus,
    step,
)
from climate.core.schedule import END, RELENTLESS, UPDATE
from climate.db import leases
from climate.db.engine import on_commit
from climate.manager.claims import Call, Claim, Work, close, lease_of
from climate.manager.notifications.lease_messages import News, announce
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

_LONGEST_REASON = 4000
# The slow pace, and the longest of the growing pauses: seconds, the pace more or less so.
_PACE = 60.0
_JITTER = 0.1


def fail(
    runtime: Runtime, session: Session, claim: Claim, work: Work, failed: Mapping[str, str]
) -> None:
    """Store that the action failed for some reservations, why, and when to try again."""
    now = runtime.clock.now()
    lease = lease_of(session, claim)
    if lease is None:
        return
    kind, retries = work.event.kind, runtime.settings.max_retries
    unwanted = lease.status is LeaseStatus.DELETING and kind != END
    exhausted = unwanted or claim.attempt > retries
    given_up = unwanted or (exhausted and kind not in RELENTLESS)
    status = EventStatus.ERROR if given_up else EventStatus.UNDONE
    run_at = now + timedelta(seconds=pause_before(claim.attempt, retries, runtime.rng))
    reasons = (f"reservation {id_}: {reason}" for id_, reason in failed.items())
    error = "; ".join(reasons)[:_LONGEST_REASON]
    if not close(session, claim, now, status, last_error=error, run_at=run_at):
        return
    outcome = "failed" if given_up else "retried"
    on_commit(session, lambda: runtime.metrics.event(kind, outcome))
    if exhausted:
        _show(session, lease, kind, failed, now)
        if not _is_known(lease, claim, failed, retries):
            news = News(kind, leases.get(session, lease.id), {"error": error})
            announce(session, [news], now)


def give_up(runtime: Runtime, claim: Claim, call: Call) -> None:
    """Store that the attempt has failed, as its call takes too long. It may still be under way.

    The cloud may not be changed for it any more: its permit was revoked before.
    """
    seconds = runtime.settings.call_timeout
    failed = {call.reservation_id: f"given up, as it was not done within {seconds:.0f} s"}
    LOG.error("event %s of lease %s: %s", call.work.event.kind, claim.lease_id, failed)
    runtime.database.write(lambda session: fail(runtime, session, claim, call.work, failed))


def pause_before(attempt: int, retries: int, rng: random.Random) -> float:
    """Return the seconds between attempt ``attempt`` (from 1) and the next: 1, 2, 4 ... 60.

    After ``retries`` it is about 60, as not to bother the cloud with many leases at the same time.
    """
    if attempt > retries:
        return _PACE * rng.uniform(1 - _JITTER, 1 + _JITTER)
    return float(min(2 ** min(attempt - 1, 16), _PACE))


def _is_known(lease: Lease, claim: Claim, failed: Mapping[str, str], retries: int) -> bool:
    """Tell whether it was told already that the action fails.

    Reservations are in ERROR since then, but an end's may be so because of the start.
    """
    return claim.attempt > retries + 1 and any(
        one.id in failed and one.status is ReservationStatus.ERROR for one in lease.reservations
    )


def _show(
    session: Session, lease: Lease, kind: str, failed: Mapping[str, str], now: datetime
) -> None:
    """Mark what failed: the lease for a start or end, only ``degraded`` for the others."""
    if kind == UPDATE:
        leases.update(session, replace(lease, degraded=True, updated_at=now))
    elif kind in RELENTLESS:
        for reservation in lease.reservations:
            if reservation.id in failed and reservation.status is not ReservationStatus.ERROR:
                status = step(RESERVATION, reservation.status, ReservationStatus.ERROR)
                leases.set_reservation(session, reservation.id, now, status=status.value)
        if lease.status not in {LeaseStatus.DELETING, LeaseStatus.ERROR}:
            leases.set_status(session, lease.id, step(LEASE, lease.status, LeaseStatus.ERROR), now)
