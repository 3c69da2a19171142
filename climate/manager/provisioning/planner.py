"""Planner: request the preparation of hosts in time for their leases, and replace late hosts.

Each run compares the bookings of the next hours with the preparations that exist. So it follows a
lease that moves or gets other hosts. Every manager does this: the unique key of a preparation and
the lock of its lease keep them apart, and all steps are idempotent. (An advisory lock would not do:
a process holds one at a time, and a cloud may need it.)
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError, NotFound
from climate.core.lease.model import Resource, hardware, node
from climate.core.matching import query
from climate.core.provisioning.lead_time import Lead
from climate.core.provisioning.preparation import Preparation, PreparationState
from climate.core.settings import Provisioning
from climate.db.engine import ids
from climate.db.leases import leases
from climate.db.provisioning import preparations, readiness
from climate.db.provisioning.preparations import Booking
from climate.db.resources import allocations, resources
from climate.manager.leases import healing
from climate.manager.notifications.lease_messages import notify_nodes
from climate.manager.process.periodic_task import PeriodicTask
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import power_saving
from climate.manager.provisioning.lead_times import LeadTimes
from climate.manager.provisioning.power_saving import PowerSaver

LOG = logging.getLogger(__name__)

# The notification ``node.prepare`` asks a provisioner to prepare a host.
PREPARE = "prepare"
# Seconds between removals of old preparations, of which there are few.
_FORGET_INTERVAL = 3600.0
_SLOW = "it was not ready while there was still time for another"


def look(runtime: Runtime, settings: Provisioning, known: LeadTimes) -> int:
    """Request due preparations, end those without a booking, replace late hosts.

    Return how many were due. A lease whose host cannot be replaced does not block others.
    """
    now = runtime.clock.now()
    longest = timedelta(seconds=settings.policy.longest)
    with runtime.database.read() as session:
        gone = preparations.vanished(session, now, now - longest)
        due = _due(session, settings, known, now)
        late = preparations.overdue(session, now)
    if gone:
        runtime.database.write(lambda session: preparations.end(session, gone, now))
    for lease_id, leads in due.items():
        runtime.database.write(partial(_want, runtime, lease_id, leads))
    for one in late:
        try:
            _replace(runtime, one)
        except ClimateError as error:
            LOG.warning("%s of lease %s stays: %s", one.node, one.lease_id, error.message)
    if due or gone or late:
        runtime.wakeup.hint()
    return sum(map(len, due.values()))


def _due(
    session: Session, settings: Provisioning, known: LeadTimes, now: datetime
) -> Mapping[str, Mapping[int, Lead]]:
    """Return by lease the hosts whose preparation is due, each with its lead time."""
    until = now + timedelta(seconds=settings.policy.longest)
    bookings = preparations.unprepared(session, now, until)
    if not bookings:
        return {}
    known.refresh(session, now)
    hosts = resources.find_some(session, {one.resource_id for one in bookings})
    sizes = preparations.sizes(session, {one.lease_id for one in bookings})
    due: dict[str, dict[int, Lead]] = {}
    for one in bookings:
        host = hosts.get(one.resource_id)
        if host is None or not (one.is_off or query.matches(settings.hosts, host.properties)):
            continue
        lead = known.lead(host, sizes.get(one.lease_id, 1))
        if one.needed_at - timedelta(seconds=lead.seconds) <= now:
            due.setdefault(one.lease_id, {})[one.resource_id] = lead
    return due


def _want(runtime: Runtime, lease_id: str, leads: Mapping[int, Lead], session: Session) -> None:
    """Store the preparations of a lease and notify; those stored meanwhile stay."""
    now = runtime.clock.now()
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return
    until = lease.window.start
    bookings = [
        one
        for one in preparations.unprepared(session, now, until, lease_id)
        if one.resource_id in leads
    ]
    hosts = resources.find_some(session, {one.resource_id for one in bookings})
    wanted = [
        _new(one, hosts[one.resource_id], leads[one.resource_id], now)
        for one in bookings
        if one.resource_id in hosts
    ]
    preparations.want(session, wanted)
    leases.set_unready(session, lease_id)
    notify_nodes(session, PREPARE, map(payload, wanted), now)


def _new(booking: Booking, host: Resource, lead: Lead, now: datetime) -> Preparation:
    replace_at = booking.needed_at - timedelta(seconds=lead.usual)
    return Preparation(
        id=ids.new_id(),
        resource_id=host.id,
        node=node(host),
        hardware=hardware(host),
        lease_id=booking.lease_id,
        reservation_id=booking.reservation_id,
        progress=PreparationState.WANTED,
        wanted_at=now,
        needed_at=booking.needed_at,
        lead=lead.seconds,
        replace_at=replace_at if replace_at > now else None,
    )


def payload(one: Preparation) -> dict[str, str]:
    """Return the payload of a notification about a preparation."""
    return {
        "lease_id": one.lease_id,
        "node": one.node,
        "preparation_id": one.id,
        "reservation_id": one.reservation_id,
        "needed_at": one.needed_at.isoformat(),
    }


def _replace(runtime: Runtime, mine: Preparation) -> None:
    """Quarantine a host and give its lease another, if there is one.

    A host that is only slow is kept if there is no other. The lease's lock comes before those of
    hosts, so these are two transactions; healing finishes what is interrupted in between.
    """
    failed = mine.progress is PreparationState.FAILED
    reason = mine.reason if failed and mine.reason else _SLOW
    if not failed and not runtime.database.rehearse(partial(_is_replaced, runtime, mine)):
        runtime.database.write(lambda session: preparations.keep(session, mine.id))
        return
    runtime.database.write(partial(set_aside, runtime, mine.resource_id, reason))
    LOG.warning("%s is set aside: %s", mine.node, reason)
    lost = {mine.resource_id}
    runtime.database.write(partial(healing.heal, runtime, lost, mine.lease_id))


def _is_replaced(runtime: Runtime, mine: Preparation, session: Session) -> bool:
    """Whether the lease gets another host if it loses this one."""
    set_aside(runtime, mine.resource_id, _SLOW, session)
    healing.heal(runtime, {mine.resource_id}, mine.lease_id, session)
    return (
        mine.resource_id
        not in allocations.held(session, [mine.reservation_id])[mine.reservation_id]
    )


def set_aside(runtime: Runtime, resource_id: int, reason: str, session: Session) -> None:
    """Quarantine a host: it is not reservable, and its bookings stay."""
    now = runtime.clock.now()
    resources.set_reservable(session, [resource_id], now, reservable=False)
    readiness.set_aside(session, resource_id, reason, now)


class Planner:
    """Plans preparations and shutdowns at an interval until it is stopped."""

    def __init__(self, runtime: Runtime, settings: Provisioning) -> None:
        """Prepare; nothing runs before ``start``."""
        self._runtime = runtime
        self._settings = settings
        self._known = LeadTimes(settings)
        # Hints may come one after the other, and each run costs queries.
        self._task = PeriodicTask(
            "preparing",
            self._plan,
            PowerSaver(runtime, settings, self._known).run,
            interval=settings.interval,
            pause=min(settings.interval, 1.0),
        )
        self._forgetting = PeriodicTask(
            "forget preparations", self.forget, interval=_FORGET_INTERVAL, runs_at_start=False
        )

    def start(self) -> None:
        """Begin, in threads."""
        self._runtime.wakeup.subscribe(self._task.wake)
        self._task.start()
        self._forgetting.start()

    def stop(self) -> None:
        """Do not wait for a run under way: another manager may repeat it."""
        self._task.stop(0)
        self._forgetting.stop()

    def forget(self) -> None:
        """Remove preparations and shutdowns that ended more than ``kept`` ago."""
        before = self._runtime.clock.now() - self._settings.kept
        self._runtime.database.write(lambda session: preparations.forget(session, before))
        power_saving.forget(self._runtime, before)

    def _plan(self) -> None:
        look(self._runtime, self._settings, self._known)
