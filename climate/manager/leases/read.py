"""Read leases, and compare a stored lease with the lease that a client has read."""

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
    """Raised if the stored lease, ``present``, differs from the lease that the client expects."""

    #: The API compares ``present`` with the client's version and may retry. So this error is not
    #: the outcome of the request, and the metrics do not count it.
    is_retried = True

    def __init__(self, present: Lease) -> None:
        super().__init__(f"lease {present.id} has changed")
        self.present = present


def get_lease(runtime: Runtime, lease_id: str) -> Lease:
    """Return a lease. Raises NotFound if there is none, or if it is held (CREATING)."""
    with runtime.database.read() as session:
        return visible(leases.get(session, lease_id))


def as_enforced(session: Session, lease: Lease) -> dict[str, Any]:
    """Return a stored lease in the form of a request to the enforcement service."""
    ids = [reservation.id for reservation in lease.reservations]
    return enforcement_body(lease, resources_of(session, ids))


def visible(lease: Lease) -> Lease:
    """Return the lease unchanged; raise NotFound if it is held (CREATING), as no API shows it."""
    if lease.status is LeaseStatus.CREATING:
        raise NotFound(f"Object with {{'lease_id': '{lease.id}'}} not found")
    return lease


def check_expected(lease: Lease, expected: Lease | None) -> None:
    """Raise LeaseChanged if the locked lease differs from ``expected`` (None: any lease).

    The function compares all fields, because ``Lease.version`` is not sufficient. The API shows the
    progress of events, but that progress does not increment the version. (If it did, managers would
    have to read each lease of a batch again.) Releases before schema 0019 do not increment the
    version at all. The statement that locks the lease also reads it, so the comparison executes no
    statement.
    """
    if expected is not None and lease != expected:
        raise LeaseChanged(lease)
