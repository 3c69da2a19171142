"""Starts that wait for hosts: when a lease may start, and the notifications if it has to wait.

A lease with ``start_when`` ready starts once its hosts are ready, not before its start date. The
transaction that stores the last report makes the start due. It holds the lease's lock, and so does
the transaction that decides to wait: no report can fall between the two. Anything else that may end
the wait (a host is replaced by one that is not provisioned) is found by the next check.
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

# Reports are never lost: this is for changes without a report.
_NEXT_CHECK = timedelta(minutes=1)


class ReadyStartGate(Gate):
    """Refuses a start that waits for hosts where no host of the lease can ever become ready."""

    def __init__(self, runtime: Runtime) -> None:
        """Check against the settings and the plug-ins of this service."""
        self._runtime = runtime

    def before(
        self, _session: Session, lease: Lease, _now: datetime, present: Lease | None = None
    ) -> None:
        """Check a new lease, before anything is locked for it."""
        if present is None:
            check_possible(self._runtime, lease)

    def after(self, _session: Session, lease: Lease, _now: datetime) -> None:
        """Check the reservations that a lease has after a change."""
        check_possible(self._runtime, lease)


def check_possible(runtime: Runtime, lease: Lease) -> None:
    """Raise NotProvisioned if a lease is to wait for hosts, and has none that can become ready."""
    if lease.start.when is not StartWhen.READY:
        return
    if runtime.settings.provisioning is None:
        raise NotProvisioned("Nobody gets hosts ready here: leave out start_when, or say scheduled")
    parts = (part for one in lease.reservations for part in requirements_of(runtime, one))
    if not any(part.resource_type == HOST for part in parts):
        raise NotProvisioned(
            "Only hosts are got ready, and this lease has none: leave out start_when, or say"
            " scheduled"
        )


def unless_waiting(runtime: Runtime, session: Session, seen: Seen, now: datetime) -> Seen | None:
    """Return the claim as it was seen; requeue it and return None if it is a start that waits."""
    claim, lease, event = seen
    # The event is due, as it was claimed: the clock may have been set back since.
    if event.kind != START or not is_waiting(lease, max(now, lease.window.start)):
        return seen
    missing = unready(runtime, session, lease.id)
    if missing:
        requeue(session, claim, run_at=min(now + _NEXT_CHECK, lease.window.end))
        if lease.start.delayed_at is None:
            leases.delay_start(session, lease.id, now)
            _notify(session, "lease.start_delayed", lease, missing, now)
        return None
    if lease.start.delayed_at is None or lease.start.ready_at is not None:
        return seen
    leases.set_ready(session, lease.id, now)
    return seen._replace(lease=replace(lease, start=replace(lease.start, ready_at=now)))


def is_waiting(lease: Lease, now: datetime) -> bool:
    """Return whether only hosts that are not ready can keep a lease from running now."""
    waits = lease.start.when is StartWhen.READY and lease.status is LeaseStatus.PENDING
    return waits and lease.window.start <= now < lease.window.end


def unready(runtime: Runtime, session: Session, lease_id: str) -> list[Resource]:
    """Return the hosts of a lease that must be provisioned and are not ready, by id."""
    settings = runtime.settings.provisioning
    ids = preparations.unready(session, lease_id) if settings else None
    if settings is None or not ids:
        return []
    hosts = resources.find_some(session, ids)
    return [
        hosts[id_] for id_ in sorted(hosts) if query.matches(settings.hosts, hosts[id_].properties)
    ]


def note_ready(runtime: Runtime, session: Session, lease_id: str, now: datetime) -> None:
    """Note that a host of a lease, locked, is ready; the last one makes the start due now."""
    if not unready(runtime, session, lease_id):
        leases.set_ready(session, lease_id, now)
        event_queue.run_now(session, lease_id, [START], now)


def note_start(runtime: Runtime, session: Session, lease: Lease) -> None:
    """Count whether the hosts of a lease that has started were ready in time."""
    if runtime.settings.provisioning is not None:
        open_ones = preparations.going_on(session, lease_id=lease.id)
        _count(runtime, session, readiness.outcomes(open_ones, lease.window.start))


def note_end(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """Notify and count, if a lease that is about to end has only waited for hosts."""
    if lease.status is not LeaseStatus.PENDING or lease.start.delayed_at is None:
        return
    _notify(session, "lease.not_started", lease, unready(runtime, session, lease.id), now)
    open_ones = preparations.going_on(session, lease_id=lease.id)
    _count(runtime, session, {one.hardware: Outcome.NEVER for one in open_ones})


def _notify(
    session: Session, event_type: str, lease: Lease, missing: Sequence[Resource], now: datetime
) -> None:
    names = [host.external_id for host in missing]
    extra = {"reason": f"hosts that are not ready: {len(names)}", "waiting_for": names}
    outbox.write(session, event_type, blazar_wire.payload(lease, extra), now)


def _count(runtime: Runtime, session: Session, outcomes: Mapping[str, Outcome]) -> None:
    for hardware, outcome in outcomes.items():
        count = partial(runtime.metrics.started, hardware, outcome.value)
        on_commit(session, count)
