"""Which requests were carried out, and what was answered: kept until nobody asks again.

Only requests that made something are remembered. A refusal has changed nothing, and whoever
sends the request again wants it decided anew: capacity may be free by then. While a lease is held
its request is not decided yet; if that lease is released the request is as good as never sent.
"""

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import IdempotencyKeyReused, RequestUnderWay
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import Lease
from climate.core.once import AlreadyAnswered, Once
from climate.db.tables.leases import IdempotencyKeyRow, LeaseRow


def look(session: Session, once: Once) -> bool:
    """Return if the request is new; whether it was sent before and nothing came of it.

    Raises AlreadyAnswered, RequestUnderWay, or IdempotencyKeyReused if its key stands for another
    request.
    """
    query = sa.select(IdempotencyKeyRow).where(*_mine(once))
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        return False
    if row.fingerprint != once.fingerprint:
        raise IdempotencyKeyReused(
            f"The Idempotency-Key {once.key} was used for another request: use a new key, or send"
            " what you sent the first time"
        )
    if row.held_id is None:
        raise AlreadyAnswered(row.answer)
    held = (LeaseRow.id == row.held_id, LeaseRow.status == LeaseStatus.CREATING.value)
    if session.scalar(sa.select(LeaseRow.id).where(*held)) is not None:
        raise RequestUnderWay(
            f"The request with the Idempotency-Key {once.key} that was sent before is not decided"
            " yet: send it again shortly"
        )
    return True


def claim(session: Session, once: Once, now: datetime, held_id: str | None = None) -> None:
    """Take the key for this transaction; whoever comes second waits here for its end.

    To be called before anything is looked at: the second shall get the first one's answer, not
    be told that the first has left nothing. With ``held_id`` the request is not decided before
    that lease is. Raises what ``look`` raises.
    """
    if look(session, once):
        session.execute(sa.delete(IdempotencyKeyRow).where(*_mine(once)))
    row: dict[str, Any] = {
        "project_id": once.project_id,
        "user_id": once.user_id,
        "key": once.key,
        "fingerprint": once.fingerprint,
        "answer": {},
        "held_id": held_id,
        "created_at": now,
    }
    # If the first has committed meanwhile, this key is taken: the transaction runs again and looks.
    session.execute(sa.insert(IdempotencyKeyRow).values(**row))


def remember(session: Session, once: Once, lease: Lease) -> None:
    """Keep what is answered, in the transaction that makes the lease."""
    answer = dict(once.answer(lease))
    decided = {"answer": answer, "held_id": None}
    session.execute(sa.update(IdempotencyKeyRow).where(*_mine(once)).values(**decided))


def forget(session: Session, before: datetime) -> None:
    """Remove keys that were used before a moment."""
    session.execute(sa.delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < before))


def _mine(once: Once) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        IdempotencyKeyRow.project_id == once.project_id,
        IdempotencyKeyRow.user_id == once.user_id,
        IdempotencyKeyRow.key == once.key,
    )
