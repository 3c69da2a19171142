"""Read leases, and compare them with what a client has seen."""

from climate.core.errors import NotFound
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.db.leases import leases
from climate.db.resources import pages
from climate.manager.process.runtime import Runtime, reading

find_leases = reading(pages.find_leases)


class LeaseChanged(Exception):
    """The stored lease is not the one that the caller has read; ``present`` is what is stored."""

    code = "precondition_failed"

    def __init__(self, present: Lease) -> None:
        """Keep the present lease."""
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
    """Return the lease; raises NotFound for one that is held (CREATING)."""
    if lease.status is LeaseStatus.CREATING:
        raise NotFound(f"Object with {{'lease_id': '{lease.id}'}} not found")
    return lease


def check_expected(lease: Lease, expected: Lease | None) -> None:
    """Raise LeaseChanged unless the lease, locked, is the ``expected`` one (None: any).

    The record is compared, not ``Lease.version``: a version that grew with the progress of events,
    which answers show too, would make managers read each lease of a batch again, and processes of a
    release before schema 0019 do not increment it. The record contains all that answers show. The
    lock needs it anyway, so the comparison costs no statement.
    """
    if expected is not None and lease != expected:
        raise LeaseChanged(lease)
