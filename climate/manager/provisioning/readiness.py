"""Use cases for the readiness of hosts: show whether hosts are ready, and quarantine hosts.

A host in quarantine gets no new bookings.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.model import HOST, Lease, Resource, hardware
from climate.core.matching import query
from climate.core.notifications import event_type
from climate.core.provisioning import readiness as pure
from climate.core.provisioning.lead_time import Lead
from climate.core.provisioning.preparation import PreparationState
from climate.core.provisioning.readiness import HostKnown, Period, Share, Shown
from climate.core.settings import Provisioning
from climate.db.provisioning import preparations, readiness
from climate.db.resources import resources
from climate.manager.leases import ready_start as starting
from climate.manager.notifications.lease_messages import notify_nodes
from climate.manager.process.lead_times import LeadTimes
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import planner

# The cloud may notice this much later that a host is up.
_SETTLING = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class HostReadiness:
    """How ready a host is for its next lease, and what climate knows about the host.

    ``hardware`` is the hardware class, ``shown`` the readiness. ``known`` contains the earlier
    preparations and the quarantine. ``lead`` is the lead time for a lease of this host alone: how
    long before the lease the preparation must begin (None: provisioning is disabled).
    """

    host: Resource
    hardware: str
    shown: Shown
    known: HostKnown
    lead: Lead | None


def of_lease(runtime: Runtime, lease: Lease) -> Shown:
    """Return the readiness of the hosts of a lease, and for which hosts its start waits."""
    now = runtime.clock.now()
    with runtime.database.read() as session:
        tasks = preparations.going_on(session, lease_id=lease.id)
        unclaimed = preparations.unclaimed(session, now, [task.id for task in tasks])
        shown = pure.shown(tasks, now, unclaimed)
        if not lease.waits_for_hosts(now):
            return shown
        missing = starting.unready(runtime.settings, session, lease.id)
    return replace(shown, waiting_for=[host.external_id for host in missing])


def of_host(runtime: Runtime, resource_id: int) -> HostReadiness:
    """Return how ready a host is for its next lease, with its lead time; raises NotFound."""
    now, settings = runtime.clock.now(), runtime.settings.provisioning
    with runtime.database.read() as session:
        host = _host(session, resource_id)
        current = preparations.going_on(session, resource_id=resource_id)
        known = readiness.find(session, resource_id)
        lead = None
        if settings is not None:
            lead_times = LeadTimes(settings)
            lead_times.refresh(session, now)
            lead = lead_times.lead(host, 1)
    return HostReadiness(host, hardware(host), pure.shown(current[:1], now), known, lead)


def set_aside(runtime: Runtime, resource_id: int, reason: str | None) -> HostReadiness:
    """Quarantine a host for ``reason``; if ``reason`` is None, end its quarantine.

    A host in quarantine gets no new bookings. At the end of the quarantine, climate requests the
    host's failed preparations again. The host becomes reservable when the inventory sync finds it
    usable. Raises NotFound.
    """

    def work(session: Session) -> None:
        host = _host(session, resource_id, lock=True)
        if reason is not None:
            planner.quarantine(now, host.id, reason, session)
            return
        readiness.set_aside(session, host.id, None, now)
        preparations.retry(session, host.id)
        current = preparations.going_on(session, resource_id=host.id)
        payloads = (
            planner.payload(task) for task in current if task.state is PreparationState.WANTED
        )
        notify_nodes(session, event_type.PREPARE, payloads, now)

    now = runtime.clock.now()
    runtime.database.write(work)
    runtime.wakeup.hint()
    return of_host(runtime, resource_id)


def summary(runtime: Runtime, since: datetime, until: datetime, period: Period) -> list[Share]:
    """Return how many leases had ready hosts, and how many hosts were ready in time.

    The result contains one entry per hardware class and period. It includes only hosts that were
    needed between ``since`` and ``until``, and not in the future.
    """
    with runtime.database.read() as session:
        tasks = preparations.needed_between(session, since, min(until, runtime.clock.now()))
    return pure.summary(tasks, period)


def host_status(
    session: Session, settings: Provisioning | None, registered: Sequence[Resource], now: datetime
) -> tuple[Collection[int], Collection[int]]:
    """Return the ids of the hosts in quarantine, and the ids of other hosts that are perhaps off.

    A host in ``registered`` is perhaps off if provisioners prepare it on demand and no lease needs
    it now. If provisioning is disabled (``settings`` is None), the second result is empty.
    """
    hosts = [resource for resource in registered if resource.type == HOST]
    if not hosts:
        return (), ()
    quarantined = readiness.all_set_aside(session)
    if settings is None:
        return quarantined, ()
    used = preparations.in_use(session, now, now - _SETTLING)
    prepared = {host.id for host in hosts if query.matches(settings.hosts, host.properties)}
    return quarantined, prepared - used - quarantined


def _host(session: Session, resource_id: int, *, lock: bool = False) -> Resource:
    try:
        return resources.get(session, HOST, resource_id, lock=lock)
    except NotFound:
        raise NotFound(f"There is no host {resource_id}") from None
