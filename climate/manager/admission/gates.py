"""Gates: hooks by which an optional feature takes part in creating or changing a lease.

Limits and idempotency keys are such features. The modules ``create`` and ``update`` build a list of
gates, one for each optional feature that applies to the request. Then they call each hook of each
gate. A request without optional features has no gates.
"""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.lease.model import Lease
from climate.core.matching.packing import Units
from climate.core.matching.requirement import Requirement
from climate.db.resources.booking_statement import BookingPlan

# The requirements of a lease, each with its number of units by resource id.
Taken = Iterable[tuple[Requirement, Units]]


class Gate:
    """Base class of gates: objects by which a feature such as limits can check or reject a request.

    A subclass overrides some of the hooks below; the hooks of this class do nothing. The
    transaction of a request may run several times, with the same gate. So the hook ``before`` must
    replace everything that the gate remembers from an earlier run.
    """

    def stored(self, lease: Lease) -> Lease:
        """Return the new lease with the changes that the gate makes before the lease is stored.

        A gate may change the status and the events. For example, if another service must allow a
        lease, a gate returns the lease with the status CREATING; the hook ``settle`` later
        completes the lease.
        """
        return lease

    def before_refusal(self, _session: Session, _lease: Lease, _now: datetime) -> bool:
        """Return whether climate may refuse the lease for lack of resources without a transaction.

        The hook ``before`` is not called then. To reject the request for another reason, the gate
        raises any ClimateError.
        """
        return False

    def planned(self, _plan: BookingPlan, _lease: Lease) -> BookingPlan | None:
        """Return the plan with the check of this gate, if one SQL statement can book and check.

        Returns None if the gate needs the other hooks. Then climate calls them in a transaction.
        """
        return None

    def before(
        self, session: Session, lease: Lease, now: datetime, present: Lease | None = None
    ) -> None:
        """Check or prepare a request in its transaction, before climate chooses resources.

        ``lease`` is the lease as requested, ``present`` the stored one (None for a new lease). To
        reject the request, the gate raises any ClimateError.
        """

    def after(self, session: Session, lease: Lease, now: datetime) -> None:
        """Check the lease in the transaction that has just stored it, before the commit.

        To reject the request, the gate raises any ClimateError.
        """

    def allows(self, _session: Session, _lease: Lease, _taken: Taken, _now: datetime) -> bool:
        """Return whether the gate would allow a lease that climate may suggest after a rejection.

        The suggested lease is not stored; it would book the resources in ``_taken``.
        """
        return True

    def settle(self, lease: Lease) -> Lease:
        """Complete a new lease after the transaction that stored it, and return it.

        No transaction is open during this call, so a gate may call other services. If the gate
        stored the lease with the status CREATING, it now stores it as PENDING, or deletes it and
        raises a ClimateError.
        """
        return lease
