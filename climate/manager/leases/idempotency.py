"""Idempotency of the creation of leases: a repeated request gets the first answer again.

A replay must return the first answer byte for byte, whatever has become of the lease since. So the
answer is stored with the lease, by the same transaction: a process that dies after the commit has
not lost it. It is rendered before that transaction begins, from the lease as it is going to be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core.lease.idempotency import IdempotencyKey
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.db.leases import idempotency
from climate.manager.admission.gates import Gate
from climate.manager.process.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """The key of a request, and how its answer (a JSON object) is rendered from the lease."""

    key: IdempotencyKey
    render: Callable[[Lease], Mapping[str, Any]]


class IdempotencyGate(Gate):
    """Stores the key with the lease; refuses a request that was processed before."""

    def __init__(self, request: IdempotentRequest, lease: Lease) -> None:
        """Render the answer, while no transaction is open."""
        self._key = request.key
        self._answer = request.render(lease)

    def before(
        self, session: Session, lease: Lease, now: datetime, _present: Lease | None = None
    ) -> None:
        """Claim the key; raises AlreadyProcessed, RequestUnderWay, IdempotencyKeyReused."""
        if lease.status is LeaseStatus.CREATING:  # the hold stores the answer
            idempotency.claim_undecided(session, self._key, lease.id, now)
        else:
            idempotency.claim(session, self._key, self._answer, now)


def replay(runtime: Runtime, key: IdempotencyKey) -> None:
    """Return if the request is new. Raises AlreadyProcessed with the first answer if it is not.

    Raises RequestUnderWay and IdempotencyKeyReused, too.
    """
    with runtime.database.read() as session:
        idempotency.check(session, key)
