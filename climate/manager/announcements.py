"""What a notification about a lease, or about a node of it, says."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.lease import Granted, Lease
from climate.core.schedule import END, START
from climate.core.settings import Provisioning
from climate.db import allocations, leases, outbox, resources
from climate.db.preparations import HOST
from climate.db.rows import insert
from climate.manager import lead_times


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


def tell_nodes(
    session: Session, kind: str, told: Iterable[Mapping[str, str]], now: datetime
) -> None:
    """Write notifications that are each about one node, and no project's but the operator's."""
    parts = [outbox.rows(f"node.{kind}", {**one, "project_id": ""}, now) for one in told]
    if parts:
        insert(session, (parts[0][0], [row for _, rows in parts for row in rows]))


def tell_nodes_of(
    settings: Provisioning | None,
    session: Session,
    kind: str,
    lease: Lease,
    taken: Mapping[str, Sequence[Granted]],
    now: datetime,
) -> None:
    """Tell each node of a lease that it started or ended, if nodes have listeners."""
    if settings is None or not settings.topics or kind not in {START, END}:
        return
    told = (
        {"lease_id": lease.id, "node": lead_times.node(host), "reservation_id": reservation_id}
        for reservation_id, found in taken.items()
        for host in found
        if host.type == HOST
    )
    tell_nodes(session, kind, told, now)


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
