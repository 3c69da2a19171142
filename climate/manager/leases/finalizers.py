"""What is left to do when leases are over: their trusts are revoked, and it is told.

It is told to an enforcement service, at best: no end ever waits for it. What is to be done is an
event without a lease, written with the end itself, so that it is done though the lease was deleted.
A manager runs it as any other; a service that is away is told again for a day, after growing
pauses.
"""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from climate import ids
from climate.core.enforcement import lease_body
from climate.core.errors import EnforcementUnavailable
from climate.core.lease import Lease
from climate.core.lifecycle import EventStatus
from climate.core.schedule import REVOKE, TELL_END
from climate.db import events, farewells
from climate.enforcement import Busy
from climate.manager.announcements import resources_of
from climate.manager.claims import Claim, close, give_way
from climate.manager.failures import pause_before
from climate.manager.leases import trusts
from climate.manager.runtime import Runtime

LOG = logging.getLogger(__name__)

_PATIENCE = timedelta(days=1)
_WHEN_BUSY = timedelta(seconds=5)


def note_end(runtime: Runtime, session: Session, lease: Lease, now: datetime) -> None:
    """Write down what is to be done when a lease, locked, is over: revoke its trust, and tell."""
    trusts.leave(session, lease, now)
    if runtime.enforcer is None or not runtime.enforcer.hears_of_ends:
        return
    held = resources_of(session, [reservation.id for reservation in lease.reservations])
    farewells.insert(session, ids.new_id(), TELL_END, lease_body(lease, held), now)


def run(runtime: Runtime, claim: Claim) -> None:
    """Do what a claimed event without a lease is about."""
    with runtime.database.read() as session:
        found = farewells.get(session, claim.event_id)
    if found is None:
        return
    kind, payload, since = found
    if kind == REVOKE:
        trusts.revoke(runtime, claim, payload)
    else:
        _tell(runtime, claim, payload, since)


def _tell(runtime: Runtime, claim: Claim, body: Mapping[str, Any], since: datetime) -> None:
    """Tell about an end, or see to it that it is tried again."""
    try:
        if runtime.enforcer is not None and runtime.enforcer.hears_of_ends:
            runtime.enforcer.on_end(body)
    except Busy:
        again = runtime.clock.now() + _WHEN_BUSY
        runtime.database.write(lambda session: give_way(session, claim, run_at=again))
    except EnforcementUnavailable as error:
        if runtime.clock.now() - since < _PATIENCE:
            reason = error.message
            runtime.database.write(lambda session: _again(runtime, session, claim, reason))
            return
        LOG.error("the end of lease %s is not told: %s", body["id"], error.message)  # noqa: TRY400
        runtime.database.write(lambda session: _forget(session, claim))
    else:
        runtime.database.write(lambda session: _forget(session, claim))


def _again(runtime: Runtime, session: Session, claim: Claim, reason: str) -> None:
    now = runtime.clock.now()
    pause = pause_before(claim.attempt, runtime.settings.max_retries, runtime.rng)
    run_at = now + timedelta(seconds=pause)
    close(session, claim, now, EventStatus.UNDONE, last_error=reason, run_at=run_at)


def _forget(session: Session, claim: Claim) -> None:
    if events.is_mine(session, claim.event_id, claim.owner, claim.attempt):
        events.remove(session, [claim.event_id])
