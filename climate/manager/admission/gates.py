"""Gates: the steps that an optional feature adds to the creation or the change of a lease.

A use case makes a list of the gates of the features that are on for this request, and passes the
lease through them. A request that uses no optional feature has no gates.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.lease.model import Lease
from climate.core.matching.packing import Units
from climate.core.matching.requirement import Requirement


class Gate:
    """The base of all gates: each of its steps does nothing.

    The transaction may run more than once, so ``before`` must overwrite what it kept earlier.
    """

    def stored(self, lease: Lease) -> Lease:
        """Return the new lease as the first transaction stores it."""
        return lease

    def before(
        self, session: Session, lease: Lease, now: datetime, present: Lease | None = None
    ) -> None:
        """Act in the transaction, before the admission. Raises any ClimateError to refuse.

        ``lease`` is as requested, ``present`` as it is stored (None: it is new).
        """

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Act in the transaction, once the lease is stored. Raises any ClimateError to refuse."""

    def allows(
        self,
        _session: Session,
        _lease: Lease,
        _taken: Iterable[tuple[Requirement, Units]],
        _now: datetime,
    ) -> bool:
        """Return whether the gate would admit the lease if it took these units (dry run)."""
        return True

    def settle(self, lease: Lease) -> Lease:
        """Act after the commit of the new lease; return the lease as it is then."""
        return lease
