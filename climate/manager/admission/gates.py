"""Gates: the hooks by which an optional feature takes part in creating or changing a lease.

``create`` and ``update`` build a list of gates, one for each optional feature that applies to the
request. They call each hook of each gate. A request without optional features has no gates.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.lease.model import Lease
from climate.core.matching.packing import Units
from climate.core.matching.requirement import Requirement

# The requirements of a lease, each with its number of units by resource id.
Taken = Iterable[tuple[Requirement, Units]]


class Gate:
    """Base class of all gates; its hooks do nothing.

    The transaction may run more than once. So ``before`` must overwrite all state that the gate has
    stored in an earlier run.
    """

    def stored(self, lease: Lease) -> Lease:
        """Return a new lease as the next transaction, its first one, should store it."""
        return lease

    def before(
        self, session: Session, lease: Lease, now: datetime, present: Lease | None = None
    ) -> None:
        """Run in the transaction, before the admission. May raise any ClimateError to reject.

        ``lease`` is the requested lease, ``present`` the stored one (None for a new lease).
        """

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Run in the transaction, after the lease is stored. May raise any ClimateError."""

    def allows(self, _session: Session, _lease: Lease, _taken: Taken, _now: datetime) -> bool:
        """Return whether the gate would admit this lease, an alternative that books ``taken``."""
        return True

    def settle(self, lease: Lease) -> Lease:
        """Run after the commit of a new lease, with no transaction open; return the final lease."""
        return lease
