"""Asking for hosts to be got ready in time for their leases, and taking others if they are not.

Nothing is planned beforehand: at each look the bookings of the next hours are compared with what
was asked for. So a lease that moves, or gets other hosts, is followed by itself. Every manager
looks; the unique key of a preparation and the lock of its lease keep them apart, and all of it may
be done twice. (A turn would not do: a process has one turn at a time, and a cloud may have it.)
"""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate import ids
from climate.core import query
from climate.core.errors import ClimateError, NotFound
from climate.core.lead_time import Lead
from climate.core.lease import Resource
from climate.core.preparation import Preparation, PreparationState
from climate.core.settings import Provisioning
from climate.db import allocations, leases, preparations, readiness, resources
from climate.db.engine import is_unavailable
from climate.db.preparations import Booking
from climate.manager import energy, lead_times
from climate.manager.announcements import tell_nodes
from climate.manager.energy import Saving
from climate.manager.lead_times import LeadTimes
from climate.manager.leases import healing
from climate.manager.runtime import Runtime
from climate.manager.timer import Timer

LOG = logging.getLogger(__name__)

# What is asked of whoever can reach a node: a notification ``node.prepare``.
PREPARE = "prepare"
_SLOW = "it was not ready while there was still time for another"


def look(runtime: Runtime, settings: Provisioning, known: LeadTimes) -> int:
    """Ask for what is due, end what nobody needs, replace what is late; return how many were due.

    One lease that cannot be looked after keeps no other from it.
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
    """Return by lease the hosts that are to be asked for now, each with its lead."""
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
    """Store the preparations of a lease, and tell; what was stored meanwhile stays."""
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
    tell_nodes(session, PREPARE, map(payload, wanted), now)


def _new(booking: Booking, host: Resource, lead: Lead, now: datetime) -> Preparation:
    replace_at = booking.needed_at - timedelta(seconds=lead.usual)
    return Preparation(
        id=ids.new_id(),
        resource_id=host.id,
        node=lead_times.node(host),
        hardware=lead_times.hardware(host),
        lease_id=booking.lease_id,
        reservation_id=booking.reservation_id,
        progress=PreparationState.WANTED,
        wanted_at=now,
        needed_at=booking.needed_at,
        lead=lead.seconds,
        replace_at=replace_at if replace_at > now else None,
    )


def payload(one: Preparation) -> dict[str, str]:
    """Return what is told of a preparation."""
    return {
        "lease_id": one.lease_id,
        "node": one.node,
        "preparation_id": one.id,
        "reservation_id": one.reservation_id,
        "needed_at": one.needed_at.isoformat(),
    }


def _replace(runtime: Runtime, mine: Preparation) -> None:
    """Set a host aside, and have the lease get another if there is one.

    One that is only slow is kept if there is no other. The lease's lock comes before those of
    hosts, so these are two transactions; healing makes good what is left undone in between.
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
    """Tell whether the lease gets another host if it loses this one."""
    set_aside(runtime, mine.resource_id, _SLOW, session)
    healing.heal(runtime, {mine.resource_id}, mine.lease_id, session)
    return (
        mine.resource_id
        not in allocations.held(session, [mine.reservation_id])[mine.reservation_id]
    )


def set_aside(runtime: Runtime, resource_id: int, reason: str, session: Session) -> None:
    """Have a host be booked for nobody any more; its bookings stay."""
    now = runtime.clock.now()
    resources.set_reservable(session, [resource_id], now, reservable=False)
    readiness.set_aside(session, resource_id, reason, now)


class Preparing:
    """Looks from time to time until it is stopped."""

    def __init__(self, runtime: Runtime, settings: Provisioning) -> None:
        """Prepare; nothing happens before ``start``."""
        self._runtime = runtime
        self._settings = settings
        self._known = LeadTimes(settings)
        self._saving = Saving(runtime, settings, self._known)
        self._timer = Timer(runtime.clock)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="preparing", daemon=True)

    def start(self) -> None:
        """Begin to look, in a thread of its own."""
        self._runtime.wakeup.subscribe(self._wake.set)
        self._timer.every(self._settings.interval, self._wake.set, "preparing")
        self._timer.every(3600, lambda: _guarded(self.forget), "forget preparations")
        self._timer.start()
        self._wake.set()
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a look under way is left to itself, it may be done twice."""
        self._stopping.set()
        self._wake.set()
        self._timer.stop()

    def forget(self) -> None:
        """Remove what was over long ago."""
        before = self._runtime.clock.now() - self._settings.kept
        self._runtime.database.write(lambda session: preparations.forget(session, before))
        energy.forget(self._runtime, before)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._stopping.is_set():
                _guarded(lambda: look(self._runtime, self._settings, self._known))
                _guarded(self._saving.look)
                # Hints may come one after the other, and looking is not for nothing.
                self._stopping.wait(min(self._settings.interval, 1.0))


def _guarded(step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:
        detail = None if is_unavailable(error) else error
        LOG.warning("hosts were not looked after: %s", error, exc_info=detail)
