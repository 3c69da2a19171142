"""Idempotency keys: a repeated request to create a lease returns the first answer.

A replay returns the first answer byte for byte, even if the lease has changed since. So one
transaction stores the lease and the answer, which a crash after the commit cannot lose. The answer
is rendered from the planned lease before that transaction begins.
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
    """The key of a request, and a function that renders the JSON answer from the lease."""

    key: IdempotencyKey
    render: Callable[[Lease], Mapping[str, Any]]


class IdempotencyGate(Gate):
    """Stores the key and the answer with the lease; rejects a request that was processed before."""

    def __init__(self, request: IdempotentRequest, lease: Lease) -> None:
        """Render the answer. No transaction is open."""
        self._key = request.key
        self._answer = request.render(lease)

    def before(
        self, session: Session, lease: Lease, now: datetime, _present: Lease | None = None
    ) -> None:
        """Claim the key; raises AlreadyProcessed, RequestUnderWay, IdempotencyKeyReused."""
        if lease.status is LeaseStatus.CREATING:  # the confirmation stores the answer
            idempotency.claim_undecided(session, self._key, lease.id, now)
        else:
            idempotency.claim(session, self._key, self._answer, now)


def replay(runtime: Runtime, key: IdempotencyKey) -> None:
    """Return if the request is new; raise AlreadyProcessed with the first answer otherwise.

    Also raises RequestUnderWay and IdempotencyKeyReused.
    """
    with runtime.database.read() as session:
        idempotency.check(session, key)
