"""Delete a lease on request, and remove leases that ended long ago.

If plug-ins may have changed the cloud for the lease, a manager must undo these changes before the
lease is deleted.
"""

import time
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire
from climate.core.lease.history import past
from climate.core.lease.lifecycle import EventStatus, LeaseStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import END
from climate.core.notifications import event_type, feed
from climate.core.settings import Settings
from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.leases import leases, past_leases
from climate.db.limits import keep_past_use
from climate.db.notifications import feeds, outbox
from climate.db.resources import allocations
from climate.manager.admission.requirements import any_prepares
from climate.manager.leases.finalizers import schedule_finalizers
from climate.manager.leases.read import check_expected, visible
from climate.manager.notifications.lease_messages import resources_of
from climate.manager.process.runtime import Runtime, Store

# Rows per transaction, so that none locks rows for long, and transactions per call.
_LEASES, _PAST_LEASES = 20, 500
_BATCHES = 10


def delete_lease(
    runtime: Runtime, lease_id: str, wait: float = 0.0, expected: Lease | None = None
) -> bool:
    """Delete a lease; return False if a manager must still end it and delete its rows later.

    If the lease has ended, or no plug-in has acted on the cloud for it, its rows are deleted
    immediately. Otherwise the lease gets the status DELETING: a manager ends the lease and then
    deletes its rows. This call waits up to ``wait`` seconds for the manager, unless too many
    requests of this process are waiting already. Raises NotFound. Raises LeaseChanged if the stored
    lease differs from ``expected``.
    """
    now = runtime.clock.now()

    def work(session: Session) -> bool:
        lease = visible(leases.get(session, lease_id, lock=True))
        check_expected(lease, expected)
        if not lease.has_begun and not any_prepares(runtime.catalog, lease.reservations):
            schedule_finalizers(runtime.enforcer, session, lease, now)
        elif lease.status is not LeaseStatus.TERMINATED:
            _end_now(session, lease, now)
            return False
        remove(session, lease, now, runtime.settings)
        return True

    is_deleted = runtime.database.write(work)
    runtime.wakeup.hint()
    if is_deleted or not wait:
        return is_deleted
    with runtime.deletions.place(lease_id) as may_wait:
        return may_wait and _is_deleted_within(runtime.database, lease_id, wait)


def remove(session: Session, lease: Lease, now: datetime, settings: Settings) -> None:
    """Delete the rows of a lease that the caller has locked, and write a notification.

    A lease has *begun* if a manager has tried to start it. The resources of such a lease stay
    blocked for the cleaning time, which begins at ``now``. The history gets a record of such a
    lease if its start succeeded or its start date has passed.
    """
    ids = [reservation.id for reservation in lease.reservations]
    took_place = lease.has_begun and bool(lease.start.started_at or lease.window.start <= now)
    ended_at = now
    if took_place:
        history = past(lease, resources_of(session, ids), now)
        past_leases.store(session, history)
        ended_at = history.ended_at
    if lease.status is not LeaseStatus.WAITING:  # feeds do not show waiting leases
        status, window = feed.removed(lease.window, ended_at, begun=took_place)
        feeds.note_removal(session, lease, status, window, now)
    if ids and lease.has_begun:
        if settings.limits.enabled:
            keep_past_use(session, lease, ids, now)
        allocations.detach(session, ids, lease.busy_until(now, settings.cleaning_time))
    deleted = replace(lease, status=LeaseStatus.DELETING, updated_at=now)
    leases.delete(session, lease.id)
    outbox.write(session, event_type.LEASE_DELETE, blazar_wire.payload(deleted), now)


def remove_ended(store: Store, settings: Settings) -> None:
    """Remove leases that ended long ago, and old records of deleted leases.

    The option ``ended_leases_kept`` sets how long to keep ended leases, ``history_kept`` how long
    to keep records. A call removes at most ``_BATCHES`` batches of leases and ``_BATCHES`` batches
    of records. The next call removes more.
    """
    now = store.clock.now()
    if settings.ended_leases_kept is not None:
        before = now - settings.ended_leases_kept
        for _ in range(_BATCHES):
            if _remove_batch(store, settings, before) < _LEASES:
                break
    if settings.history_kept is not None:
        oldest = now - settings.history_kept
        for _ in range(_BATCHES):
            if _forget_batch(store, oldest) < _PAST_LEASES:
                break


def _remove_batch(store: Store, settings: Settings, before: datetime) -> int:
    """Remove up to ``_LEASES`` leases that ended long ago; return how many such leases were found.

    ``before`` is a time in the past; only leases that ended earlier are removed. The function may
    remove fewer leases than it found, if other transactions have locked or changed some.
    """
    with store.database.read() as session:
        found = past_leases.ended_before(session, before, _LEASES)

    def work(session: Session) -> None:
        locked = leases.find_some(session, found, lock=True, patient=False)
        # Another manager may have removed some, or a user changed them, before the lock.
        for id_ in past_leases.ended_before(session, before, _LEASES, list(locked)):
            remove(session, locked[id_], store.clock.now(), settings)

    if found:
        store.database.write(work)
    return len(found)


def _forget_batch(store: Store, before: datetime) -> int:
    with store.database.read() as session:
        if not past_leases.is_old(session, before):
            return 0
    return store.database.write(lambda session: past_leases.forget(session, before, _PAST_LEASES))


def _end_now(session: Session, lease: Lease, now: datetime) -> None:
    """Let a manager end the lease now.

    The end event becomes due now, and the other open events are removed.
    """
    if lease.status is LeaseStatus.DELETING:
        return
    leases.set_status(session, lease.id, LeaseStatus.DELETING, now)
    end = lease.event(END)
    assert end is not None  # noqa: S101 - every lease has one (invariant 2)
    if end.status is not EventStatus.IN_PROGRESS:
        event_queue.reschedule(session, end.id, now, now)
    obsolete = [e.id for e in lease.events if e.kind != END and e.status is EventStatus.UNDONE]
    event_queue.remove(session, obsolete)


def _is_deleted_within(database: Database, lease_id: str, wait: float) -> bool:
    deadline = time.monotonic() + wait
    pause = 0.02
    while time.monotonic() < deadline:
        time.sleep(pause)
        with database.read() as session:
            if not leases.exists(session, lease_id):
                return True
        pause = min(pause * 1.5, 0.2)
    return False
