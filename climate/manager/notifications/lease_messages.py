"""What a notification about a lease, or about a node of it, says."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.lease import Granted, Lease
from climate.core.schedule import END, START
from climate.core.settings import Provisioning
from climate.db import allocations, outbox, resources
from climate.db.allocations import Named
from climate.db.preparations import HOST
from climate.manager.provisioning import lead_times


@dataclass(frozen=True, slots=True)
class News:
    """That an event of a kind took place of a lease, which is given as it is now, and more."""

    kind: str
    lease: Lease
    extra: Mapping[str, Any] = field(default_factory=dict)


def announce(session: Session, news: Sequence[News], now: datetime) -> None:
    """Write notifications, in this order."""
    if not news:
        return
    ids = {reservation.id for one in news for reservation in one.lease.reservations}
    taken = allocations.named(session, ids)
    told = ((f"lease.event.{one.kind}", _payload(one, taken)) for one in news)
    outbox.write_all(session, told, now)


def _payload(news: News, taken: Mapping[str, Sequence[Named]]) -> dict[str, Any]:
    """Return what is told of a lease, and of the resources that its reservations have."""
    told: dict[str, list[dict[str, str]]] = {"hosts": []}
    for reservation in news.lease.reservations:
        for resource in taken[reservation.id]:
            one = {
                "reservation_id": reservation.id,
                "id": str(resource.id),
                "name": resource.external_id,
            }
            told.setdefault(f"{resources.noun(resource.type)}s", []).append(one)
    return wire.payload(news.lease, {**told, **news.extra})


def tell_nodes(
    session: Session, kind: str, told: Iterable[Mapping[str, str]], now: datetime
) -> None:
    """Write notifications that are each about one node, and no project's but the operator's."""
    outbox.write_all(session, ((f"node.{kind}", {**one, "project_id": ""}) for one in told), now)


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
    session: Session, reservation_ids: Collection[str]
) -> dict[str, tuple[Granted, ...]]:
    """Return what each reservation has, by reservation."""
    held = allocations.held(session, reservation_ids)
    found = resources.find_some(session, {id_ for ids in held.values() for id_ in ids})
    return {
        reservation_id: tuple(Granted.of(found[id_], one.amounts) for id_, one in mine.items())
        for reservation_id, mine in held.items()
    }
