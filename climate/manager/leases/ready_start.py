"""Ready starts: delay a start until the hosts of the lease are ready, and notify subscribers.

A lease whose field ``start_when`` is ``ready`` starts when its last host is ready, but not before
its start date. Provisioners report that hosts are ready. The transaction that stores the last
report makes the start due. The transaction that delays the start cannot miss this report, because
both transactions lock the lease. A manager also checks a delayed start every minute, because the
delay may end without a report: for example, if healing replaces the host.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import NotProvisioned
from climate.core.lease import blazar_wire, on_start
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.model import HOST, Lease, Resource, StartWhen
from climate.core.lease.schedule import START
from climate.core.matching import query
from climate.core.notifications import event_type
from climate.core.notifications.event_type import EventType
from climate.core.provisioning import readiness
from climate.core.provisioning.readiness import Outcome
from climate.core.settings import Settings
from climate.db.engine.database import on_commit
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.db.provisioning import preparations
from climate.db.resources import resources
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import requirements_of
from climate.manager.claims import Seen, requeue
from climate.manager.process.runtime import Catalog, Runtime
from climate.observability.metrics import Metrics

# Interval of the periodic check, for changes without a provisioner's report.
_NEXT_CHECK = timedelta(minutes=1)


class ReadyStartGate(Gate):
    """Rejects ``start_when: ready`` for a lease of which climate prepares nothing.

    ``start_when: ready`` means that a lease starts when all its hosts, and all that climate creates
    for it before the start, are ready.
    """

    def __init__(self, settings: Settings, catalog: Catalog) -> None:
        self._settings = settings
        self._catalog = catalog

    def before(
        self, _session: Session, lease: Lease, _now: datetime, present: Lease | None = None
    ) -> None:
        """Raise NotProvisioned if the gate rejects a new lease.

        If ``present`` (the stored lease) is set, the request changes a lease; then this hook does
        nothing, and the hook ``after`` checks the changed lease.
        """
        if present is None:
            self._check(lease)

    def after(self, _session: Session, lease: Lease, _now: datetime) -> None:
        """Raise NotProvisioned if the gate rejects the new or changed lease, as stored now."""
        self._check(lease)

    def _check(self, lease: Lease) -> None:
        creates = self._settings.creation is not None and on_start.created(lease)
        if lease.start.when is not StartWhen.READY or creates:
            return
        if self._settings.provisioning is None:
            raise NotProvisioned(
                "This service prepares no hosts: leave out start_when, or set it to scheduled"
            )
        required_types = {
            requirement.resource_type
            for reservation in lease.reservations
            for requirement in requirements_of(self._catalog, reservation, lease.project_id)
        }
        if HOST not in required_types:
            raise NotProvisioned(
                "Only hosts can be prepared, and this lease has none: leave out start_when, or set"
                " it to scheduled"
            )


def if_ready(settings: Settings, session: Session, seen: Seen, now: datetime) -> Seen | None:
    """Return ``seen`` if all hosts of its lease are ready; otherwise delay the start, return None.

    ``seen`` is a start event that this manager has claimed, with its lease. If the start was
    delayed before and can run now, the function stores that the hosts are ready. To delay a start,
    the function requeues the event for a minute. When it delays a start for the first time, it also
    stores that the start is delayed, and writes a notification.
    """
    claim, lease, _ = seen
    unready_hosts = unready(settings, session, lease.id)
    if unready_hosts:
        requeue(session, claim, run_at=min(now + _NEXT_CHECK, lease.window.end))
        if lease.start.delayed_at is None:
            leases.delay_start(session, lease.id, now)
            _notify(session, event_type.LEASE_START_DELAYED, lease, unready_hosts, now)
        return None
    if lease.start.delayed_at is None or lease.start.ready_at is not None:
        return seen
    leases.set_hosts_ready(session, lease.id, now)
    return seen._replace(lease=replace(lease, start=replace(lease.start, ready_at=now)))


def unready(
    settings: Settings,
    session: Session,
    lease_id: str,
    reservation_ids: Collection[str] | None = None,
) -> list[Resource]:
    """Return the hosts for which the start of a lease must wait, ordered by id.

    The result contains only hosts that provisioners prepare, and only hosts of the reservations
    ``reservation_ids`` (None: of all).
    """
    if settings.provisioning is None:
        return []
    wanted = settings.provisioning.hosts
    ids = preparations.unready(session, lease_id, reservation_ids)
    hosts = resources.find_some(session, ids) if ids else {}
    return [hosts[id_] for id_ in sorted(hosts) if query.matches(wanted, hosts[id_].properties)]


def note_ready(settings: Settings, session: Session, lease_id: str, now: datetime) -> None:
    """If all hosts of a lease are ready, store this fact, and make a delayed start due now.

    The caller has locked the lease.
    """
    if not unready(settings, session, lease_id):
        leases.set_hosts_ready(session, lease_id, now)
        event_queue.run_now(session, lease_id, [START], now)


def note_start(runtime: Runtime, session: Session, lease: Lease) -> None:
    """Count in the metrics which hosts of a lease were ready in time for its start."""
    if runtime.settings.provisioning is not None:
        ongoing = preparations.going_on(session, lease_id=lease.id)
        _count(runtime.metrics, session, readiness.outcomes(ongoing, lease.window.start))


def note_end(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """Write the notification ``lease.not_started`` if a lease ends before its delayed start ran.

    Also count in the metrics that the hosts of this lease were never ready.
    """
    if lease.status is not LeaseStatus.PENDING or lease.start.delayed_at is None:
        return
    unready_hosts = unready(runtime.settings, session, lease.id)
    _notify(session, event_type.LEASE_NOT_STARTED, lease, unready_hosts, now)
    ongoing = preparations.going_on(session, lease_id=lease.id)
    outcomes = {preparation.hardware: Outcome.NEVER for preparation in ongoing}
    _count(runtime.metrics, session, outcomes)


def _notify(
    session: Session, type_: EventType, lease: Lease, hosts: Sequence[Resource], now: datetime
) -> None:
    names = [host.external_id for host in hosts]
    extra = {"reason": f"hosts that are not ready: {len(names)}", "waiting_for": names}
    outbox.write(session, type_, blazar_wire.payload(lease, extra), now)


def _count(metrics: Metrics, session: Session, outcomes: Mapping[str, Outcome]) -> None:
    for hardware, outcome in outcomes.items():
        on_commit(session, partial(metrics.started, hardware, outcome.value))
