"""Lease messages: build notifications about leases and nodes; write them to the outbox.

The outbox is the database table of notifications. A relay publishes them later. A node is a host.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core.lease import blazar_wire, on_start
from climate.core.lease.lifecycle import RunState
from climate.core.lease.model import HOST, Granted, Lease, node
from climate.core.lease.schedule import BEFORE_START, END, START
from climate.core.notifications import event_type
from climate.core.settings import Provisioning
from climate.db.notifications import outbox
from climate.db.resources import allocations, resources
from climate.db.resources.allocations import Named

_RUN_STATES = {
    RunState.STARTED: event_type.RESERVATION_STARTED,
    RunState.STOPPED: event_type.RESERVATION_STOPPED,
}


@dataclass(frozen=True, slots=True)
class News:
    """A completed or failed event of a lease, which a notification is to announce.

    ``kind`` is the kind of the event. ``lease`` is the lease after the event. ``extra`` contains
    additional keys and values of the payload.
    """

    kind: str
    lease: Lease
    extra: Mapping[str, Any] = field(default_factory=dict)


def announce(session: Session, news: Sequence[News], now: datetime) -> None:
    """Write one notification to the outbox for each event in ``news``, in this order.

    The type of a notification is ``lease.event.KIND``, where KIND is the kind of the event.
    """
    if not news:
        return
    ids = {reservation.id for item in news for reservation in item.lease.reservations}
    named = allocations.named(session, ids)
    payloads = ((event_type.of_event(item.kind), _payload(item, named)) for item in news)
    outbox.write_all(session, payloads, now)


def remind(
    session: Session, pending: Collection[Lease], subscription_id: str, now: datetime
) -> None:
    """Write a notification ``lease.reminder`` of each lease that only one subscription receives."""
    ids = {reservation.id for lease in pending for reservation in lease.reservations}
    named = allocations.named(session, ids) if ids else {}
    extra = {"subscription_id": subscription_id}
    news = (News(BEFORE_START, lease, extra) for lease in pending)
    payloads = [(event_type.LEASE_REMINDER, _payload(item, named)) for item in news]
    outbox.write_all(session, payloads, now)


def announce_run_states(
    session: Session, changes: Iterable[tuple[Lease, Lease]], now: datetime
) -> None:
    """Write a notification for each reservation that a manager started or stopped for a user.

    ``changes`` contains each lease before and after the manager's action.
    """
    notifications = [
        (_RUN_STATES[state], blazar_wire.payload(after, {"reservation_id": id_}))
        for before, after in changes
        for id_, state in on_start.reached(before, after)
    ]
    if notifications:
        outbox.write_all(session, notifications, now)


def _payload(news: News, named: Mapping[str, Sequence[Named]]) -> dict[str, Any]:
    """Return the payload of a notification: the lease, and its resources by type.

    ``named`` contains the resources by reservation id.
    """
    by_type: dict[str, list[dict[str, str]]] = {"hosts": []}
    for reservation in news.lease.reservations:
        for resource in named[reservation.id]:
            shown = {
                "reservation_id": reservation.id,
                "id": str(resource.id),
                "name": resource.external_id,
            }
            by_type.setdefault(f"{resources.noun(resource.type)}s", []).append(shown)
    return blazar_wire.payload(news.lease, {**by_type, **news.extra})


def notify_nodes(
    session: Session, kind: str, payloads: Iterable[Mapping[str, str]], now: datetime
) -> None:
    """Write a notification ``node.KIND`` for each payload, which describes one node.

    KIND is the argument ``kind``. These notifications belong to no project, so only callers that
    may read all projects see them.
    """
    owned = ((event_type.of_node(kind), {**payload, "project_id": ""}) for payload in payloads)
    outbox.write_all(session, owned, now)


def notify_nodes_of(
    settings: Provisioning | None,
    session: Session,
    kind: str,
    lease: Lease,
    granted: Mapping[str, Sequence[Granted]],
    now: datetime,
) -> None:
    """When a lease starts or ends, write a ``node.KIND`` notification for each of its hosts.

    KIND is ``kind``, the kind of the lease's event. ``granted`` contains the resources of the lease
    by reservation id. The function does nothing in three cases:

    - The event is not a start or an end.
    - ``settings`` is None (provisioning is disabled).
    - ``settings.topics`` is off.
    """
    if settings is None or not settings.topics or kind not in {START, END}:
        return
    payloads = (
        {"lease_id": lease.id, "node": node(host), "reservation_id": reservation_id}
        for reservation_id, resources_ in granted.items()
        for host in resources_
        if host.type == HOST
    )
    notify_nodes(session, kind, payloads, now)


def resources_of(
    session: Session, reservation_ids: Collection[str]
) -> dict[str, tuple[Granted, ...]]:
    """Return the resources that each reservation holds, by reservation id."""
    held = allocations.held(session, reservation_ids)
    by_id = resources.find_some(session, {id_ for ids in held.values() for id_ in ids})
    return {
        reservation_id: tuple(
            Granted.of(by_id[id_], holding.amounts) for id_, holding in holdings.items()
        )
        for reservation_id, holdings in held.items()
    }
