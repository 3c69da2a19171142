"""Finalizers: tasks that outlive a lease (revoke its trust, report its end).

The report goes to an enforcement service; no end ever waits for it. A finalizer is an event that
has no lease. The transaction that ends the lease stores it, so it runs though the lease is deleted.
Managers run it as any other event. They retry a report for a day, after growing pauses.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from climate.core.backoff import pause_before
from climate.core.errors import EnforcementUnavailable
from climate.core.lease.blazar_wire import enforcement_body
from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import REVOKE, TELL_END
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.manager.claims import Claim, close, requeue
from climate.manager.enforcement import Busy
from climate.manager.leases import trusts
from climate.manager.notifications.lease_messages import resources_of
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

_PATIENCE = timedelta(days=1)
_WHEN_BUSY = timedelta(seconds=5)


def schedule_finalizers(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """Store the finalizers of a lease, locked, that is over: revoke its trust, report its end."""
    trusts.leave(session, lease, now)
    if runtime.enforcer is None or not runtime.enforcer.hears_of_ends:
        return
    resources = resources_of(session, [reservation.id for reservation in lease.reservations])
    event_queue.insert_finalizer(
        session, ids.new_id(), TELL_END, enforcement_body(lease, resources), now
    )


def run(runtime: Runtime, claim: Claim) -> None:
    """Run the finalizer of a claimed event without a lease."""
    with runtime.database.read() as session:
        finalizer = event_queue.get_finalizer(session, claim.event_id)
    if finalizer is None:
        return
    kind, payload, since = finalizer
    if kind == REVOKE:
        trusts.revoke(runtime, claim, payload)
    else:
        _report_end(runtime, claim, payload, since)


def _report_end(runtime: Runtime, claim: Claim, body: Mapping[str, Any], since: datetime) -> None:
    """Report an end to the enforcement service, or requeue the event."""
    try:
        if runtime.enforcer is not None and runtime.enforcer.hears_of_ends:
            runtime.enforcer.on_end(body)
    except Busy:
        again = runtime.clock.now() + _WHEN_BUSY
        runtime.database.write(lambda session: requeue(session, claim, run_at=again))
    except EnforcementUnavailable as error:
        if runtime.clock.now() - since < _PATIENCE:
            reason = error.message
            runtime.database.write(lambda session: _retry(runtime, session, claim, reason))
            return
        LOG.error("the end of lease %s is not told: %s", body["id"], error.message)  # noqa: TRY400
        runtime.database.write(lambda session: _forget(session, claim))
    else:
        runtime.database.write(lambda session: _forget(session, claim))


def _retry(runtime: Runtime, session: Session, claim: Claim, reason: str) -> None:
    now = runtime.clock.now()
    pause = pause_before(claim.attempt, runtime.settings.max_retries, runtime.rng)
    run_at = now + timedelta(seconds=pause)
    close(session, claim, now, EventStatus.UNDONE, last_error=reason, run_at=run_at)


def _forget(session: Session, claim: Claim) -> None:
    if event_queue.is_mine(session, claim.event_id, claim.owner, claim.attempt):
        event_queue.remove(session, [claim.event_id])
