"""The use cases of those who switch hosts off: what is wanted, and how far they are with it.

Who claims one may switch the host off, so at that moment the cloud is asked: it keeps everybody off
the host from then on, and says whether somebody is there. No transaction is open meanwhile. What is
booked just then is no harm: the host goes off and is got ready, which nobody begins before.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from climate.core.errors import Conflict, ShutdownOver
from climate.core.page import Page, Part, ShutdownFilter
from climate.core.provisioning import shutdown
from climate.core.provisioning.shutdown import Shutdown, ShutdownState
from climate.db import shutdowns
from climate.db.preparations import HOST
from climate.db.resources import resources
from climate.manager import preparing
from climate.manager.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What ``owner`` says of a shutdown.

    ``wanted`` hands it back; ``kept`` says that nothing came of it, for a reason: a host that was
    to go off stays on, one that was waking is off, and is set aside. A claim holds for ``claim``.
    """

    state: ShutdownState
    owner: str
    claim: timedelta = timedelta(minutes=2)
    reason: str = ""


def find(runtime: Runtime, wanted: ShutdownFilter, page: Page) -> Part[Shutdown]:
    """Return a page of shutdowns."""
    with runtime.database.read() as session:
        return shutdowns.find(session, wanted, page)


def get(runtime: Runtime, id_: str) -> Shutdown:
    """Return a shutdown; raises NotFound."""
    with runtime.database.read() as session:
        return shutdowns.get(session, id_)


def report(runtime: Runtime, id_: str, told: Report) -> Shutdown:
    """Store a report, and return what the shutdown is now.

    Raises NotFound, ShutdownClaimed, ShutdownOver, InvalidTransition, and BackendUnavailable if the
    cloud cannot be asked.
    """
    if told.state is ShutdownState.ACCEPTED:
        _keep_others_off(runtime, id_, told)
    after = runtime.database.write(partial(_report, runtime, id_, told))
    if after.progress is not ShutdownState.ACCEPTED:
        runtime.wakeup.hint()
    return after


def _keep_others_off(runtime: Runtime, id_: str, told: Report) -> None:
    """Have the cloud leave the host to us; if it does not, or the host is needed, give it up."""
    now = runtime.clock.now()
    with runtime.database.read() as session:
        before = shutdowns.get(session, id_)
        _accepted(session, before, told, now)
        if shutdown.is_waking(before) or shutdown.is_held(before, told.owner, now):
            return
        host = resources.get(session, HOST, before.resource_id)
    try:
        runtime.plugin(HOST).disable_service(host.external_id)
    except Conflict as error:
        runtime.database.write(partial(_give_up, id_, before, error.message))
        runtime.wakeup.hint()
        raise ShutdownOver(f"{before.node} stays on: {error.message}") from None


def _report(runtime: Runtime, id_: str, told: Report, session: Session) -> Shutdown:
    now = runtime.clock.now()
    before = shutdowns.get(session, id_, lock=True)
    after = _applied(session, before, told, now)
    if after == before:
        return before
    shutdowns.store(session, after)
    if shutdown.is_waking(before) and told.state is ShutdownState.KEPT:
        preparing.set_aside(runtime, after.resource_id, told.reason, session)
    return after


def _applied(session: Session, before: Shutdown, told: Report, now: datetime) -> Shutdown:
    match told.state:
        case ShutdownState.ACCEPTED:
            return _accepted(session, before, told, now)
        case ShutdownState.OFF:
            return shutdown.off(before, told.owner, now)
        case ShutdownState.ON:
            return shutdown.on(before, told.owner, now)
        case ShutdownState.KEPT:
            return shutdown.kept(before, told.owner, told.reason)
        case _:
            return shutdown.released(before, told.owner)


def _accepted(session: Session, before: Shutdown, told: Report, now: datetime) -> Shutdown:
    """Return it claimed; what somebody has begun with is seen through, needed or not."""
    after = shutdown.accept(before, told.owner, now, now + told.claim)
    if before.progress is ShutdownState.WANTED and shutdowns.is_needed(session, before, now):
        raise ShutdownOver(f"{before.node} stays on: it is needed soon")
    return after


def _give_up(id_: str, seen: Shutdown, reason: str, session: Session) -> None:
    """Keep the host on, unless somebody else has begun with it meanwhile."""
    mine = shutdowns.get(session, id_, lock=True)
    if mine.attempt == seen.attempt and mine.progress in shutdown.OPEN and mine.over_at is None:
        shutdowns.store(session, shutdown.given_up(mine, reason))
