"""Follow what users change in the cloud: reserve what their running stacks have grown to.

Users may update the stack of a running lease with requests to Heat instead of climate. Each pass
asks the plug-ins for such changes, and changes the lease in the same way as a request of its owner
would: the difference is admitted, and then deployed on the reserved resources. If climate cannot
reserve it, the stack stays as the user left it. Then the lease is degraded, the details of the
reservation say why (``NOT_RESERVED``), and one notification reports it. Each later pass tries
again.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from http import HTTPStatus

from marshmallow import ValidationError
from sqlalchemy.orm import Session

from climate.core.errors import (
    ClimateError,
    LeaseBusy,
    NotFound,
)
from climate.core.lease import blazar_wire, on_start
from climate.core.lease.lifecycle import LeaseStatus, ReservationStatus
from climate.core.lease.model import NOT_RESERVED, STACK_ID, Lease, Reservation
from climate.core.notifications import event_type
from climate.db.leases import leases
from climate.db.leases.running import running_with
from climate.db.notifications import outbox
from climate.manager.audit.cloud import is_settled
from climate.manager.leases.create import Owner
from climate.manager.leases.read import LeaseChanged
from climate.manager.leases.reservation_changes import LeaseChange, ReservationChange
from climate.manager.leases.update import update_lease
from climate.manager.process.periodic_task import PeriodicTask, logged
from climate.manager.process.runtime import Runtime
from climate.observability import log_context
from climate.plugins.base import CloudChange, NotYet, QuotesRequest
from climate.plugins.openstack.trusts import DeadTrust

LOG = logging.getLogger(__name__)

_LONGEST_REASON = 1000
# The message of an error may quote the template, which can contain secrets.
_REJECTED = (
    "the changed stack is rejected: to see why, send the change to climate as a dry run, or update"
    " the stack in Heat again"
)
# Another try soon may help, because climate or the cloud is changing the stack now.
_BUSY = (LeaseBusy, LeaseChanged, NotYet)
# The next pass tries again, and the user need not know.
_PASSING = (*_BUSY, NotFound, DeadTrust)


class FollowTask(PeriodicTask):
    """A loop whose current run is not waited for: the cloud may be slow, and managers repeat it."""

    def stop(self, timeout: float | None = 0) -> bool:
        """Stop; by default, do not wait for a running step."""
        return super().stop(timeout)


def follow_task(runtime: Runtime) -> PeriodicTask:
    """Return the loop that looks for users' changes every ``sync_interval`` seconds."""
    return FollowTask(
        "changes in the cloud",
        partial(follow_changes, runtime),
        interval=runtime.settings.sync_interval,
    )


def follow_changes(runtime: Runtime, stack_ids: Collection[str] | None = None) -> list[str]:
    """Reserve what users have changed in the cloud, in all running leases.

    If ``stack_ids`` is given, only look at these stacks. Returns the ids of stacks that another
    call should look at soon, because the cloud or climate is changing them now.
    """
    return [
        str(reservation.details.get(STACK_ID))
        for lease, reservation in _followed(runtime, stack_ids)
        if not (is_settled(lease) and _is_followed(runtime, lease, reservation))
    ]


def _followed(
    runtime: Runtime, stack_ids: Collection[str] | None
) -> Iterator[tuple[Lease, Reservation]]:
    """Yield the reservations of running leases that users can change in the cloud."""
    types = [name for name, plugin in runtime.plugins.items() if plugin.follows_changes]
    if not types:
        return
    with runtime.database.read() as session:
        ids = running_with(session, types, stack_ids)
        running = leases.find_some(session, ids).values()
    for lease in running:
        for reservation in lease.reservations:
            is_asked = stack_ids is None or reservation.details.get(STACK_ID) in stack_ids
            if reservation.resource_type in types and is_asked:
                yield lease, reservation


def _is_followed(runtime: Runtime, lease: Lease, reservation: Reservation) -> bool:
    """Follow what users have changed of a reservation; return False if another try may help.

    An unexpected error is only logged: the next pass of the loop tries again.
    """
    with log_context.about(lease.id), logged("cannot follow the changes of a stack"):
        return _follow(runtime, lease, reservation)
    return True


def _follow(runtime: Runtime, lease: Lease, reservation: Reservation) -> bool:
    """Reserve what users have changed of a reservation, or store why that is impossible.

    Returns False if the cloud or climate is changing it now, so that another try soon may help.
    """
    reason = None
    try:
        found = _changed_in_cloud(runtime, lease, reservation)
        if found is not None:
            LOG.info("users have changed what reservation %s has", reservation.id)
            change = ReservationChange(
                id=reservation.id, resource_type=None, params=found.params, details=found.details
            )
            # Another manager may follow the same change.
            update_lease(
                runtime,
                lease.id,
                LeaseChange(reservations=(change,)),
                _owner(runtime, lease),
                expected=lease,
            )
    except (ClimateError, ValidationError, *_PASSING) as error:
        if _is_passing(error):
            LOG.info("cannot follow the change of reservation %s yet: %s", reservation.id, error)
            return not isinstance(error, _BUSY)
        reason = _reason_of(error)
    if reason != reservation.details.get(NOT_RESERVED):
        now = runtime.clock.now()
        runtime.database.write(partial(_store, lease.id, reservation.id, reason, now))
    return True


def _is_passing(error: Exception) -> bool:
    """Return whether another pass may succeed: something is busy, or a service does not answer."""
    is_outage = isinstance(error, ClimateError) and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return is_outage or isinstance(error, _PASSING)


def _reason_of(error: Exception) -> str:
    if isinstance(error, QuotesRequest) or not isinstance(error, ClimateError):
        return _REJECTED
    return error.message[:_LONGEST_REASON]


def _changed_in_cloud(
    runtime: Runtime, lease: Lease, reservation: Reservation
) -> CloudChange | None:
    """Return the plug-in's ``changed_in_cloud``; None if the cloud has nothing of it now."""
    is_active = reservation.status is ReservationStatus.ACTIVE and reservation.stays
    if not (is_active and on_start.exists(lease, reservation)):
        return None
    return runtime.plugin(reservation.resource_type).changed_in_cloud(lease, reservation)


def _owner(runtime: Runtime, lease: Lease) -> Owner:
    """Return the owner of the lease, with a token from the lease's trust if there is one."""
    token = None
    if lease.trust_id is not None and runtime.trusts is not None:
        token = runtime.trusts.token(lease.trust_id)
    return Owner(lease.user_id, lease.project_id, token=token)


def _store(
    lease_id: str, reservation_id: str, reason: str | None, now: datetime, session: Session
) -> None:
    """Store why climate cannot reserve a change, and report it once with a notification.

    If ``reason`` is None, the change is reserved now. Then healing finds out whether the lease is
    still degraded.
    """
    lease = leases.get(session, lease_id, lock=True)
    reservation = next((r for r in lease.reservations if r.id == reservation_id), None)
    if lease.status is not LeaseStatus.ACTIVE or reservation is None or not reservation.stays:
        return
    before = reservation.details.get(NOT_RESERVED)
    details = {name: value for name, value in reservation.details.items() if name != NOT_RESERVED}
    if reason is not None:
        details[NOT_RESERVED] = reason
    leases.set_reservation(session, reservation_id, now, details=details)
    if before is None and reason is not None:
        LOG.warning("cannot reserve what users changed in the cloud: %s", reason)
        leases.update(session, replace(lease, degraded=True, updated_at=now))
        payload = blazar_wire.payload(leases.get(session, lease_id), {"reason": reason})
        outbox.write(session, event_type.LEASE_NOT_RESERVED, payload, now)
