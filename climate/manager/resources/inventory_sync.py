"""Inventory sync: reconcile the registered resources with the cloud, and heal leases.

A resource is *reservable* if new leases can get it. A resource is not reservable in these cases:

- It has failed. Healing replaces the resource in the leases that have it now or start soon. A
  resource that works again becomes reservable again.
- It is a host in quarantine.
- Managers have failed to end its last lease, so this lease may still use the resource. (This case
  does not apply if the plug-in reports how much of the resource such a lease still uses.)

The sync also registers new hosts whose names the operator lists in the configuration.

If provisioners power on hosts only on demand, a host that no lease needs may be off. The sync
treats such a host as working.

Every manager runs the sync; all steps are idempotent.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, NotFound
from climate.core.lease.model import HOST, Inventory, Resource
from climate.core.lease.schedule import PATIENCE
from climate.core.matching.property_type import Kind, reported
from climate.core.provisioning.readiness import Seen
from climate.core.settings import Settings
from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.provisioning import readiness as stored_readiness
from climate.db.resources import capacity, resources
from climate.manager.leases import healing
from climate.manager.leases.trusts import TrustWatch
from climate.manager.process.periodic_task import PeriodicTask, Progress
from climate.manager.process.runtime import Runtime, Store
from climate.manager.provisioning import cleanings, readiness
from climate.manager.resources import registry
from climate.plugins.base import DiscoveredResource, ResourcePlugin

LOG = logging.getLogger(__name__)
# Seconds for which one sync registers hosts.
_REGISTERING = 30.0
# Properties whose version keys one transaction computes.
_FILLED = 1_000


def synchronise(runtime: Runtime, lost_before: Collection[int] = ()) -> set[int]:
    """Reconcile all resources with the cloud, then heal leases; return the ids of lost resources.

    Lost resources have stopped running or have disappeared from the cloud. ``lost_before`` are the
    ids of the resources that the previous run found lost. Healing treats a resource as lost only if
    both runs found it lost.

    Raises the errors of the plug-ins' ``refresh``. After such an error, no lease is healed, and the
    remaining resource types are not reconciled.
    """
    lost, discovered = set[int](), dict[str, Collection[DiscoveredResource]]()
    for resource_type, plugin in runtime.plugins.items():
        lost_now, discovered[resource_type] = _reconcile_type(runtime, resource_type, plugin)
        lost |= lost_now
    _fill_version_keys(runtime)
    healing.heal_all(runtime, lost.intersection(lost_before))
    _register_listed(runtime, discovered.get(HOST, ()))
    return lost


def _reconcile_type(
    runtime: Runtime, resource_type: str, plugin: ResourcePlugin
) -> tuple[set[int], Collection[DiscoveredResource]]:
    """Reconcile all resources of a type with the cloud.

    Returns the ids of lost resources, and what the cloud reports. Raises the errors of
    ``plugin.refresh``.
    """
    lost, settings = set[int](), runtime.settings
    with runtime.database.read() as session:
        registered = resources.find_all(session, resource_type)
    queried_at = runtime.clock.now()
    types = settings.property_types
    by_external_id = {
        item.external_id: replace(item, properties=reported(types, item.properties))
        for item in plugin.refresh(registered)
    }
    now = runtime.clock.now()
    with runtime.database.read() as session:
        shared = capacity.find_some(session, [resource.id for resource in registered])
        unusable, may_be_off = readiness.host_status(
            session, settings.provisioning, registered, now
        )
        if not plugin.counts_leftovers:  # their last lease cannot be ended
            stuck = event_queue.stuck(session, now, now - PATIENCE, settings.max_retries)
            unusable = stuck.union(unusable)
    if resource_type == HOST:
        _note_states(runtime, registered, by_external_id, queried_at)
    for resource in registered:
        id_, discovered = resource.id, by_external_id.get(resource.external_id)
        discovered = _ignoring_power(discovered, id_ in may_be_off)
        if discovered is None or discovered.lost:
            lost.add(id_)
        try:
            reconcile(runtime.store, plugin, resource, discovered, stuck=id_ in unusable)
            _update_inventories(runtime.database, resource, discovered, shared[id_])
        except ClimateError as error:
            LOG.warning("cannot update %s, trying again: %s", resource.external_id, error)
    return lost, by_external_id.values()


def _register_listed(runtime: Runtime, discovered: Collection[DiscoveredResource]) -> None:
    """Register the usable hosts of the cloud that the configuration lists.

    If servers are on a host, or another manager registers it at the same time, log the reason. The
    next sync tries again. It also continues if there are too many hosts for this one.
    """
    listed = [host for host in discovered if host.usable and _is_listed(runtime.settings, host)]
    if not listed:
        return
    plugin, deadline = runtime.plugin(HOST), runtime.clock.elapsed() + _REGISTERING
    with runtime.database.read() as session:
        known = {host.external_id for host in resources.find_all(session, HOST)}
    new = [host for host in listed if host.external_id not in known]
    # In random order, so that hosts in use do not take all the time of each sync. Services first,
    # as a service and a node of it must not be registered both.
    new = sorted(runtime.rng.sample(new, len(new)), key=_is_node)
    for host in new:
        if runtime.clock.elapsed() > deadline:
            return
        if _overlaps(host.external_id, known):
            continue
        try:
            plugin.check_unused(host)
            registry.register_found(runtime, HOST, host)
            known.add(host.external_id)
            LOG.info("registered the host %s, which the configuration lists", host.external_id)
        except Exception as error:  # noqa: BLE001 - the cloud refuses one host, not the others
            LOG.info("cannot register the host %s, trying again: %s", host.external_id, error)


def _is_listed(settings: Settings, host: DiscoveredResource) -> bool:
    name = host.properties.get("hypervisor_hostname", "")
    return any(fnmatchcase(name, pattern) for pattern in settings.registered_hosts)


def _is_node(host: DiscoveredResource) -> bool:
    """Return whether the host is a single node of a compute service: ``service/node``."""
    return "/" in host.external_id


def _overlaps(external_id: str, known: Collection[str]) -> bool:
    """Return whether the host is a node of a registered service, or a service of such a node."""
    service, is_node, _ = external_id.partition("/")
    if is_node:
        return service in known
    return any(other.startswith(f"{external_id}/") for other in known)


def _fill_version_keys(runtime: Runtime) -> None:
    """Let queries compare the values of declared versions that an older release has stored."""
    types = runtime.settings.property_types
    versions = [name for name, type_ in types.items() if type_.kind is Kind.VERSION]
    fill = partial(resources.fill_version_keys, names=versions, limit=_FILLED)
    while versions and runtime.database.write(fill) == _FILLED:
        pass


def reconcile(
    store: Store,
    plugin: ResourcePlugin,
    resource: Resource,
    discovered: DiscoveredResource | None,
    *,
    stuck: bool = False,
) -> None:
    """Store the native properties of a resource, and whether it is reservable.

    Native properties are those that the cloud reports. ``discovered`` is the state of the resource
    in the cloud (None: it does not exist there). ``stuck`` states that the resource is in
    quarantine, or that its last lease has not released it. A stuck resource is not reservable,
    whatever the cloud reports.

    Before the resource becomes reservable again, the function calls the plug-in's ``enroll``, so
    that no project can use the resource without a lease.
    """
    usable = discovered is not None and discovered.usable and not stuck
    before = _native(resource) if discovered is None or not discovered.complete else {}
    native = {**before, **(discovered.properties if discovered else {}), "id": str(resource.id)}
    if usable == resource.reservable and native == _native(resource):
        return
    if usable and not resource.reservable:
        plugin.enroll(resource.external_id)
    LOG.info("%s is %s", resource.external_id, _describe(usable=usable, stuck=stuck))
    now = store.clock.now()
    store.database.write(lambda session: _store(session, resource, usable, native, now))


def _describe(*, usable: bool, stuck: bool) -> str:
    if usable:
        return "reservable"
    reason = "in quarantine, or its last lease has not ended" if stuck else "down or disabled"
    return f"not reservable: {reason}"


def _ignoring_power(
    discovered: DiscoveredResource | None,
    may_be_off: bool,  # noqa: FBT001 - not a switch, a fact
) -> DiscoveredResource | None:
    """Return the state of a resource in the cloud, but report a host that may be off as usable.

    ``discovered`` is the state that the cloud reports. ``may_be_off`` is true for a host that
    provisioners power on only on demand. If the cloud reports such a host as lost, the result
    reports it as usable, unless the host is disabled in the cloud.
    """
    if discovered is None or not may_be_off or not discovered.lost or discovered.disabled:
        return discovered
    return replace(discovered, usable=True, lost=False)


def _note_states(
    runtime: Runtime,
    registered: Sequence[Resource],
    by_external_id: Mapping[str, DiscoveredResource],
    queried_at: datetime,
) -> None:
    """Store what the states of hosts in the cloud say about their power and their cleaning."""
    if runtime.settings.provisioning is not None:
        _note_up(runtime.database, registered, by_external_id, queried_at)
    cleanings.observe(runtime, registered, by_external_id, queried_at)


def _note_up(
    database: Database,
    registered: Collection[Resource],
    by_external_id: Mapping[str, DiscoveredResource],
    queried_at: datetime,
) -> None:
    """Store which hosts the cloud reports as up, and when the cloud last heard from them.

    ``registered`` are the hosts. ``by_external_id`` contains the state of each host in the cloud,
    by the host's id in the cloud. ``queried_at`` is the time of the query. climate uses the stored
    facts to find idle hosts, and to decide when a shutdown of a host is over.
    """
    seen = {host.id: Seen(up=False, at=queried_at) for host in registered}
    for host in registered:
        discovered = by_external_id.get(host.external_id)
        if discovered is not None and not discovered.lost:
            seen[host.id] = Seen(up=True, at=discovered.heard_at or queried_at)
    if seen:
        database.write(lambda session: stored_readiness.see(session, seen))


def _update_inventories(
    database: Database,
    resource: Resource,
    discovered: DiscoveredResource | None,
    shared: Mapping[str, Inventory],
) -> None:
    """Store the inventories that the cloud reports for a resource, if they have changed.

    An inventory is an amount that leases can share, such as 64 VCPU. ``shared`` contains the stored
    inventories by resource class (VCPU). Bookings stay as they are.
    """
    if discovered is None or not discovered.complete or discovered.inventories == shared:
        return

    def work(session: Session) -> None:
        with suppress(NotFound):  # removed in the meantime
            resources.get(session, resource.type, resource.id, lock=True)
            capacity.store(session, resource.id, discovered.inventories)

    database.write(work)


def _native(resource: Resource) -> Mapping[str, str]:
    return {name: resource.properties[name] for name in resource.native}


def _store(
    session: Session,
    resource: Resource,
    usable: bool,  # noqa: FBT001 - not a switch, a fact
    native: Mapping[str, str],
    now: datetime,
) -> None:
    with suppress(NotFound):  # removed in the meantime
        present = resources.get(session, resource.type, resource.id, lock=True)
        if usable != present.reservable:
            resources.set_reservable(session, [resource.id], now, reservable=usable)
        if native != _native(present):
            resources.set_native(session, present, native, now)


class InventorySync:
    """Reconciles resources with the cloud, and checks trusts, every ``sync_interval`` seconds.

    A trust is the Keystone permission with which plug-ins act as a user.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lost: set[int] = set()
        trusts = TrustWatch(runtime)
        interval = runtime.settings.sync_interval
        self._task = PeriodicTask(
            "inventory", self._synchronise, trusts.check_if_due, interval=interval
        )

    @property
    def progress(self) -> list[Progress]:
        """The progress of the loop that reconciles resources and checks trusts."""
        return self._task.progress

    def start(self) -> None:
        """Start the sync in a thread of its own, because the cloud may be slow."""
        self._task.start()

    def stop(self) -> None:
        """Stop. Do not wait for the current run: another manager repeats it."""
        self._task.stop(0)

    def _synchronise(self) -> None:
        self._lost = synchronise(self._runtime, self._lost)
