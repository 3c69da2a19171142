"""Start and stop reservations with ``on_start: manual``, at the request of users.

A request only stores the new run state and an ``update_lease`` event, in one transaction. A manager
then runs the event, like any other change of a running lease. So an acknowledged request takes
effect even if the process that received it dies.
"""

from dataclasses import replace
from functools import partial

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire, on_start
from climate.core.lease.lifecycle import RunState
from climate.core.lease.model import RUN_STATE, Reservation
from climate.core.notifications import event_type
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.manager.leases.event_plan import add_update_event
from climate.manager.process.runtime import Runtime


def request_state(
    runtime: Runtime, lease_id: str, reservation_id: str, wanted: RunState
) -> Reservation:
    """Let a manager start or stop a reservation; return the reservation with its new run state.

    ``wanted`` is STARTED or STOPPED. A repeated request changes nothing. Raises NotFound,
    NotManual, LeaseNotRunning, LeaseBusy, and ReservationStopping.
    """
    work = partial(_store_request, runtime, lease_id, reservation_id, wanted)
    reservation = runtime.database.write(work)
    runtime.wakeup.hint()
    return reservation


def _store_request(
    runtime: Runtime, lease_id: str, reservation_id: str, wanted: RunState, session: Session
) -> Reservation:
    now = runtime.clock.now()
    lease = leases.get(session, lease_id, lock=True)
    reservation = on_start.find(lease, reservation_id)
    before = reservation.run_state
    state = on_start.requested_state(lease, reservation, wanted, now)
    if on_start.needs_event(lease, before, state):
        add_update_event(session, lease, now)
    if state is before:
        return reservation
    details = {**reservation.details, RUN_STATE: state.value}
    leases.set_reservation(session, reservation_id, now, details=details)
    leases.update(session, replace(lease, updated_at=now))
    changed = leases.get(session, lease_id)
    outbox.write(session, event_type.LEASE_UPDATE, blazar_wire.payload(changed), now, lease.window)
    return on_start.find(changed, reservation_id)
