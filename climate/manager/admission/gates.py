"""Gates: the hooks by which an optional feature takes part in creating or changing a lease.

Limits and idempotency keys are such features. The use cases ``create`` and ``update`` build a list
of gates, one for each optional feature that applies to the request. Then they call each hook of
each gate. A request without optional features has no gates.
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
    """Base class of the gates, the hooks of optional features; its own hooks do nothing.

    The transaction may run more than once. So ``before`` must overwrite all state that the gate has
    kept from an earlier run.
    """

    def stored(self, lease: Lease) -> Lease:
        """Return the new lease in the form in which the first transaction should store it.

        A gate can change its status and events, for example to store it as held.
        """
        return lease

    def before(
        self, session: Session, lease: Lease, now: datetime, present: Lease | None = None
    ) -> None:
        """Check or prepare a request; called in the transaction, before resources are chosen.

        ``lease`` is the requested lease, ``present`` the stored one (None for a new lease). To
        reject the request, the gate raises any ClimateError.
        """

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Check the stored lease; called in the transaction, after the lease is stored.

        To reject the request, the gate raises any ClimateError.
        """

    def allows(self, _session: Session, _lease: Lease, _taken: Taken, _now: datetime) -> bool:
        """Return whether the gate would admit a lease that climate may offer as an alternative.

        This lease is not stored; it would book the resources in ``_taken``.
        """
        return True

    def settle(self, lease: Lease) -> Lease:
        """Complete a new lease after the commit, and return it. No transaction is open.

        A gate that stored the lease as held confirms or releases it here. To reject the lease, it
        raises any ClimateError.
        """
        return lease
