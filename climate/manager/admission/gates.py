"""Gates: the hooks of an optional feature in the creation or the change of a lease.

A use case builds the list of gates for the features that the request uses, and calls each hook of
each gate. A request without optional features has no gates.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.lease.model import Lease
from climate.core.matching.packing import Units
from climate.core.matching.requirement import Requirement


class Gate:
    """Base class of all gates; its hooks do nothing.

    The transaction may run more than once, so ``before`` must overwrite the state of earlier runs.
    """

    def stored(self, lease: Lease) -> Lease:
        """Return the new lease in the form that the first transaction stores."""
        return lease

    def before(
        self, session: Session, lease: Lease, now: datetime, present: Lease | None = None
    ) -> None:
        """Run in the transaction, before the admission. May raise any ClimateError to reject.

        ``lease`` is the requested lease, ``present`` the stored one (None for a new lease).
        """

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Run in the transaction, after the lease is stored. May raise any ClimateError."""

    def allows(
        self,
        _session: Session,
        _lease: Lease,
        _taken: Iterable[tuple[Requirement, Units]],
        _now: datetime,
    ) -> bool:
        """Return whether the gate would admit the lease with these units (dry run)."""
        return True

    def settle(self, lease: Lease) -> Lease:
        """Run after the commit of a new lease; return the resulting lease."""
        return lease
