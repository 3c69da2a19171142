"""Read leases, and compare a stored lease with the version that a client has read."""

from climate.core.errors import NotFound
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.db.leases import leases
from climate.db.resources import pages
from climate.manager.process.runtime import Runtime, reading

find_leases = reading(pages.find_leases)


class LeaseChanged(Exception):
    """The stored lease, ``present``, differs from the lease that the client has read."""

    #: The caller compares again, so it is not an outcome of the request.
    is_retried = True

    def __init__(self, present: Lease) -> None:
        """Keep the stored lease."""
        super().__init__(f"lease {present.id} has changed")
        self.present = present


def get_lease(runtime: Runtime, lease_id: str) -> Lease:
    """Return a lease; raises NotFound."""
    with runtime.database.read() as session:
        return visible(leases.get(session, lease_id))


def find_all_leases(runtime: Runtime, project_id: str | None) -> list[Lease]:
    """Return the leases of a project (None: of all projects)."""
    with runtime.database.read() as session:
        return leases.find_all(session, project_id)


def visible(lease: Lease) -> Lease:
    """Return the lease; raises NotFound for a held lease (CREATING)."""
    if lease.status is LeaseStatus.CREATING:
        raise NotFound(f"Object with {{'lease_id': '{lease.id}'}} not found")
    return lease


def check_expected(lease: Lease, expected: Lease | None) -> None:
    """Raise LeaseChanged if the locked lease differs from ``expected`` (None: any lease).

    This compares the whole record, not ``Lease.version``. Answers also show the progress of events,
    which does not increment the version: managers would otherwise read each lease of a batch again.
    Releases before schema 0019 do not increment it at all. The lock reads the record anyway, so the
    comparison costs no statement.
    """
    if expected is not None and lease != expected:
        raise LeaseChanged(lease)
