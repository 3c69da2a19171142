"""Inventory sync: reconcile registered resources with the cloud, and replace those that failed.

A failed resource is not reservable, and leases that hold it now or soon get another one (healing).
A resource that works again is reservable again. Every manager does this; all steps are idempotent.

A resource also counts as failed while the end of its last lease keeps failing, and a host while it
is in quarantine because it could not be prepared. A host that is prepared on demand may be without
power while no lease needs it: that is no failure.
"""

import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, NotFound
from climate.core.lease.model import HOST, Inventory, Resource
from climate.core.lease.schedule import PATIENCE
from climate.core.provisioning.readiness import Seen
from climate.db.events import queue as event_queue
from climate.db.resources import capacity, resources
from climate.manager.leases import healing
from climate.manager.leases.trusts import TrustWatch
from climate.manager.process.periodic_task import PeriodicTask
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import readiness
from climate.plugins.base import DiscoveredResource, ResourcePlugin

LOG = logging.getLogger(__name__)


def synchronise(runtime: Runtime, lost_before: Collection[int] = ()) -> set[int]:
    """Reconcile once with the cloud; return the ids of the lost resources.

    A running lease gets another resource only if it was lost in the previous run, too
    (``lost_before``). Raises what a plug-in raises; then nothing changes.
    """
    lost: set[int] = set()
    for resource_type, plugin in runtime.plugins.items():
        with runtime.database.read() as session:
            registered = resources.find_all(session, resource_type)
        asked_at = runtime.clock.now()
        there = {found.external_id: found for found in plugin.refresh(registered)}
        now = runtime.clock.now()
        with runtime.database.read() as session:
            shared = capacity.find_some(session, [resource.id for resource in registered])
            stuck = set() if plugin.counts_leftovers else _stuck(runtime, session, now)
        standing = readiness.standing(runtime, registered, now)
        _see(runtime, resource_type, registered, there, asked_at)
        for resource in registered:
            found = _rested(there.get(resource.external_id), resource.id in standing.resting)
            if found is None or found.lost:
                lost.add(resource.id)
            try:
                unusable = resource.id in stuck or resource.id in standing.set_aside
                follow(runtime, plugin, resource, found, stuck=unusable)
                if found is not None and _is_news(found, shared[resource.id]):
                    runtime.database.write(partial(_share, resource, found))
            except ClimateError as error:
                LOG.warning("%s is not followed: %s", resource.external_id, error.message)
    healing.heal_all(runtime, lost.intersection(lost_before))
    return lost


def _stuck(runtime: Runtime, session: Session, now: datetime) -> set[int]:
    return event_queue.stuck(session, now, now - PATIENCE, runtime.settings.max_retries)


def follow(
    runtime: Runtime,
    plugin: ResourcePlugin,
    resource: Resource,
    found: DiscoveredResource | None,
    *,
    stuck: bool = False,
) -> None:
    """Make one resource what the cloud reports (None: it does not exist there).

    A ``stuck`` resource is not usable, whatever the cloud reports.
    """
    usable = found is not None and found.usable and not stuck
    before = _native(resource) if found is None or not found.complete else {}
    native = {**before, **(found.properties if found else {}), "id": str(resource.id)}
    if usable == resource.reservable and native == _native(resource):
        return
    if usable and not resource.reservable:
        plugin.enroll(resource.external_id)
    why = "usable" if usable else "set aside or not given back" if stuck else "not usable"
    LOG.info("%s is %s", resource.external_id, why)
    now = runtime.clock.now()
    runtime.database.write(lambda session: _store(session, resource, usable, native, now))


def _rested(found: DiscoveredResource | None, is_resting: bool) -> DiscoveredResource | None:  # noqa: FBT001 - a fact
    """Return what the cloud reports; a host that is only without power counts as usable."""
    if found is None or not is_resting or not found.lost or found.disabled:
        return found
    return replace(found, usable=True, lost=False)


def _see(
    runtime: Runtime,
    resource_type: str,
    registered: Collection[Resource],
    there: Mapping[str, DiscoveredResource],
    asked_at: datetime,
) -> None:
    """Store which hosts are up, and since when that is known, for their preparations."""
    if resource_type != HOST:
        return
    seen = {one.id: Seen(up=False, at=asked_at) for one in registered}
    for one in registered:
        found = there.get(one.external_id)
        if found is not None and not found.lost:
            seen[one.id] = Seen(up=True, at=found.heard_at or asked_at)
    readiness.see(runtime, seen)


def _is_news(found: DiscoveredResource, shared: Mapping[str, Inventory]) -> bool:
    """Whether the cloud reports other inventories than those that are stored."""
    return found.complete and found.inventories != shared


def _share(resource: Resource, found: DiscoveredResource, session: Session) -> None:
    """Store the inventories that the cloud reports; leases keep their allocations."""
    with suppress(NotFound):  # removed meanwhile
        resources.get(session, resource.type, resource.id, lock=True)
        capacity.store(session, resource.id, found.inventories)


def _native(resource: Resource) -> Mapping[str, str]:
    return {name: resource.properties[name] for name in resource.native}


def _store(
    session: Session,
    resource: Resource,
    usable: bool,  # noqa: FBT001 - not a switch, a fact
    native: Mapping[str, str],
    now: datetime,
) -> None:
    try:
        present = resources.get(session, resource.type, resource.id, lock=True)
    except NotFound:  # removed meanwhile
        return
    if usable != present.reservable:
        resources.set_reservable(session, [resource.id], now, reservable=usable)
    if native != _native(present):
        resources.set_native(session, present, native, now)


class InventorySync:
    """Reconciles with the cloud, and watches trusts, at an interval until it is stopped."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare; nothing runs before ``start``."""
        self._runtime = runtime
        self._lost: set[int] = set()
        trusts = TrustWatch(runtime)
        interval = runtime.settings.sync_interval
        self._task = PeriodicTask("inventory", self._synchronise, trusts.look, interval=interval)

    def start(self) -> None:
        """Begin, in a thread: the cloud may be slow."""
        self._task.start()

    def stop(self) -> None:
        """Do not wait for a run under way: another manager may repeat it."""
        self._task.stop(0)

    def _synchronise(self) -> None:
        self._lost = synchronise(self._runtime, self._lost)
