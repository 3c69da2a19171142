"""Which requests were carried out, and what was answered: kept until nobody asks again.

Only requests that made something are remembered. A refusal has changed nothing, and whoever
sends the request again wants it decided anew: capacity may be free by then.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.errors import IdempotencyKeyReused
from climate.core.lease import Lease
from climate.core.once import AlreadyAnswered, Once
from climate.db.tables import IdempotencyKeyRow


def look(session: Session, once: Once) -> None:
    """Return if the request is new.

    Raises AlreadyAnswered, or IdempotencyKeyReused if its key stands for another request.
    """
    query = sa.select(IdempotencyKeyRow).where(*_mine(once))
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        return
    if row.fingerprint != once.fingerprint:
        raise IdempotencyKeyReused(
            f"The Idempotency-Key {once.key} was used for another request: use a new key, or send"
            " what you sent the first time"
        )
    raise AlreadyAnswered(row.answer)


def claim(session: Session, once: Once, now: datetime) -> None:
    """Take the key for this transaction; whoever comes second waits here for its end.

    To be called before anything is looked at: the second shall get the first one's answer, not
    be told that the first has left nothing. Raises what ``look`` raises.
    """
    look(session, once)
    row = {
        "project_id": once.project_id,
        "user_id": once.user_id,
        "key": once.key,
        "fingerprint": once.fingerprint,
        "answer": {},
        "created_at": now,
    }
    # If the first has committed meanwhile, this key is taken: the transaction runs again and looks.
    session.execute(sa.insert(IdempotencyKeyRow).values(**row))


def remember(session: Session, once: Once, lease: Lease) -> None:
    """Keep what is answered, in the transaction that makes the lease."""
    answer = dict(once.answer(lease))
    session.execute(sa.update(IdempotencyKeyRow).where(*_mine(once)).values(answer=answer))


def forget(session: Session, before: datetime) -> None:
    """Remove keys that were used before a moment."""
    session.execute(sa.delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < before))


def _mine(once: Once) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        IdempotencyKeyRow.project_id == once.project_id,
        IdempotencyKeyRow.user_id == once.user_id,
        IdempotencyKeyRow.key == once.key,
    )
