"""What a notification about a lease says: its wire form, and the resources concerned."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.lease import Granted
from climate.db import allocations, leases, outbox, resources


def announce(
    session: Session,
    lease_id: str,
    kind: str,
    now: datetime,
    **extra: Any,
) -> None:
    """Write the notification that an event of this kind took place."""
    lease = leases.get(session, lease_id)
    taken = resources_of(session, [reservation.id for reservation in lease.reservations])
    told: dict[str, list[dict[str, str]]] = {"hosts": []}
    for reservation_id, found in taken.items():
        for resource in found:
            one = {
                "reservation_id": reservation_id,
                "id": str(resource.id),
                "name": resource.external_id,
            }
            told.setdefault(f"{resources.noun(resource.type)}s", []).append(one)
    payload = wire.payload(lease, {**told, **extra})
    outbox.write(session, f"lease.event.{kind}", payload, now)


def resources_of(
    session: Session, reservation_ids: Sequence[str]
) -> dict[str, tuple[Granted, ...]]:
    """Return what each reservation has, by reservation."""
    held = allocations.held(session, reservation_ids)
    found = resources.find_some(session, {id_ for ids in held.values() for id_ in ids})
    return {
        reservation_id: tuple(Granted.of(found[id_], one.amounts) for id_, one in mine.items())
        for reservation_id, mine in held.items()
    }
