"""Use cases of provisioners that get hosts ready: find preparations, and report their progress.

A provisioner is a program that powers hosts on and off. A preparation is a task for a provisioner
to make a host ready for a lease. climate locks the preparation while it stores a report. If the
report is that the host is ready, the same transaction may make the start of the lease due. So in
this case, the transaction locks first the lease, then the preparation. All other consequences of a
report for the lease are handled by the planner.
"""

import math
import time
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import PreparationClaimed
from climate.core.notifications import event_type
from climate.core.page import Page, Part, TaskFilter
from climate.core.provisioning import preparation
from climate.core.provisioning.preparation import Preparation, PreparationState
from climate.core.provisioning.task import Report
from climate.db.engine.database import Database, on_commit
from climate.db.leases import leases
from climate.db.provisioning import preparations, readiness, shutdowns
from climate.manager.leases import ready_start as starting
from climate.manager.notifications import log
from climate.manager.notifications.lease_messages import notify_nodes
from climate.manager.process.runtime import Runtime, reading
from climate.manager.provisioning.planner import payload

# Least number of seconds between two queries while a claim is about to expire.
_SHORTEST = 0.1

get = reading(preparations.get)
_find = reading(preparations.find)


def find(runtime: Runtime, wanted: TaskFilter, page: Page, wait: float = 0.0) -> Part[Preparation]:
    """Return a page of preparations; if there is no match, first wait for one.

    The wait lasts at most ``wait`` seconds; if no match comes in that time, the page is empty.
    Raises TooManyFollowers if too many requests are waiting already.
    """
    part = _find(runtime, wanted, page)
    if part.items or wait <= 0:
        return part
    deadline = time.monotonic() + wait
    with runtime.latest.place(None):
        while True:
            seen = log.last_seq(runtime)
            if wanted.claimable_at is not None:
                wanted = replace(wanted, claimable_at=runtime.clock.now())
            part = _find(runtime, wanted, page)
            remaining = deadline - time.monotonic()
            if part.items or remaining <= 0 or runtime.latest.is_closed:
                return part
            until_expiry = _until_expiry(runtime.database, wanted.claimable_at)
            runtime.latest.wait(seen, min(remaining, until_expiry))


def _until_expiry(database: Database, seen_at: datetime | None) -> float:
    """Return how many seconds after ``seen_at`` the next claim of a preparation expires.

    ``seen_at`` is the time of the last query of a waiting request; None if the request is not for
    claimable preparations. When a claim expires, the request must query again, because no
    notification announces the expiry. Returns infinity if ``seen_at`` is None, or if no claim will
    expire.
    """
    if seen_at is None:
        return math.inf
    with database.read() as session:
        ends_at = preparations.next_expiry(session, seen_at)
    return max((ends_at - seen_at).total_seconds(), _SHORTEST) if ends_at else math.inf


def report(runtime: Runtime, id_: str, report: Report[PreparationState]) -> Preparation:
    """Store a provisioner's report, and return the changed preparation.

    Raises NotFound, PreparationClaimed, InvalidTransition. Raises PreparationOver if the
    preparation is over. If the report says that the host is ready, and comes from the provisioner
    that claimed the preparation last, the function stores this fact before it raises the error.
    """
    after = runtime.database.write(partial(_report, runtime, id_, report))
    after.check_not_over()
    if report.state is not PreparationState.ACCEPTED:
        runtime.wakeup.hint()
    return after


def _report(
    runtime: Runtime, id_: str, report: Report[PreparationState], session: Session
) -> Preparation:
    now = runtime.clock.now()
    if report.state is PreparationState.READY:  # the lease may be waiting for this host
        leases.lock_one(session, preparations.get(session, id_).lease_id)
    before = preparations.get(session, id_, lock=True)
    apply = _apply_when_over if before.over_at else _apply
    after = apply(session, before, report, now)
    if after == before:
        return before
    preparations.store(session, after)
    if report.state is PreparationState.WANTED:
        notify_nodes(session, event_type.PREPARE, [payload(after)], now)
    if after.ready_at is not None and before.ready_at is None:
        _learn(session, after, report, now)
        if after.over_at is None:  # the lease starts if this was its last host
            starting.note_ready(runtime.settings, session, after.lease_id, now)
            hardware, early = after.hardware, after.early or 0.0
            on_commit(session, lambda: runtime.metrics.host_ready(hardware, early))
    return after


def _apply(
    session: Session, before: Preparation, report: Report[PreparationState], now: datetime
) -> Preparation:
    match report.state:
        case PreparationState.ACCEPTED:
            return _accepted(session, before, report, now)
        case PreparationState.READY:
            return preparation.ready(before, report.owner, now, report.seconds)
        case PreparationState.FAILED:
            return preparation.failed(before, report.owner, report.seconds, report.reason)
        case _:
            return preparation.released(before, report.owner)


def _accepted(
    session: Session, before: Preparation, report: Report[PreparationState], now: datetime
) -> Preparation:
    """Return ``before`` with the claim of the reporting provisioner added or extended.

    A claim reserves the preparation for one provisioner. Raises PreparationClaimed if another
    provisioner has a claim, or if the claim is new and a shutdown of the host is not over.
    """
    after = preparation.accept(before, report.owner, now, now + report.claim)
    is_new = after.attempt != before.attempt
    if is_new and shutdowns.is_going_on(session, before.resource_id):
        raise PreparationClaimed(f"{before.node} has a shutdown that is not over")
    return after


def _apply_when_over(
    _session: Session, over: Preparation, report: Report[PreparationState], now: datetime
) -> Preparation:
    """Return ``over``, a preparation that is over, after a late report.

    Only one report changes the preparation: the first report READY from the provisioner that
    claimed it last. The changed preparation has ``now`` as ``ready_at``, and the reported
    durations.
    """
    is_ready = report.state is PreparationState.READY and report.owner == over.owner
    if not is_ready or over.ready_at is not None:
        return over
    return replace(over, ready_at=now, seconds=dict(report.seconds))


def _learn(
    session: Session, task: Preparation, report: Report[PreparationState], now: datetime
) -> None:
    """Store the duration of a successful preparation, and end a quarantine of the host.

    The duration is stored only if the host was off before the preparation. The quarantine ends
    because the host has proved to work.
    """
    total = sum(report.seconds.values())
    if report.cold and total > 0:
        readiness.remember(session, task.resource_id, task.hardware, total)
    if readiness.find(session, task.resource_id).set_aside is not None:
        readiness.set_aside(session, task.resource_id, None, now)
