"""Use cases of provisioners that switch hosts off: find shutdowns, and report their progress.

A provisioner is a program that powers hosts on and off. A shutdown is a task for a provisioner to
switch a host off, and perhaps on again later. A shutdown is *waking* while the host must be
switched on again.

A provisioner claims a shutdown before it switches the host off. The claim reserves the shutdown for
this provisioner. Before climate accepts a claim, climate disables the host's service in the cloud,
with no transaction open. The cloud refuses to disable the service if users' servers run on the
host. If a lease books the host after the claim, the host is still switched off, and then prepared
for the lease.
"""

from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.clock import Clock
from climate.core.errors import Conflict, ShutdownOver
from climate.core.lease.model import HOST
from climate.core.provisioning import shutdown
from climate.core.provisioning.shutdown import Shutdown, ShutdownState
from climate.core.provisioning.task import Report
from climate.db.provisioning import shutdowns
from climate.db.resources import resources
from climate.manager.process.runtime import Runtime, reading
from climate.manager.provisioning import planner

find = reading(shutdowns.find)
get = reading(shutdowns.get)


def report(runtime: Runtime, id_: str, report: Report[ShutdownState]) -> Shutdown:
    """Store a provisioner's report on a shutdown, and return the changed shutdown.

    Raises NotFound, ShutdownClaimed, ShutdownOver, InvalidTransition. Raises BackendUnavailable if
    the cloud does not answer.
    """
    if report.state is ShutdownState.ACCEPTED:
        _reserve_host(runtime, id_, report)
    after = runtime.database.write(partial(_report, runtime.clock, id_, report))
    if after.progress is not ShutdownState.ACCEPTED:
        runtime.wakeup.hint()
    return after


def _reserve_host(runtime: Runtime, id_: str, report: Report[ShutdownState]) -> None:
    """Disable a host's service in the cloud before a provisioner claims the shutdown of the host.

    Does nothing if the host must be switched on again, or if the provisioner already has the claim.
    If the cloud refuses, cancel the shutdown and raise ShutdownOver.
    """
    now = runtime.clock.now()
    with runtime.database.read() as session:
        before = shutdowns.get(session, id_)
        _accepted(session, before, report, now)
        if shutdown.is_waking(before) or shutdown.is_held(before, report.owner, now):
            return
        host = resources.get(session, HOST, before.resource_id)
    try:
        runtime.plugin(HOST).disable_service(host.external_id)
    except Conflict as error:
        runtime.database.write(partial(_cancel, id_, before, error.message))
        runtime.wakeup.hint()
        raise ShutdownOver(f"{before.node} stays on: {error.message}") from None


def _report(clock: Clock, id_: str, report: Report[ShutdownState], session: Session) -> Shutdown:
    now = clock.now()
    before = shutdowns.get(session, id_, lock=True)
    after = _applied(session, before, report, now)
    if after == before:
        return before
    shutdowns.store(session, after)
    if shutdown.is_waking(before) and report.state is ShutdownState.KEPT:
        planner.quarantine(now, after.resource_id, report.reason, session)
    return after


def _applied(
    session: Session, before: Shutdown, report: Report[ShutdownState], now: datetime
) -> Shutdown:
    match report.state:
        case ShutdownState.ACCEPTED:
            return _accepted(session, before, report, now)
        case ShutdownState.OFF:
            return shutdown.off(before, report.owner, now)
        case ShutdownState.ON:
            return shutdown.on(before, report.owner, now)
        case ShutdownState.KEPT:
            return shutdown.kept(before, report.owner, report.reason)
        case _:
            return shutdown.released(before, report.owner)


def _accepted(
    session: Session, before: Shutdown, report: Report[ShutdownState], now: datetime
) -> Shutdown:
    """Return ``before`` with the claim of the reporting provisioner added or extended.

    Raises ShutdownClaimed if another provisioner has a claim. Raises ShutdownOver if a lease needs
    the host and no provisioner has claimed the shutdown before. After the first claim, a
    provisioner must finish the shutdown, even if a lease needs the host.
    """
    after = shutdown.accept(before, report.owner, now, now + report.claim)
    if before.progress is ShutdownState.WANTED and shutdowns.is_needed(session, before, now):
        raise ShutdownOver(f"{before.node} stays on: it is needed soon")
    return after


def _cancel(id_: str, seen: Shutdown, reason: str, session: Session) -> None:
    """Cancel a shutdown, unless a provisioner has claimed it in the meantime."""
    task = shutdowns.get(session, id_, lock=True)
    if task.attempt == seen.attempt and task.progress in shutdown.OPEN and task.over_at is None:
        shutdowns.store(session, shutdown.given_up(task, reason))
