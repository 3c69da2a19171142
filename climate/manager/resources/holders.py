"""Use cases about the resources of a lease, and about the bookings of a resource.

The owner of a lease sees the lease's resources. Operators see the bookings of resources.
"""

from datetime import datetime

from climate.core.lease import on_start
from climate.core.lease.holding import Booking, LeaseResource
from climate.core.lease.model import HANDED_OVER, Lease
from climate.core.page import Page, Part
from climate.db.provisioning import host_facts
from climate.db.resources import holders
from climate.manager.process.runtime import Runtime
from climate.manager.resources import registry


def of_lease(runtime: Runtime, lease: Lease, page: Page, *, private: bool) -> Part[LeaseResource]:
    """Return a page of the resources of a lease, sorted by name.

    If ``private`` is false, the result omits private properties (hidden from ordinary users).
    """
    provisioning = runtime.settings.provisioning is not None
    with runtime.database.snapshot() as session:
        part = holders.of_lease(session, lease.id, page)
        ids = list({held.resource_id for held in part.items})
        shown = registry.find_shown(session, ids, private=private)
        reports = host_facts.find(session, ids, provisioning=provisioning, lease_id=lease.id)
    handed_over = {
        (reservation.id, id_)
        for reservation in lease.reservations
        if on_start.exists(lease, reservation)
        for id_ in reservation.details.get(HANDED_OVER, ())
    }
    items = [
        LeaseResource(
            held=held,
            properties=shown[held.resource_id].properties,
            end=lease.window.end,
            state=reports[held.resource_id].state,
            ready_at=reports[held.resource_id].ready_at,
            handed_over=(held.reservation_id, held.resource_id) in handed_over,
        )
        for held in part.items
    ]
    return Part(items=items, more=part.more)


def bookings(
    runtime: Runtime, resource_id: int, start: datetime, end: datetime | None, page: Page
) -> Part[Booking]:
    """Return a page of a resource's bookings that overlap [start, end), sorted by start.

    If ``end`` is None, the time after ``start`` has no limit. Raises NotFound.
    """
    resource = registry.get_resource(runtime, resource_id, private=False)
    with runtime.database.snapshot() as session:
        return holders.bookings(session, resource.id, start, end, page)
