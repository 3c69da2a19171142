"""Finalizers: tasks that remain when a lease is over (revoke its trust, report its end).

A finalizer is an event without a lease, so it also runs after the lease is deleted. The transaction
that stores the end of the lease also stores its finalizers. Managers then claim and run finalizers
like any other event. If the enforcement service does not accept a report, managers retry the report
for a day, with growing pauses.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import EnforcementUnavailable
from climate.core.lease.model import Lease
from climate.core.lease.schedule import REVOKE, TELL_END
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.manager.claims import Claim, remove, requeue, retry_later
from climate.manager.enforcement import Busy, Enforcer
from climate.manager.leases import trusts
from climate.manager.leases.read import as_enforced
from climate.manager.process.runtime import Runtime

LOG = logging.getLogger(__name__)

_REPORT_RETRIES_FOR = timedelta(days=1)
_PAUSE_WHEN_BUSY = timedelta(seconds=5)


def schedule_finalizers(
    enforcer: Enforcer | None, session: Session, lease: Lease, now: datetime
) -> None:
    """Store the events to run when a lease is over: revoke its trust, report its end.

    The trust lets climate act as the user. The report goes to the operator's enforcement service,
    if there is one. The caller has locked the lease.
    """
    trusts.release_trust(session, lease, now)
    if enforcer is not None and enforcer.reports_ends:
        body = as_enforced(session, lease)
        event_queue.insert_finalizer(session, ids.new_id(), TELL_END, body, now)


def run(runtime: Runtime, claim: Claim) -> None:
    """Run a finalizer, an event that revokes the trust of an ended lease or reports its end.

    This manager has claimed the event. No transaction may be open.
    """
    with runtime.database.read() as session:
        finalizer = event_queue.get_finalizer(session, claim.event_id)
    if finalizer is None:
        return
    kind, payload, ended_at = finalizer
    if kind == REVOKE:
        trusts.revoke(runtime, claim, payload)
    else:
        _report_end(runtime, claim, payload, ended_at)


def _report_end(
    runtime: Runtime, claim: Claim, body: Mapping[str, Any], ended_at: datetime
) -> None:
    """Report the end of a lease to the enforcement service; if that fails, store when to retry.

    ``body`` describes the lease in the report. One day after ``ended_at``, the function gives up.
    """
    try:
        if runtime.enforcer is not None and runtime.enforcer.reports_ends:
            runtime.enforcer.on_end(body)
    except Busy:
        run_at = runtime.clock.now() + _PAUSE_WHEN_BUSY
        runtime.database.write(lambda session: requeue(session, claim, run_at=run_at))
        return
    except EnforcementUnavailable as error:
        if runtime.clock.now() - ended_at < _REPORT_RETRIES_FOR:
            retry_later(runtime, claim, error.message)
            return
        LOG.error(  # noqa: TRY400 - the service's error needs no traceback
            "stopped reporting the end of lease %s to the enforcement service after a day: %s",
            body["id"],
            error.message,
        )
    runtime.database.write(lambda session: remove(session, claim))
