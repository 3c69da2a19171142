"""Keeping what is registered true to the cloud, and leases whole when resources fail.

A look at the cloud tells which registered resources work: those that do not are booked no more,
and what booked them soon or now gets others (healing). What comes back is bookable again, and a
lease that was short of it is whole again. Every manager looks; all of it may be done twice.

A resource that the lease which had it last does not give back, as its end fails, works for nobody
else: it counts as failing until that end is done. So does a host that could not be got ready for
its lease, until it is taken back. A host that is got ready when it is needed may be without power
while it is not: that is no failure.
"""

import logging
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, NotFound
from climate.core.lease.model import Inventory, Resource
from climate.core.lease.schedule import PATIENCE
from climate.core.provisioning.readiness import Seen
from climate.db import events
from climate.db.engine.database import is_unavailable
from climate.db.preparations import HOST
from climate.db.resources import capacity, resources
from climate.manager import healing, readiness
from climate.manager.runtime import Runtime
from climate.manager.timer import Timer
from climate.manager.trust_watch import TrustWatch
from climate.plugins.base import DiscoveredResource, ResourcePlugin

LOG = logging.getLogger(__name__)


def synchronise(runtime: Runtime, lost_before: Collection[int] = ()) -> set[int]:
    """Look at the cloud once, and follow it; return the ids of the resources that are lost.

    Running leases give up what was lost at the look before, too. Raises what a plugin's
    inventory raises; then nothing changes.
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
    return events.stuck(session, now, now - PATIENCE, runtime.settings.max_retries)


def follow(
    runtime: Runtime,
    plugin: ResourcePlugin,
    resource: Resource,
    found: DiscoveredResource | None,
    *,
    stuck: bool = False,
) -> None:
    """Make one resource what the cloud says (None: it is not there); nothing if it is so.

    One that is ``stuck`` is not usable, whatever the cloud says.
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
    """Return what was found of a resource, working if all that it lacks is power."""
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
    """Note which hosts are up, and as of when, for those who get them ready."""
    if resource_type != HOST:
        return
    seen = {one.id: Seen(up=False, at=asked_at) for one in registered}
    for one in registered:
        found = there.get(one.external_id)
        if found is not None and not found.lost:
            seen[one.id] = Seen(up=True, at=found.heard_at or asked_at)
    readiness.see(runtime, seen)


def _is_news(found: DiscoveredResource, shared: Mapping[str, Inventory]) -> bool:
    """Tell whether the resource is known to have something else to share."""
    return found.complete and found.inventories != shared


def _share(resource: Resource, found: DiscoveredResource, session: Session) -> None:
    """Have the resource share what the cloud says; leases keep what they have of it."""
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


class Watch:
    """Looks at the cloud, and at trusts, from time to time until it is stopped."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare; nothing happens before ``start``."""
        self._runtime = runtime
        self._lost: set[int] = set()
        self._trusts = TrustWatch(runtime)
        self._timer = Timer(runtime.clock)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="inventory", daemon=True)

    def start(self) -> None:
        """Begin to look, in a thread of its own: the cloud may be slow."""
        self._timer.every(self._runtime.settings.sync_interval, self._wake.set, "inventory")
        self._timer.start()
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a look under way is left to itself, it may be done twice."""
        self._stopping.set()
        self._wake.set()
        self._timer.stop()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._stopping.is_set():
                self._look()

    def _look(self) -> None:
        for what, look in (("the cloud", self._follow), ("trusts", self._trusts.look)):
            try:
                look()
            except Exception as error:
                detail = None if is_unavailable(error) else error
                LOG.warning("%s: not looked at: %s", what, error, exc_info=detail)

    def _follow(self) -> None:
        self._lost = synchronise(self._runtime, self._lost)
