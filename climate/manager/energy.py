"""Switching hosts off that nobody needs, and on again to be spares.

As with preparations nothing is planned: at each look the hosts that nobody has are compared with
what is booked. Every manager looks, and all of it may be done twice. A shutdown is over only when
a preparation of its host is there, or the host has power: so none that is off is forgotten.
"""

import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import ClimateError
from climate.core.lease.model import Resource
from climate.core.matching import query
from climate.core.provisioning import energy as pure
from climate.core.provisioning import shutdown
from climate.core.provisioning.energy import FreeHost, Policy, Saved
from climate.core.provisioning.readiness import Period
from climate.core.provisioning.shutdown import Shutdown, ShutdownState
from climate.core.settings import Provisioning
from climate.db import shutdowns
from climate.db.engine import ids
from climate.db.preparations import HOST
from climate.db.resources import allocations, resources
from climate.manager import lead_times
from climate.manager.lead_times import LeadTimes
from climate.manager.runtime import Runtime

LOG = logging.getLogger(__name__)

# The cloud may notice so much later that a host is off.
_SETTLING = timedelta(minutes=2)
# Hosts are chosen so often in an idle time, and at least so often.
_LOOKS, _SELDOM = 20, 60.0
_NEEDED = "it is needed soon"
_NOT_ANY_MORE = "hosts are not switched off any more"


class Saving:
    """What a manager does about energy whenever it looks at what is to be got ready."""

    def __init__(self, runtime: Runtime, settings: Provisioning, known: LeadTimes) -> None:
        """Prepare; nothing is looked at yet."""
        self._runtime, self._settings, self._known = runtime, settings, known
        self._choose_at: datetime | None = None
        self._is_done = False

    def look(self) -> None:
        """Follow what is off; if hosts are to go off, choose them from time to time.

        Where none are to, what is still off from before is followed until nothing is.
        """
        policy = self._settings.energy
        if self._is_done or (policy is None and self._has_nothing_left()):
            return
        follow(self._runtime, None if policy else _NOT_ANY_MORE)
        now = self._runtime.clock.now()
        if policy is None or (self._choose_at is not None and now < self._choose_at):
            return
        self._choose_at = now + timedelta(seconds=min(policy.idle_time / _LOOKS, _SELDOM))
        balance(self._runtime, self._settings, policy, self._known)

    def _has_nothing_left(self) -> bool:
        with self._runtime.database.read() as session:
            self._is_done = not shutdowns.is_going_on(session)
        return self._is_done


def follow(runtime: Runtime, objection: str | None = None) -> int:
    """Give up what is needed before it is off, and end what is over; return how many ended.

    With an ``objection``, all is given up that nobody has begun with. The cloud is told first what
    is over, and that is left until the next look if it does not listen.
    """
    with runtime.database.read() as session:
        now = runtime.clock.now()
        stay = [
            one
            for one in shutdowns.unclaimed(session)
            if objection or shutdowns.is_needed(session, one, now)
        ]
    for one in stay:
        runtime.database.write(partial(_give_up, one, objection or _NEEDED))
    with runtime.database.read() as session:
        done = shutdowns.ended(session, _SETTLING)
        hosts = resources.find_some(session, {one.resource_id for one in done})
    return sum(
        _end(runtime, one, hosts[one.resource_id]) for one in done if one.resource_id in hosts
    )


def _give_up(seen: Shutdown, reason: str, session: Session) -> None:
    mine = shutdowns.get(session, seen.id, lock=True)
    if mine.state is ShutdownState.WANTED:
        shutdowns.store(session, shutdown.given_up(mine, reason))


def _end(runtime: Runtime, mine: Shutdown, host: Resource) -> bool:
    if not _is_roused(runtime, mine, host):
        return False
    now = runtime.clock.now()
    is_mine = runtime.database.write(lambda session: shutdowns.end(session, mine, now))
    if is_mine:
        LOG.info("%s is to have power: %s", mine.node, mine.reason or "it is got ready, or has it")
    return is_mine


def _is_roused(runtime: Runtime, mine: Shutdown, host: Resource) -> bool:
    """Take a host back into service; tell whether it was."""
    try:
        runtime.plugin(HOST).enable_service(host.external_id)
    except ClimateError as error:
        LOG.warning("%s is not taken back into service yet: %s", mine.node, error.message)
        return False
    return True


def balance(
    runtime: Runtime, settings: Provisioning, policy: Policy, known: LeadTimes
) -> list[Shutdown]:
    """Ask for the hosts to be switched off that nobody needs, and on that spares are missing.

    Return the shutdowns that were changed or made.
    """
    now = runtime.clock.now()
    runtime.database.write(
        lambda session: shutdowns.note_idle(
            session, [one.resource_id for one in shutdowns.idle(session, now)], now
        )
    )
    with runtime.database.read() as session:
        hosts, free = _free(session, settings, known, now)
        chosen = pure.to_switch_off(free, policy, now)
        waking = _to_wake(session, settings, free, policy, now)
        asleep = resources.find_some(session, {one.resource_id for one in waking})
    woken = [one for one in waking if _wake(runtime, one, asleep[one.resource_id])]
    if not chosen:
        return woken
    seen = {min(hosts), *(one.id for one in chosen)}
    made = runtime.database.write(partial(_want, runtime, settings, policy, known, seen))
    for one in made:
        LOG.info("%s is to be switched off, as nobody needs it", one.node)
    return [*woken, *made]


def _free(
    session: Session, settings: Provisioning, known: LeadTimes, now: datetime
) -> tuple[dict[int, Resource], list[FreeHost]]:
    """Return the hosts that are on and that nobody has."""
    idle = shutdowns.idle(session, now)
    hosts = {
        id_: host
        for id_, host in resources.find_some(session, {one.resource_id for one in idle}).items()
        if query.matches(settings.hosts, host.properties)
    }
    known.refresh(session, now)
    free = [
        FreeHost(
            id=one.resource_id,
            hardware=lead_times.hardware(hosts[one.resource_id]),
            idle_since=one.idle_since or now,
            next_start=one.next_start,
            lead=known.lead(hosts[one.resource_id], len(hosts)).seconds,
        )
        for one in idle
        if one.resource_id in hosts
    ]
    return hosts, free


def _to_wake(
    session: Session, settings: Provisioning, free: list[FreeHost], policy: Policy, now: datetime
) -> list[Shutdown]:
    resting = [one for one in shutdowns.resting(session) if policy.spare]
    if not resting:
        return []
    longest = timedelta(seconds=settings.policy.longest)
    coming = shutdowns.coming(session, now - longest)
    missing = pure.to_wake(free, coming, resting, policy, now)
    if not missing:
        return []
    unneeded = [one for one in resting if not shutdowns.is_needed(session, one, now)]
    return pure.to_wake(free, coming, unneeded, policy, now)


def _wake(runtime: Runtime, seen: Shutdown, host: Resource) -> bool:
    """Have a host switched on again, as a spare; tell whether that was so."""

    def work(session: Session) -> bool:
        mine = shutdowns.get(session, seen.id, lock=True)
        if mine.state is not ShutdownState.OFF:
            return False
        shutdowns.store(session, shutdown.waking(mine))
        return True

    return _is_roused(runtime, seen, host) and runtime.database.write(work)


def _want(
    runtime: Runtime,
    settings: Provisioning,
    policy: Policy,
    known: LeadTimes,
    seen: Collection[int],
    session: Session,
) -> list[Shutdown]:
    """Store the shutdowns; the locks keep bookings and other managers away meanwhile.

    ``seen`` are the hosts that were chosen, and the first of all, which keeps those apart who
    chose others: or the spares of each might be what the other switches off.
    """
    now = runtime.clock.now()
    allocations.lock(session, seen, wait=True)
    hosts, free = _free(session, settings, known, now)
    chosen = (one for one in pure.to_switch_off(free, policy, now) if one.id in seen)
    wanted = [_new(hosts[one.id], one, policy, now) for one in chosen]
    shutdowns.want(session, wanted)
    return wanted


def _new(host: Resource, free: FreeHost, policy: Policy, now: datetime) -> Shutdown:
    return Shutdown(
        id=ids.new_id(),
        resource_id=host.id,
        node=lead_times.node(host),
        hardware=free.hardware,
        progress=ShutdownState.WANTED,
        wanted_at=now,
        ahead=pure.ahead(free, policy).total_seconds(),
    )


def forget(runtime: Runtime, before: datetime) -> None:
    """Remove what was over by then."""
    runtime.database.write(lambda session: shutdowns.forget(session, before))


def saved(runtime: Runtime, since: datetime, until: datetime, period: Period) -> list[Saved]:
    """Return how long hosts were off, by class and period, as far as that is kept."""
    end = min(until, runtime.clock.now())
    with runtime.database.read() as session:
        return pure.saved(shutdowns.off_between(session, since, end), since, end, period)
