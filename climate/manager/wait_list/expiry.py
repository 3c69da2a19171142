"""Remove leases from the wait list when their owners' time limits have passed."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.core.notifications import event_type
from climate.db.notifications import outbox
from climate.manager.leases.delete import remove
from climate.manager.leases.finalizers import schedule_finalizers
from climate.manager.process.runtime import Runtime


def expire_waits(
    runtime: Runtime, session: Session, waiting: Iterable[Lease], now: datetime
) -> None:
    """Delete leases that have waited as long as their owners wanted, and notify the owners.

    The caller has locked the leases, and has claimed their EXPIRE events. A lease that has a
    booking by now has no such event any more.
    """
    for lease in waiting:
        if lease.status is LeaseStatus.WAITING:
            gone = replace(lease, status=LeaseStatus.DELETING, updated_at=now)
            outbox.write(session, event_type.LEASE_NOT_ADMITTED, blazar_wire.payload(gone), now)
            schedule_finalizers(runtime.enforcer, session, lease, now)
            remove(session, lease, now, runtime.settings)
