"""The limit of confirmations of e-mail addresses, per address and per project in an hour.

Each request takes a place in each of its buckets. A place is free again an hour later. The primary
key of the table enforces the limit, even if two requests run at the same time. The row stays
if the subscription is deleted, so users cannot avoid the limit by deleting subscriptions.
"""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.notifications.mail import LIMITED_TIME
from climate.db.tables.notifications import ConfirmationRow


def reserve(session: Session, bucket: str, most: int, now: datetime) -> bool:
    """Take a place for a confirmation at ``now``; return False if all ``most`` places are taken.

    ``bucket`` is a hash of the address or of the project.
    """
    before = now - LIMITED_TIME
    query = sa.select(ConfirmationRow.place, ConfirmationRow.requested_at)
    taken = {row.place: row.requested_at for row in session.execute(query.where(_is_of(bucket)))}
    for place in range(most):
        if place not in taken:
            session.add(ConfirmationRow(bucket=bucket, place=place, requested_at=now))
            session.flush()  # if another request took the place, the transaction runs again
            return True
        if taken[place] <= before and _renew(session, bucket, place, before, now):
            return True
    return False


def remove_old(session: Session, before: datetime) -> None:
    """Delete the rows of requests before ``before``, whose places are free."""
    session.execute(sa.delete(ConfirmationRow).where(ConfirmationRow.requested_at < before))


def _renew(session: Session, bucket: str, place: int, before: datetime, now: datetime) -> bool:
    """Take a place that is free again; return False if another request was faster."""
    is_free = (
        _is_of(bucket),
        ConfirmationRow.place == place,
        ConfirmationRow.requested_at <= before,
    )
    result = session.execute(sa.update(ConfirmationRow).where(*is_free).values(requested_at=now))
    return bool(result.rowcount)  # type: ignore[attr-defined]


def _is_of(bucket: str) -> sa.ColumnElement[bool]:
    return ConfirmationRow.bucket == bucket
