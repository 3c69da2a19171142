"""Idempotency keys: a repeated request to create a lease returns the first answer.

The client sends the same key with each repetition. climate answers a repetition with the first
answer, byte for byte, even if the lease has changed since. The transaction that stores (or
confirms) the lease also stores the answer, so a crash after the commit cannot lose it. The answer
is computed from the planned lease before that transaction begins. Where the booking changes the
lease, climate replaces the answer (``IdempotencyGate.after``, ``replace_answer``). The SQL
statements are in ``db/leases``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core.lease.idempotency import IdempotencyKey
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.db.engine.database import Database
from climate.db.leases import idempotency
from climate.manager.admission.gates import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """The idempotency key of a request, and a function that makes the answer from the lease."""

    key: IdempotencyKey
    render: Callable[[Lease], Mapping[str, Any]]


class IdempotencyGate(Gate):
    """Stores the idempotency key and the answer in the same transaction as the lease.

    Rejects a request whose key is stored already. If an external service must allow the lease first
    (status CREATING), this transaction stores only the key. The transaction that confirms the lease
    then stores the answer.

    The hook ``settle`` of the gates ``earlier``, which are called before this one, may change the
    lease that the answer shows. It must not call other services.
    """

    def __init__(self, request: IdempotentRequest, lease: Lease, earlier: Sequence[Gate]) -> None:
        self._key = request.key
        self._render = request.render
        self._answer = request.render(lease)
        self._earlier = earlier

    def before(
        self, session: Session, lease: Lease, now: datetime, _present: Lease | None = None
    ) -> None:
        """Store the idempotency key of a request, and the answer if it is final.

        The answer is not final while an external service must still allow the lease (status
        CREATING). The answer about an offer is final. Raises AlreadyProcessed, RequestUnderWay,
        IdempotencyKeyReused.
        """
        is_held = lease.status is LeaseStatus.CREATING and not lease.is_offer
        if is_held:  # the confirmation stores the answer
            idempotency.claim_undecided(session, self._key, lease.id, now)
        else:
            idempotency.claim(session, self._key, self._answer, now)

    def after(self, session: Session, lease: Lease, _now: datetime) -> None:
        """Replace the answer if the gates ``earlier`` change the lease because of its booking."""
        if lease.status is not LeaseStatus.PENDING or not self._earlier:
            return
        for gate in self._earlier:
            lease = gate.settle(lease)
        answer = self._render(lease)
        if answer != self._answer:
            idempotency.decide(session, self._key, answer)


def replace_answer(
    database: Database, request: IdempotentRequest | None, answer: Mapping[str, Any]
) -> None:
    """Replace the stored answer by the first one that is sent, which shows a later state.

    If the process dies before, repetitions get the answer that was stored with the lease.
    """
    if request is not None:
        database.write(lambda session: idempotency.decide(session, request.key, answer))


def replay(database: Database, request: IdempotentRequest | None) -> None:
    """Raise AlreadyProcessed, with the first answer, if a request with this key has succeeded.

    Raises RequestUnderWay if a request with this key is still being processed. Raises
    IdempotencyKeyReused if the key belongs to a different request. Does nothing if the request is
    new or has no key.
    """
    if request is not None:
        with database.read() as session:
            idempotency.check(session, request.key)
