"""Power saving: switch off hosts that no lease needs, and keep enough spare hosts on.

A spare host is a free host that stays on, for leases that start at once. The operator sets how many
spare hosts each hardware class has.

Each run compares the free hosts with the bookings. Every manager runs power saving; all steps are
idempotent.

Provisioners are programs that power hosts on and off. A shutdown is a task for a provisioner to
switch a host off. A preparation is a task for a provisioner to make a host ready for a lease.

A shutdown lasts as long as the host is off. The shutdown ends only when the host has a preparation,
has power, or is in quarantine because no provisioner could switch it on. So no lease starts with a
host that is off.
"""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.clock import Clock
from climate.core.errors import ClimateError
from climate.core.lease.model import HOST, Resource, hardware, node
from climate.core.matching import query
from climate.core.provisioning import energy as pure
from climate.core.provisioning import shutdown
from climate.core.provisioning.energy import FreeHost, Policy, Saved
from climate.core.provisioning.readiness import Period
from climate.core.provisioning.shutdown import Shutdown, ShutdownState
from climate.core.settings import Provisioning
from climate.db.engine import ids
from climate.db.provisioning import shutdowns
from climate.db.resources import allocations, resources
from climate.manager.process.lead_times import LeadTimes
from climate.manager.process.runtime import Runtime
from climate.plugins.base import ResourcePlugin

LOG = logging.getLogger(__name__)

# The cloud may notice this much later that a host is off.
_SETTLING = timedelta(minutes=2)
# Hosts are chosen this often per idle time, and at least once in this many seconds. Choosing is
# costly, and it does not matter if a host stays on for a twentieth longer.
_RUNS_PER_IDLE_TIME, _LONGEST_PAUSE = 20, 60.0
_NEEDED = "it is needed soon"
_NOT_ANY_MORE = "hosts are not switched off any more"


class PowerSaver:
    """Switches idle hosts off and spare hosts on, for one manager; the planner calls ``run``.

    A spare host is a free host that stays on, for leases that start at once.
    """

    def __init__(self, runtime: Runtime, settings: Provisioning, lead_times: LeadTimes) -> None:
        self._runtime, self._settings, self._lead_times = runtime, settings, lead_times
        self._choose_at: datetime | None = None
        self._is_done = False

    def run(self) -> None:
        """Advance the shutdowns of hosts; from time to time, choose hosts to switch off or on.

        If power saving is disabled, the method chooses no host, and cancels the shutdowns that no
        provisioner has claimed. Shutdowns that a provisioner has claimed continue until they end.
        """
        policy = self._settings.energy
        if policy is None and not self._is_done:
            with self._runtime.database.read() as session:
                self._is_done = not shutdowns.is_going_on(session)
        if self._is_done:
            return
        advance(self._runtime, None if policy else _NOT_ANY_MORE)
        now = self._runtime.clock.now()
        if policy is None or (self._choose_at is not None and now < self._choose_at):
            return
        self._choose_at = now + timedelta(
            seconds=min(policy.idle_time / _RUNS_PER_IDLE_TIME, _LONGEST_PAUSE)
        )
        plan(self._runtime, self._settings, policy, self._lead_times)


def advance(runtime: Runtime, objection: str | None = None) -> None:
    """Cancel shutdowns that are unclaimed and no longer wanted; mark finished shutdowns as over.

    Unclaimed means that no provisioner has claimed the shutdown yet. If ``objection`` is set (a
    reason why no host may be switched off), the function cancels all unclaimed shutdowns for this
    reason. Otherwise, it cancels only those whose host a lease needs.

    Before a shutdown is marked as over, climate enables the host's service in the cloud. If that
    fails, the next run tries again.
    """
    with runtime.database.read() as session:
        now = runtime.clock.now()
        cancelled = [
            task
            for task in shutdowns.unclaimed(session)
            if objection or shutdowns.is_needed(session, task, now)
        ]
    for task in cancelled:
        runtime.database.write(partial(_cancel, task, objection or _NEEDED))
    with runtime.database.read() as session:
        ended = shutdowns.ended(session, _SETTLING)
        hosts = resources.find_some(session, {task.resource_id for task in ended})
    for task in ended:
        if task.resource_id in hosts:
            _end(runtime, task, hosts[task.resource_id])


def _cancel(seen: Shutdown, reason: str, session: Session) -> None:
    task = shutdowns.get(session, seen.id, lock=True)
    if task.state is ShutdownState.WANTED:
        shutdowns.store(session, shutdown.given_up(task, reason))


def _end(runtime: Runtime, task: Shutdown, host: Resource) -> None:
    if not _enable_service(runtime.plugin(HOST), task, host):
        return
    now = runtime.clock.now()
    if runtime.database.write(lambda session: shutdowns.end(session, task, now)):
        reason = task.reason or "it has a preparation, or has power"
        LOG.info("the shutdown of %s is over: %s", task.node, reason)


def _enable_service(plugin: ResourcePlugin, task: Shutdown, host: Resource) -> bool:
    """Enable the host's service in the cloud; return whether that succeeded."""
    try:
        plugin.enable_service(host.external_id)
    except ClimateError as error:
        LOG.warning(
            "cannot enable the service of %s in the cloud, will try again: %s",
            task.node,
            error.message,
        )
        return False
    return True


def plan(runtime: Runtime, settings: Provisioning, policy: Policy, lead_times: LeadTimes) -> None:
    """Store which hosts are idle, then request that hosts are switched off or on.

    Idle hosts are switched off, except some spare hosts: free hosts that stay on for leases that
    start at once. If there are too few spare hosts, hosts are switched on.
    """
    now = runtime.clock.now()
    runtime.database.write(
        lambda session: shutdowns.note_idle(
            session, [host.resource_id for host in shutdowns.idle(session, now)], now
        )
    )
    with runtime.database.read() as session:
        hosts, free = _free(session, settings, lead_times, now)
        chosen = pure.to_switch_off(free, policy, now)
        waking = _to_wake(session, settings, free, policy, now)
        off = resources.find_some(session, {task.resource_id for task in waking})
    for task in waking:
        _wake(runtime, task, off[task.resource_id])
    if not chosen:
        return
    seen = {min(hosts), *(host.id for host in chosen)}
    created = runtime.database.write(
        partial(_request, runtime.clock, settings, policy, lead_times, seen)
    )
    for task in created:
        LOG.info("requested the shutdown of %s: no lease needs it", task.node)


def _free(
    session: Session, settings: Provisioning, lead_times: LeadTimes, now: datetime
) -> tuple[dict[int, Resource], list[FreeHost]]:
    """Return the free hosts: those that are on, and that no lease holds.

    The first result contains the hosts by id. The second result contains, for each of these hosts,
    the start of its idle time, its next booking and its lead time.
    """
    idle = shutdowns.idle(session, now)
    hosts = {
        id_: host
        for id_, host in resources.find_some(session, {host.resource_id for host in idle}).items()
        if query.matches(settings.hosts, host.properties)
    }
    lead_times.refresh(session, now)
    free = [
        FreeHost(
            id=host.resource_id,
            hardware=hardware(hosts[host.resource_id]),
            idle_since=host.idle_since or now,
            next_start=host.next_start,
            lead=lead_times.lead(hosts[host.resource_id], len(hosts)).seconds,
        )
        for host in idle
        if host.resource_id in hosts
    ]
    return hosts, free


def _to_wake(
    session: Session, settings: Provisioning, free: list[FreeHost], policy: Policy, now: datetime
) -> list[Shutdown]:
    """Return the shutdowns whose hosts must be switched on again as spare hosts.

    ``policy`` sets the number of spare hosts; ``free`` are the free hosts that are on. Hosts that a
    lease needs are left out, because their preparation switches them on.
    """
    off = [task for task in shutdowns.resting(session) if policy.spare]
    if not off:
        return []
    longest = timedelta(seconds=settings.policy.longest)
    coming = shutdowns.coming(session, now - longest)
    if not pure.to_wake(free, coming, off, policy, now):
        return []
    unneeded = [task for task in off if not shutdowns.is_needed(session, task, now)]
    return pure.to_wake(free, coming, unneeded, policy, now)


def _wake(runtime: Runtime, seen: Shutdown, host: Resource) -> None:
    """Request that a host that is off is switched on again as a spare host.

    ``seen`` is the shutdown of ``host``, as read before. The function first enables the host's
    service in the cloud. If that fails, or if the host is no longer off, the function requests
    nothing.
    """

    def work(session: Session) -> None:
        task = shutdowns.get(session, seen.id, lock=True)
        if task.state is ShutdownState.OFF:
            shutdowns.store(session, shutdown.waking(task))

    if _enable_service(runtime.plugin(HOST), seen, host):
        runtime.database.write(work)


def _request(
    clock: Clock,
    settings: Provisioning,
    policy: Policy,
    lead_times: LeadTimes,
    seen: Collection[int],
    session: Session,
) -> list[Shutdown]:
    """Lock the hosts ``seen``, choose the hosts to switch off, and store and return shutdowns.

    ``seen`` contains the ids of the hosts that the caller chose without a lock, and the smallest id
    of all free hosts. While the hosts are locked, no lease can book them. So this function chooses
    again, by the same rules; it chooses only hosts in ``seen``.

    The free host with the smallest id serves as a common lock: all managers lock it, so only one
    manager at a time chooses. Without this lock, two managers might each switch off the hosts that
    the other manager counts as spare hosts.
    """
    now = clock.now()
    allocations.lock(session, seen, wait=True)
    hosts, free = _free(session, settings, lead_times, now)
    chosen = (host for host in pure.to_switch_off(free, policy, now) if host.id in seen)
    tasks = [_new(hosts[host.id], host, policy, now) for host in chosen]
    shutdowns.want(session, tasks)
    return tasks


def _new(host: Resource, free: FreeHost, policy: Policy, now: datetime) -> Shutdown:
    return Shutdown(
        id=ids.new_id(),
        resource_id=host.id,
        node=node(host),
        hardware=free.hardware,
        progress=ShutdownState.WANTED,
        wanted_at=now,
        ahead=pure.ahead(free, policy).total_seconds(),
    )


def saved(runtime: Runtime, since: datetime, until: datetime, period: Period) -> list[Saved]:
    """Return how many host-hours of power were saved between ``since`` and ``until``.

    For example, a host that was off for 3 hours saved 3 host-hours. The result contains one entry
    per hardware class and period (for example day). It does not include times in the future, or
    shutdowns whose records have been removed.
    """
    end = min(until, runtime.clock.now())
    with runtime.database.read() as session:
        return pure.saved(shutdowns.off_between(session, since, end), since, end, period)
