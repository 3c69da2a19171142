"""The routes that start and stop reservations with ``on_start: manual``."""

from climate.api.call import Answer, Call
from climate.api.v2.http import validation
from climate.api.v2.leases.rendering import reservation_body
from climate.api.v2.leases.views import visible
from climate.core.lease.lifecycle import RunState
from climate.manager.events.manual_start import request_state


def start(call: Call, lease_id: str, reservation_id: str) -> Answer:
    """Start a reservation with on_start manual: climate creates what it is for."""
    return _change(call, lease_id, reservation_id, "reservations:start", RunState.STARTED)


def stop(call: Call, lease_id: str, reservation_id: str) -> Answer:
    """Stop a reservation with on_start manual: climate deletes what it created."""
    return _change(call, lease_id, reservation_id, "reservations:stop", RunState.STOPPED)


def _change(call: Call, lease_id: str, reservation_id: str, rule: str, wanted: RunState) -> Answer:
    validation.no_query()
    lease = visible(call, lease_id)
    call.require(rule, lease.project_id)
    reservation = request_state(call.runtime, lease_id, reservation_id, wanted)
    return reservation_body(reservation), 202
