"""Planner: request the preparation of hosts in time for their leases, and replace late hosts.

A provisioner is a program that powers hosts on and off. A preparation is a task for a provisioner
to make a host ready for a lease. A host is late if its preparation failed, or takes so long that
only another host can still be ready in time.

Each run compares the bookings of the next hours with the existing preparations. So the planner also
handles leases whose dates or hosts changed.

Every manager has a planner, and all steps are idempotent. Two planners cannot create the same
preparation, because preparations have a unique key, and a planner locks the lease while it creates
them.
"""

# No advisory lock keeps planners apart: a process can hold only one at a time, and a plug-in may
# need one meanwhile.

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.clock import Clock
from climate.core.errors import ClimateError, NotFound
from climate.core.lease.model import Resource, hardware, node
from climate.core.matching import query
from climate.core.notifications import event_type
from climate.core.provisioning.lead_time import Lead
from climate.core.provisioning.preparation import Preparation, PreparationState
from climate.core.settings import Provisioning
from climate.db.engine import ids
from climate.db.leases import leases
from climate.db.provisioning import preparations, readiness, shutdowns
from climate.db.provisioning.preparations import Booking
from climate.db.resources import allocations, resources
from climate.manager.leases import healing
from climate.manager.notifications.lease_messages import notify_nodes
from climate.manager.process.lead_times import LeadTimes
from climate.manager.process.periodic_task import PeriodicTask, Progress
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning.power_saving import PowerSaver

LOG = logging.getLogger(__name__)

# Seconds between removals of old preparations, of which there are few.
_FORGET_INTERVAL = 3600.0
_SLOW = "it was not ready while there was still time for another"


def plan(runtime: Runtime, settings: Provisioning, lead_times: LeadTimes) -> int:
    """Request due preparations, end preparations whose booking is gone, and replace late hosts.

    Returns how many preparations were due. If the replacement of a late host raises an error, the
    function continues with the next late host.
    """
    now = runtime.clock.now()
    longest = timedelta(seconds=settings.policy.longest)
    with runtime.database.read() as session:
        unbooked = preparations.vanished(session, now, now - longest)
        due = _due(session, settings, lead_times, now)
        late = preparations.overdue(session, now)
    if unbooked:
        runtime.database.write(lambda session: preparations.end(session, unbooked, now))
    for lease_id, leads in due.items():
        runtime.database.write(partial(_request, runtime.clock, lease_id, leads))
    for task in late:
        try:
            _replace(runtime, task)
        except ClimateError as error:
            LOG.warning(
                "cannot replace %s of lease %s: %s", task.node, task.lease_id, error.message
            )
    if due or unbooked or late:
        runtime.wakeup.hint()
    return sum(map(len, due.values()))


def _due(
    session: Session, settings: Provisioning, lead_times: LeadTimes, now: datetime
) -> Mapping[str, Mapping[int, Lead]]:
    """Return the lead times of the hosts whose preparation is due, by lease id and resource id.

    A lead time is how long before the lease the preparation must begin.
    """
    until = now + timedelta(seconds=settings.policy.longest)
    bookings = preparations.unprepared(session, now, until)
    if not bookings:
        return {}
    lead_times.refresh(session, now)
    hosts = resources.find_some(session, {booking.resource_id for booking in bookings})
    sizes = preparations.sizes(session, {booking.lease_id for booking in bookings})
    due: dict[str, dict[int, Lead]] = {}
    for booking in bookings:
        host = hosts.get(booking.resource_id)
        if host is None or not (booking.is_off or query.matches(settings.hosts, host.properties)):
            continue
        lead = lead_times.lead(host, sizes.get(booking.lease_id, 1))
        if booking.needed_at - timedelta(seconds=lead.seconds) <= now:
            due.setdefault(booking.lease_id, {})[booking.resource_id] = lead
    return due


def _request(clock: Clock, lease_id: str, leads: Mapping[int, Lead], session: Session) -> None:
    """Store the missing preparations of a lease, and write a notification for each of them.

    ``leads`` contains the lead times of the hosts to prepare, by resource id.
    """
    now = clock.now()
    try:
        leases.get(session, lease_id, lock=True)
    except NotFound:
        return
    bookings = preparations.unprepared(session, now, None, lease_id)
    hosts = resources.find_some(session, leads)
    tasks = [
        _new(booking, hosts[booking.resource_id], leads[booking.resource_id], now)
        for booking in bookings
        if booking.resource_id in hosts
    ]
    preparations.want(session, tasks)
    leases.set_unready(session, lease_id)
    notify_nodes(session, event_type.PREPARE, map(payload, tasks), now)


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


def payload(task: Preparation) -> dict[str, str]:
    """Return the payload of the ``node.prepare`` notification that requests this preparation."""
    return {
        "lease_id": task.lease_id,
        "node": task.node,
        "preparation_id": task.id,
        "reservation_id": task.reservation_id,
        "needed_at": task.needed_at.isoformat(),
    }


def _replace(runtime: Runtime, task: Preparation) -> None:
    """Quarantine the late host of a preparation, and move its lease to another host.

    A host in quarantine gets no new bookings. If the preparation is only slow (it has not failed),
    and no other host is free, nothing changes: the lease keeps the host without a quarantine.

    This function needs two transactions, because locks on leases must be acquired before locks on
    hosts. If the manager stops after the first transaction, the next inventory sync replaces the
    host.
    """
    failed = task.progress is PreparationState.FAILED
    reason = task.reason if failed and task.reason else _SLOW
    if not failed and not runtime.database.rehearse(partial(_is_replaced, runtime, task)):
        runtime.database.write(lambda session: preparations.keep(session, task.id))
        return
    now = runtime.clock.now()
    runtime.database.write(partial(quarantine, now, task.resource_id, reason))
    LOG.warning("put %s into quarantine: %s", task.node, reason)
    lost = {task.resource_id}
    runtime.database.write(partial(healing.heal, runtime, lost, task.lease_id))


def _is_replaced(runtime: Runtime, task: Preparation, session: Session) -> bool:
    """Return whether the lease of a preparation can get another host instead of the late one.

    To find out, the function quarantines the late host and replaces it in the lease. The caller
    must roll back this transaction.
    """
    quarantine(runtime.clock.now(), task.resource_id, _SLOW, session)
    healing.heal(runtime, {task.resource_id}, task.lease_id, session)
    held = allocations.held(session, [task.reservation_id])
    return task.resource_id not in held[task.reservation_id]


def quarantine(now: datetime, resource_id: int, reason: str, session: Session) -> None:
    """Quarantine a host: it gets no new bookings, but its present bookings stay."""
    resources.set_reservable(session, [resource_id], now, reservable=False)
    readiness.set_aside(session, resource_id, reason, now)


class Planner:
    """Plans preparations and shutdowns of hosts, from ``start`` to ``stop``.

    The planner runs at an interval. A hint (a message that another thread or process has written an
    event) starts the next run earlier.
    """

    def __init__(self, runtime: Runtime, settings: Provisioning) -> None:
        self._runtime, self._settings = runtime, settings
        lead_times = LeadTimes(settings)
        # Hints may come in quick succession, and each run costs queries.
        self._task = PeriodicTask(
            "preparing",
            partial(plan, runtime, settings, lead_times),
            PowerSaver(runtime, settings, lead_times).run,
            interval=settings.interval,
            pause=min(settings.interval, 1.0),
        )
        self._forgetting = PeriodicTask(
            "forget preparations", self.forget, interval=_FORGET_INTERVAL, runs_at_start=False
        )

    @property
    def progress(self) -> list[Progress]:
        """The progress of the loop that plans, and of the loop that removes old rows."""
        return [*self._task.progress, *self._forgetting.progress]

    def start(self) -> None:
        """Start a thread that plans, and a thread that removes old preparations and shutdowns."""
        self._runtime.wakeup.subscribe(self._task.wake)
        self._task.start()
        self._forgetting.start()

    def stop(self) -> None:
        """Stop both threads, but wait only for the thread that removes old rows.

        A planning run that is in progress may stay unfinished. Another manager then repeats the
        steps of this run.
        """
        self._task.stop(0)
        self._forgetting.stop()

    def forget(self) -> None:
        """Remove preparations and shutdowns that ended longer ago than the setting ``kept``."""
        before = self._runtime.clock.now() - self._settings.kept
        self._runtime.database.write(lambda session: preparations.forget(session, before))
        self._runtime.database.write(lambda session: shutdowns.forget(session, before))
