"""The use cases of looking at how ready hosts are, and of setting them aside."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease.model import HOST, Lease, Resource, hardware
from climate.core.matching import query
from climate.core.provisioning import readiness as pure
from climate.core.provisioning.lead_time import Lead
from climate.core.provisioning.preparation import PreparationState
from climate.core.provisioning.readiness import HostKnown, Period, Seen, Share, Shown
from climate.db.provisioning import preparations, readiness
from climate.db.resources import resources
from climate.manager.leases import ready_start as starting
from climate.manager.notifications.lease_messages import notify_nodes
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning import planner
from climate.manager.provisioning.lead_times import LeadTimes

# The cloud may notice so much later that a host is up.
_SETTLING = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReadiness:
    """How ready a host is for whoever has it next, what is known of it, and its lead if alone."""

    host: Resource
    hardware: str
    shown: Shown
    known: HostKnown
    lead: Lead | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Which hosts are set aside, and which may be without power as nobody has them now."""

    set_aside: Collection[int] = field(default_factory=frozenset)
    resting: Collection[int] = field(default_factory=frozenset)


def of_lease(runtime: Runtime, lease: Lease) -> Shown:
    """Return how ready the hosts of a lease are."""
    now = runtime.clock.now()
    with runtime.database.read() as session:
        shown = pure.shown(preparations.going_on(session, lease_id=lease.id), now)
        if not starting.is_waiting(lease, now):
            return shown
        missing = starting.unready(runtime, session, lease.id)
    return replace(shown, waiting_for=[host.external_id for host in missing])


def of_host(runtime: Runtime, resource_id: int) -> HostReadiness:
    """Return how ready a host is; raises NotFound."""
    now, settings = runtime.clock.now(), runtime.settings.provisioning
    with runtime.database.read() as session:
        host = _host(session, resource_id)
        mine = preparations.going_on(session, resource_id=resource_id)
        known = readiness.find(session, resource_id)
        lead = None
        if settings is not None:
            learned = LeadTimes(settings)
            learned.refresh(session, now)
            lead = learned.lead(host, 1)
    return HostReadiness(
        host=host,
        hardware=hardware(host),
        shown=pure.shown(mine[:1], now),
        known=known,
        lead=lead,
    )


def set_aside(runtime: Runtime, resource_id: int, reason: str | None) -> HostReadiness:
    """Have a host be booked for nobody, for a reason, or (None) again; raises NotFound.

    What could not be got ready is tried again then. The cloud is to say whether the host works.
    """

    def work(session: Session) -> None:
        host = _host(session, resource_id, lock=True)
        if reason is not None:
            planner.set_aside(runtime, host.id, reason, session)
            return
        readiness.set_aside(session, host.id, None, now)
        preparations.retry(session, host.id)
        found = preparations.going_on(session, resource_id=host.id)
        again = (planner.payload(one) for one in found if one.state is PreparationState.WANTED)
        notify_nodes(session, planner.PREPARE, again, now)

    now = runtime.clock.now()
    runtime.database.write(work)
    runtime.wakeup.hint()
    return of_host(runtime, resource_id)


def summary(runtime: Runtime, since: datetime, until: datetime, period: Period) -> list[Share]:
    """Return the shares of leases that were ready when they started, by class and period."""
    with runtime.database.read() as session:
        found = preparations.needed_between(session, since, min(until, runtime.clock.now()))
    return pure.summary(found, period)


def standing(runtime: Runtime, registered: Sequence[Resource], now: datetime) -> Standing:
    """Return how hosts stand; without provisioning, none does in any way."""
    settings = runtime.settings.provisioning
    mine = [one for one in registered if one.type == HOST]
    if settings is None or not mine:
        return Standing()
    with runtime.database.read() as session:
        aside = readiness.all_set_aside(session)
        used = preparations.in_use(session, now, now - _SETTLING)
    ours = {one.id for one in mine if query.matches(settings.hosts, one.properties)}
    return Standing(aside, ours - used - aside)


def see(runtime: Runtime, seen: Mapping[int, Seen]) -> None:
    """Note which hosts the cloud says are up."""
    if runtime.settings.provisioning is not None and seen:
        runtime.database.write(lambda session: readiness.see(session, seen))


def _host(session: Session, resource_id: int, *, lock: bool = False) -> Resource:
    try:
        return resources.get(session, HOST, resource_id, lock=lock)
    except NotFound:
        raise NotFound(f"There is no host {resource_id}") from None
