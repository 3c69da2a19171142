"""How far leases have come, stored for many of them at once."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.core.lease.model import Lease, Reservation
from climate.db.engine.array_in import among
from climate.db.tables.bulk import update
from climate.db.tables.leases import LEASES, ReservationRow

_ADVANCE = (
    sa.update(LEASES)
    .where(among(LEASES.c.id, "ids"))
    .values(
        status=sa.bindparam("new_status"),
        degraded=sa.bindparam("is_degraded"),
        updated_at=sa.bindparam("now"),
        started_at=sa.bindparam("since"),
    )
)


def advance(session: Session, changes: Iterable[tuple[Lease, Lease]]) -> None:
    """Store how far leases and their reservations have come: what they were, and what they are.

    That is the status and flags of each, when it started, and the details of reservations; what is
    the very same record as before is left alone.
    """
    alike: dict[tuple[str, bool, datetime | None, datetime | None], list[str]] = {}
    reservations = []
    for before, after in changes:
        if after is not before:
            known = (after.status.value, after.degraded, after.updated_at, after.start.started_at)
            alike.setdefault(known, []).append(after.id)
            pairs = zip(before.reservations, after.reservations, strict=True)
            reservations += [_progress(one) for was, one in pairs if one is not was]
    for (status, degraded, now, since), ids in alike.items():
        values = {"new_status": status, "is_degraded": degraded, "now": now, "since": since}
        session.execute(_ADVANCE, {"ids": ids, **values})
    update(session, ReservationRow, reservations)


def _progress(reservation: Reservation) -> dict[str, Any]:
    return {
        "id": reservation.id,
        "status": reservation.status.value,
        "details": dict(reservation.details),
        "missing_resources": reservation.missing_resources,
        "updated_at": reservation.updated_at,
    }


def catch_up(session: Session, lease_ids: Collection[str], now: datetime) -> None:
    """Note that events of leases are found to be late now."""
    told = sa.update(LEASES).where(among(LEASES.c.id, lease_ids))
    session.execute(told.values(caught_up_at=now))
