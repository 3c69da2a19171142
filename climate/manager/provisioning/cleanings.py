"""Cleanings: measure how long bare-metal nodes are not available after their leases.

A measurement is a row, so it survives restarts of managers. It begins with the first attempt to end
a lease: the deletion of the server counts, too. Managers finish it when the inventory sync reads
from the cloud that the node is available again.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.lease.model import HOST, Event, Granted, Lease, Resource
from climate.core.provisioning.cleaning import RESOURCE_CLASS, Cleaning, Unmeasured, judge
from climate.db.engine.database import on_commit
from climate.db.provisioning import cleanings
from climate.manager.process.runtime import Runtime
from climate.plugins.base import DiscoveredResource

LOG = logging.getLogger(__name__)


def begin(
    runtime: Runtime,
    session: Session,
    ending: Iterable[tuple[Lease, Iterable[Granted]]],
    now: datetime,
) -> None:
    """Store that the nodes of these leases, whose end begins, may be cleaned from now on.

    Each item has a lease and its resources.
    """
    if runtime.settings.cleaning is None:
        return
    new = [
        Cleaning(
            resource_id=node.id,
            lease_id=lease.id,
            resource_class=resource_class,
            began_at=now,
        )
        for lease, nodes in ending
        for node in nodes
        if node.type == HOST and (resource_class := node.properties.get(RESOURCE_CLASS))
    ]
    if new:
        cleanings.begin(session, new)


def note_end(runtime: Runtime, session: Session, lease: Lease, event: Event) -> None:
    """Discard the measurements after a lease whose end failed at first.

    Then the time until its nodes are available says nothing about their cleaning.
    """
    if runtime.settings.cleaning and (event.attempt > 1 or event.last_error):
        cleanings.discard(session, [lease.id])


def observe(
    runtime: Runtime,
    registered: Sequence[Resource],
    discovered: Mapping[str, DiscoveredResource],
    queried_at: datetime,
) -> None:
    """Finish the measurements of nodes that are available again.

    ``registered`` are the hosts, and ``discovered`` their states in the cloud by external id, as of
    ``queried_at`` or later.
    """
    if runtime.settings.cleaning is None:
        return
    with runtime.database.read() as session:
        found = cleanings.find_all(session)
    # If the end began only after the query, the node had its server then.
    unfinished = [cleaning for cleaning in found if cleaning.began_at < queried_at]
    if not unfinished:
        return
    now, names = runtime.clock.now(), {node.id: node.external_id for node in registered}
    results: dict[Cleaning, float | Unmeasured] = {}
    for cleaning in unfinished:
        name = names.get(cleaning.resource_id)
        node = discovered.get(name) if name else None
        report = node.provision if node else None
        is_known = name is not None
        results[cleaning] = judge(cleaning, report, now) if is_known else Unmeasured.DISCARD
    runtime.database.write(partial(_store, runtime, results, now))


def _store(
    runtime: Runtime,
    results: Mapping[Cleaning, float | Unmeasured],
    now: datetime,
    session: Session,
) -> None:
    seen = [each.resource_id for each, result in results.items() if result is Unmeasured.SEEN]
    if seen:
        cleanings.see(session, seen, now)
    for cleaning, result in results.items():
        if result is Unmeasured.DISCARD:
            cleanings.remove(session, cleaning)
        # Of the managers that see the node available, only the one that removes the row counts.
        elif isinstance(result, float) and cleanings.remove(session, cleaning):
            cleanings.remember(session, cleaning.resource_class, result)
            on_commit(session, partial(_report, runtime, cleaning, result))


def _report(runtime: Runtime, cleaning: Cleaning, seconds: float) -> None:
    LOG.info(
        "node %s (%s) was available again %.0f s after the end of lease %s began",
        cleaning.resource_id,
        cleaning.resource_class,
        seconds,
        cleaning.lease_id,
    )
    runtime.metrics.cleaned(cleaning.resource_class, seconds)
