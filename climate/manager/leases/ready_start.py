"""Starts that wait for hosts: when a lease may start, and what is told if it has to wait.

A lease that asked for ``ready`` starts when its hosts are ready, at its start at the earliest. With
the last report its start becomes due, in the same transaction and under the lease's lock, under
which it was decided that it waits: no report can fall between the two. What else may end the wait
(a host that is replaced by one that nobody gets ready) is found by looking again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core import query, readiness, wire
from climate.core.errors import NotProvisioned
from climate.core.lease import Lease, Resource
from climate.core.lifecycle import LeaseStatus
from climate.core.readiness import Outcome
from climate.core.schedule import START
from climate.core.start import StartWhen
from climate.db import events, outbox, preparations, preparing, resources, starts
from climate.db.engine import on_commit
from climate.db.preparations import HOST
from climate.manager.admission.requirements import requirements_of
from climate.manager.claims import Seen, give_way
from climate.manager.runtime import Runtime

# No report is lost, so this is for what nobody reports.
_LOOK_AGAIN = timedelta(minutes=1)


def check_possible(runtime: Runtime, lease: Lease) -> None:
    """Raise NotProvisioned if a lease is to wait for hosts, and could never have such hosts."""
    if lease.start.when is not StartWhen.READY:
        return
    if runtime.settings.provisioning is None:
        raise NotProvisioned("Nobody gets hosts ready here: leave out start_when, or say scheduled")
    parts = (part for made in lease.reservations for part in requirements_of(runtime, made))
    if not any(part.resource_type == HOST for part in parts):
        raise NotProvisioned(
            "Only hosts are got ready, and this lease has none: leave out start_when, or say"
            " scheduled"
        )


def unless_waiting(runtime: Runtime, session: Session, seen: Seen, now: datetime) -> Seen | None:
    """Return what was seen of a claim; None if it is a start that waits, which gives way."""
    claim, lease, event = seen
    # It is due, as it was claimed: a clock may have been set back since.
    if event.kind != START or not is_waiting(lease, max(now, lease.window.start)):
        return seen
    missing = unready(runtime, session, lease.id)
    if missing:
        give_way(session, claim, run_at=min(now + _LOOK_AGAIN, lease.window.end))
        if lease.start.delayed_at is None:
            starts.delay(session, lease.id, now)
            _tell(session, "lease.start_delayed", lease, missing, now)
        return None
    if lease.start.delayed_at is None or lease.start.ready_at is not None:
        return seen
    starts.set_ready(session, lease.id, now)
    return seen._replace(lease=replace(lease, start=replace(lease.start, ready_at=now)))


def is_waiting(lease: Lease, now: datetime) -> bool:
    """Tell whether all that may keep a lease from running now are hosts that are not ready."""
    waits = lease.start.when is StartWhen.READY and lease.status is LeaseStatus.PENDING
    return waits and lease.window.start <= now < lease.window.end


def unready(runtime: Runtime, session: Session, lease_id: str) -> list[Resource]:
    """Return the hosts of a lease that are to be got ready and are not, by id."""
    settings = runtime.settings.provisioning
    ids = preparing.unready(session, lease_id) if settings else None
    if settings is None or not ids:
        return []
    found = resources.find_some(session, ids)
    return [
        found[id_] for id_ in sorted(found) if query.matches(settings.hosts, found[id_].properties)
    ]


def note_ready(runtime: Runtime, session: Session, lease_id: str, now: datetime) -> None:
    """Note that a host of a lease, locked, is ready; if it was the last, have the start be due."""
    if not unready(runtime, session, lease_id):
        starts.set_ready(session, lease_id, now)
        events.hurry(session, lease_id, [START], now)


def note_start(runtime: Runtime, session: Session, lease: Lease) -> None:
    """Count whether a lease that has started was ready in time."""
    if runtime.settings.provisioning is not None:
        found = preparations.going_on(session, lease_id=lease.id)
        _count(runtime, session, readiness.outcomes(found, lease.window.start))


def note_end(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """Tell, and count, that a lease which is about to end has only waited for hosts."""
    if lease.status is not LeaseStatus.PENDING or lease.start.delayed_at is None:
        return
    _tell(session, "lease.not_started", lease, unready(runtime, session, lease.id), now)
    found = preparations.going_on(session, lease_id=lease.id)
    _count(runtime, session, {one.hardware: Outcome.NEVER for one in found})


def _tell(
    session: Session, what: str, lease: Lease, missing: Sequence[Resource], now: datetime
) -> None:
    names = [host.external_id for host in missing]
    told = {"reason": f"hosts that are not ready: {len(names)}", "waiting_for": names}
    outbox.write(session, what, wire.payload(lease, told), now)


def _count(runtime: Runtime, session: Session, found: Mapping[str, Outcome]) -> None:
    for hardware, outcome in found.items():
        count = partial(runtime.metrics.started, hardware, outcome.value)
        on_commit(session, count)
