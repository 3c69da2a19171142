"""Read leases, and check that a lease has not changed since a client read it."""

from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.blazar_wire import enforcement_body
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.db.leases import leases
from climate.db.resources import pages
from climate.manager.notifications.lease_messages import resources_of
from climate.manager.process.runtime import Runtime, reading

find_leases = reading(pages.find_leases)
find_all_leases = reading(leases.find_all)
find_past_leases = reading(pages.find_past_leases)


class LeaseChanged(Exception):
    """Raised if the stored lease, ``present``, differs from the lease that the client has read."""

    #: The API compares ``present`` with the client's version and may retry. So this error is not
    #: the outcome of the request, and the metrics do not count it.
    is_retried = True

    def __init__(self, present: Lease) -> None:
        super().__init__(f"lease {present.id} has changed")
        self.present = present


def get_lease(runtime: Runtime, lease_id: str) -> Lease:
    """Return a lease; raises NotFound if it does not exist or is not confirmed (CREATING)."""
    with runtime.database.read() as session:
        return visible(leases.get(session, lease_id))


def as_enforced(session: Session, lease: Lease) -> dict[str, Any]:
    """Return a stored lease as the JSON object that the enforcement service receives."""
    ids = [reservation.id for reservation in lease.reservations]
    return enforcement_body(lease, resources_of(session, ids))


def visible(lease: Lease) -> Lease:
    """Return the lease unchanged; raise NotFound if its status is CREATING.

    A lease with this status waits for an external service to allow it, so the API does not show it
    yet.
    """
    if lease.status is LeaseStatus.CREATING:
        raise NotFound(f"Object with {{'lease_id': '{lease.id}'}} not found")
    return lease


def check_expected(lease: Lease, expected: Lease | None) -> None:
    """Raise LeaseChanged if a lease differs from ``expected``, the lease that a client has read.

    The caller has locked ``lease``. If ``expected`` is None, nothing is checked. The function
    compares all fields, because some changes that the API shows do not increment
    ``Lease.version``: for example, the progress of events.
    """
    if expected is not None and lease != expected:
        raise LeaseChanged(lease)
