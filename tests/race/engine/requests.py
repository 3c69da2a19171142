"""Short requests for leases: ``ask(runtime, instances(2, vcpus=4))``."""

from datetime import timedelta
from typing import Any

from climate.core.lease.change import Change
from climate.core.lease.model import Lease
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases.create import LeaseRequest, OnShortage, Owner, create_lease
from climate.manager.leases.reservation_changes import LeaseChange, ReservationChange
from climate.manager.leases.update import update_lease
from climate.manager.process.runtime import Runtime
from tests.race.engine import kinds

OWNER = Owner(user_id="user", project_id="project")
HOUR = timedelta(hours=1)
Want = tuple[str, dict[str, Any]]


def hosts(low: int = 1, high: int = 0, **given: Any) -> Want:
    """Return a request for ``low`` to ``high`` whole hosts (``high`` 0: exactly ``low``)."""
    return _want(kinds.HOST, low, high, given)


def instances(low: int = 1, high: int = 0, **given: Any) -> Want:
    """Return a request for shares of hosts."""
    return _want(kinds.INSTANCE, low, high, given)


def addresses(low: int = 1, high: int = 0, **given: Any) -> Want:
    """Return a request for a part of a pool."""
    return _want(kinds.ADDRESS, low, high, given)


def _want(resource_type: str, low: int, high: int, given: dict[str, Any]) -> Want:
    return resource_type, kinds.params(resource_type, min=low, max=high or low, **given)


def reserve(
    runtime: Runtime,
    *wants: Want,
    start: float = 1,
    hours: float = 1,
    on_shortage: OnShortage | None = None,
) -> Lease:
    """Create a lease from ``start`` hours after now, for ``hours``."""
    begin = runtime.clock.now() + start * HOUR
    lease_change = [ReservationRequest(resource_type=type_, params=given) for type_, given in wants]
    request = LeaseRequest(
        name="lease", start=begin, end=begin + hours * HOUR, reservations=tuple(lease_change)
    )
    return create_lease(runtime, OWNER, request, on_shortage=on_shortage)


def change(
    runtime: Runtime,
    lease: Lease,
    *,
    start: float | None = None,
    end: float | None = None,
    **params: Any,
) -> Lease:
    """Change the dates (hours after now), or the parameters of the first reservation."""
    now = runtime.clock.now()
    dates = Change(
        start=None if start is None else now + start * HOUR,
        end=None if end is None else now + end * HOUR,
    )
    first = lease.reservations[0]
    reservation_change = ReservationChange(
        id=first.id, resource_type=None, params={**first.params, **params}
    )
    lease_change = LeaseChange(dates=dates, reservations=(reservation_change,) if params else ())
    return update_lease(runtime, lease.id, lease_change)
