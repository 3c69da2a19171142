"""Ready starts: delay a start until the hosts of the lease are ready, and notify subscribers.

A lease with ``start_when`` ready starts at its start date, or later, when its last host is ready.
Provisioners report that hosts are ready. The transaction that stores the last report makes the
start due. It locks the lease, and so does the transaction that delays the start, so no report is
missed. A delayed start is also checked every minute, because the delay may end without a report:
for example, if healing replaces the host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import NotProvisioned
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import HOST, Lease, Resource, StartWhen
from climate.core.lease.schedule import START
from climate.core.matching import query
from climate.core.provisioning import readiness
from climate.core.provisioning.readiness import Outcome
from climate.db.engine.database import on_commit
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.provisioning import preparations
from climate.db.resources import resources
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import requirements_of
from climate.manager.claims import Seen, requeue
from climate.manager.process.runtime import Runtime

# Interval of the periodic check, for changes without a provisioner's report.
_NEXT_CHECK = timedelta(minutes=1)


class ReadyStartGate(Gate):
    """Rejects ``start_when`` ready for a lease without hosts that a provisioner prepares."""

    def __init__(self, runtime: Runtime) -> None:
        """Check leases against the settings and the plug-ins of ``runtime``."""
        self._runtime = runtime

    def before(
        self, _session: Session, lease: Lease, _now: datetime, present: Lease | None = None
    ) -> None:
        """Check a new lease, before the transaction acquires any lock. Ignore a changed lease."""
        if present is None:
            check_possible(self._runtime, lease)

    def after(self, _session: Session, lease: Lease, _now: datetime) -> None:
        """Check the lease as it is stored now, whether new or changed."""
        check_possible(self._runtime, lease)


def check_possible(runtime: Runtime, lease: Lease) -> None:
    """Raise NotProvisioned if a lease has ``start_when`` ready, but no provisioner prepares hosts.

    Also raises it if no reservation of the lease requires hosts.
    """
    if lease.start.when is not StartWhen.READY:
        return
    if runtime.settings.provisioning is None:
        raise NotProvisioned(
            "This service prepares no hosts: leave out start_when, or set it to scheduled"
        )
    requirements = (
        requirement
        for reservation in lease.reservations
        for requirement in requirements_of(runtime, reservation)
    )
    if not any(requirement.resource_type == HOST for requirement in requirements):
        raise NotProvisioned(
            "Only hosts are got ready, and this lease has none: leave out start_when, or say"
            " scheduled"
        )


def unless_waiting(runtime: Runtime, session: Session, seen: Seen, now: datetime) -> Seen | None:
    """Return the claim; or, if it is a start that waits for hosts, requeue it and return None.

    The first time, it also stores the delay and notifies. If the start was delayed and the hosts
    are ready now, it stores that, and the returned claim has the changed lease.
    """
    claim, lease, event = seen
    # A claimed event is due, even if the clock was set back since.
    if event.kind != START or not is_waiting(lease, max(now, lease.window.start)):
        return seen
    unready_hosts = unready(runtime, session, lease.id)
    if unready_hosts:
        requeue(session, claim, run_at=min(now + _NEXT_CHECK, lease.window.end))
        if lease.start.delayed_at is None:
            leases.delay_start(session, lease.id, now)
            _notify(session, "lease.start_delayed", lease, unready_hosts, now)
        return None
    if lease.start.delayed_at is None or lease.start.ready_at is not None:
        return seen
    leases.set_ready(session, lease.id, now)
    return seen._replace(lease=replace(lease, start=replace(lease.start, ready_at=now)))


def is_waiting(lease: Lease, now: datetime) -> bool:
    """Return whether ``now`` is in a lease's window, and the lease may still wait for its hosts."""
    may_wait = lease.start.when is StartWhen.READY and lease.status is LeaseStatus.PENDING
    return may_wait and lease.window.start <= now < lease.window.end


def unready(runtime: Runtime, session: Session, lease_id: str) -> list[Resource]:
    """Return the hosts of a lease that must be provisioned and are not ready, ordered by id."""
    settings = runtime.settings.provisioning
    ids = preparations.unready(session, lease_id) if settings else None
    if settings is None or not ids:
        return []
    hosts = resources.find_some(session, ids)
    return [
        hosts[id_] for id_ in sorted(hosts) if query.matches(settings.hosts, hosts[id_].properties)
    ]


def note_ready(runtime: Runtime, session: Session, lease_id: str, now: datetime) -> None:
    """If all hosts of a locked lease are ready, store that, and make a delayed start due now."""
    if not unready(runtime, session, lease_id):
        leases.set_ready(session, lease_id, now)
        event_queue.run_now(session, lease_id, [START], now)


def note_start(runtime: Runtime, session: Session, lease: Lease) -> None:
    """Count, for the metrics, which hosts of a started lease were ready in time."""
    if runtime.settings.provisioning is not None:
        ongoing = preparations.going_on(session, lease_id=lease.id)
        _count(runtime, session, readiness.outcomes(ongoing, lease.window.start))


def note_end(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """If a lease ends and its start was delayed until then, notify and count that for metrics."""
    if lease.status is not LeaseStatus.PENDING or lease.start.delayed_at is None:
        return
    _notify(session, "lease.not_started", lease, unready(runtime, session, lease.id), now)
    ongoing = preparations.going_on(session, lease_id=lease.id)
    outcomes = {preparation.hardware: Outcome.NEVER for preparation in ongoing}
    _count(runtime, session, outcomes)


def _notify(
    session: Session, event_type: str, lease: Lease, hosts: Sequence[Resource], now: datetime
) -> None:
    names = [host.external_id for host in hosts]
    extra = {"reason": f"hosts that are not ready: {len(names)}", "waiting_for": names}
    outbox.write(session, event_type, blazar_wire.payload(lease, extra), now)


def _count(runtime: Runtime, session: Session, outcomes: Mapping[str, Outcome]) -> None:
    for hardware, outcome in outcomes.items():
        count = partial(runtime.metrics.started, hardware, outcome.value)
        on_commit(session, count)
