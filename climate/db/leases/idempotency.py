"""Idempotency keys: a request that is sent again with its key gets the answer of the first request.

climate stores the keys of successful requests only. A rejected request changed nothing. If the
client repeats it, climate decides it again, because capacity may be free by then.

A lease is *held* while climate waits for another service to approve it, or prepares the cloud for
it. Until climate confirms the lease, the request that creates it has no answer. If climate releases
(deletes) the held lease, the client can send the request with this key again as a new request.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import IdempotencyKeyReused, RequestUnderWay
from climate.core.lease.idempotency import AlreadyProcessed, IdempotencyKey
from climate.core.lease.lifecycle import LeaseStatus
from climate.db.tables.bulk import values
from climate.db.tables.leases import IdempotencyKeyRow, LeaseRow


def check(session: Session, key: IdempotencyKey) -> bool:
    """Check whether an earlier request had this idempotency key.

    Returns False if there was no such request. Otherwise, the earlier request decides:

    - It had other content than this request: raises IdempotencyKeyReused.
    - It has succeeded: raises AlreadyProcessed.
    - Its lease is still held (not confirmed yet): raises RequestUnderWay.
    - Its held lease was released (deleted): returns True. The caller must replace the stored key.
    """
    query = sa.select(IdempotencyKeyRow).where(*_has_key(key))
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        return False
    if row.fingerprint != key.fingerprint:
        raise IdempotencyKeyReused(
            f"The Idempotency-Key {key.key} was used for another request: use a new key, or"
            " repeat the first request unchanged"
        )
    if row.held_id is None:
        raise AlreadyProcessed(row.answer)
    held = (LeaseRow.id == row.held_id, LeaseRow.status == LeaseStatus.CREATING.value)
    if session.scalar(sa.select(LeaseRow.id).where(*held)) is not None:
        raise RequestUnderWay(
            f"climate has not decided the first request with the Idempotency-Key {key.key} yet:"
            " send it again shortly"
        )
    return True


def claim(session: Session, key: IdempotencyKey, answer: Mapping[str, Any], now: datetime) -> None:
    """Store an idempotency key with the answer to its request.

    Call this function before any other statement of the transaction. Then a second request with the
    same key waits here until the first request has ended, and gets the answer of the first request.
    Otherwise, climate could reject the second request because the first one took the last resource.
    Raises the errors of ``check``; AlreadyProcessed contains the first answer.
    """
    _insert(session, key, now, answer=dict(answer), held_id=None)


def claim_undecided(session: Session, key: IdempotencyKey, held_id: str, now: datetime) -> None:
    """Store the idempotency key of a request whose lease is held (not confirmed yet).

    ``held_id`` is the id of that lease. ``decide`` adds the answer later. Raises the errors of
    ``check``.
    """
    _insert(session, key, now, answer={}, held_id=held_id)


def decide(session: Session, key: IdempotencyKey, answer: Mapping[str, Any]) -> None:
    """Store the answer for an idempotency key, or replace it.

    If the lease is held, the same transaction must confirm it.
    """
    decided = sa.update(IdempotencyKeyRow).where(*_has_key(key))
    session.execute(decided.values(answer=dict(answer), held_id=None))


def forget(session: Session, before: datetime) -> None:
    """Delete the idempotency keys that were stored before ``before``."""
    session.execute(sa.delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < before))


def _insert(session: Session, key: IdempotencyKey, now: datetime, **decision: Any) -> None:
    if check(session, key):
        session.execute(sa.delete(IdempotencyKeyRow).where(*_has_key(key)))
    row = values(key, "project_id user_id key fingerprint")
    # If another transaction inserted the key meanwhile, this one runs again and finds its answer.
    session.execute(sa.insert(IdempotencyKeyRow).values(**row, created_at=now, **decision))


def _has_key(key: IdempotencyKey) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        IdempotencyKeyRow.project_id == key.project_id,
        IdempotencyKeyRow.user_id == key.user_id,
        IdempotencyKeyRow.key == key.key,
    )
