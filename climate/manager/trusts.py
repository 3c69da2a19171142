"""A lease's trust, by which we act as its user where that is needed.

It is made with the asker's own token, before the lease (or its change) is confirmed, and belongs to
it from then on. One that no lease needs any more is revoked by a manager, relentlessly: that is an
event without a lease, written with whatever made the trust superfluous.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import Conflict, Forbidden
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import PATIENCE, RELENTLESS, REVOKE
from climate.db import events, farewells, leases
from climate.db import trusts as stored_trusts
from climate.db.engine import ids
from climate.db.notifications import outbox
from climate.manager.claims import Claim, close
from climate.manager.failures import pause_before
from climate.manager.requests import Asked
from climate.manager.runtime import Runtime
from climate.plugins.base import Drift, Requester
from climate.plugins.openstack.trusts import Trusts

LOG = logging.getLogger(__name__)

RESTORED = "lease.trust_restored"


def needed(runtime: Runtime, asked: Iterable[Asked]) -> bool:
    """Tell whether any of these reservations is acted on as its user."""
    return any(runtime.plugin(one.resource_type).acts_as_user(one.params) for one in asked)


def make(runtime: Runtime, requester: Requester) -> str:
    """Return a new trust of the asker's; raises Conflict, Forbidden, BackendUnavailable."""
    if requester.token is None:
        raise Conflict(
            "For this climate must act in the cloud as you, which takes a token of Keystone's: it"
            " is to be had where [api] auth_strategy is keystone"
        )
    return _ours(runtime).make(requester, runtime.clock.now())


def _ours(runtime: Runtime) -> Trusts:
    """Return the way to trusts; raises Conflict where there is none."""
    if runtime.trusts is None:
        raise Conflict("[service_user] does not say who climate is in the cloud")
    return runtime.trusts


def make_for(runtime: Runtime, requester: Requester, lease: Lease) -> str:
    """Return a new trust for a lease; raises Forbidden unless it is the asker's own."""
    if not is_owner(requester, lease):
        raise Forbidden(
            f"For this climate must act in the cloud as the lease's user {lease.user_id} in project"
            f" {lease.project_id}, so nobody else can ask for it"
        )
    return make(runtime, requester)


def is_owner(requester: Requester, lease: Lease) -> bool:
    """Tell whether the lease is the asker's own."""
    return (requester.user_id, requester.project_id) == (lease.user_id, lease.project_id)


def give(session: Session, lease: Lease, trust_id: str, now: datetime) -> Lease:
    """Have a lease, locked, use a new trust, and not the one that it had."""
    if lease.trust_id is not None:
        drop(session, lease.trust_id, now)
    stored_trusts.store(session, lease.id, trust_id)
    given = replace(lease, trust_id=trust_id)
    return given if lease.trust_lost is None else restore(session, given, now)


def restore(session: Session, lease: Lease, now: datetime) -> Lease:
    """Write down that a lease's trust works again; what failed for it is tried again at once."""
    restored = replace(lease, trust_lost=None, updated_at=now)
    leases.update(session, restored)
    outbox.write(session, RESTORED, blazar_wire.payload(restored), now)
    events.hurry(session, lease.id, RELENTLESS, now)
    return restored


def leave(session: Session, lease: Lease, now: datetime) -> None:
    """Have the trust of a lease that is over revoked, if it has any."""
    if lease.trust_id is not None:
        drop(session, lease.trust_id, now)
        stored_trusts.store(session, lease.id, None)


def drop(session: Session, trust_id: str, now: datetime) -> None:
    """Have a manager revoke a trust."""
    farewells.insert(session, ids.new_id(), REVOKE, {"trust_id": trust_id}, now)


def orphans(runtime: Runtime) -> Iterator[Drift]:
    """Name the trusts of ours that no lease has, nor a request that is under way."""
    if runtime.trusts is None:
        return
    found = runtime.trusts.find_all()
    old = runtime.clock.now() - runtime.settings.hold_timeout - PATIENCE
    with runtime.database.read() as session:
        known = stored_trusts.all_ids(session)
        leaving = {payload["trust_id"] for payload in farewells.find_all(session, REVOKE)}
    for trust in found:
        whose = f"user {trust.user_id} in project {trust.project_id}"
        if trust.id in leaving:
            yield Drift(f"a trust of {whose}, which no lease needs, is not revoked yet")
        elif trust.id not in known and trust.made_at < old:
            yield Drift(
                f"a trust of {whose}, made at {trust.made_at:%Y-%m-%d %H:%M:%S}, is of no lease",
                partial(runtime.trusts.revoke, trust.id),
            )


def revoke(runtime: Runtime, claim: Claim, payload: Mapping[str, Any]) -> None:
    """Revoke what a claimed event names, or see to it that it is tried again."""
    now = runtime.clock.now()
    try:
        _ours(runtime).revoke(payload["trust_id"])
    except Exception as error:  # noqa: BLE001 - whatever it was, it is tried again
        reason = str(error).replace(payload["trust_id"], "...")  # it may be in an address
        LOG.warning("a trust that no lease needs is not revoked yet: %s", reason)
        pause = pause_before(claim.attempt, runtime.settings.max_retries, runtime.rng)
        again = {"last_error": reason, "run_at": now + timedelta(seconds=pause)}
        runtime.database.write(lambda one: close(one, claim, now, EventStatus.UNDONE, **again))
    else:
        runtime.database.write(lambda one: _forget(one, claim))


def _forget(session: Session, claim: Claim) -> None:
    if events.is_mine(session, claim.event_id, claim.owner, claim.attempt):
        events.remove(session, [claim.event_id])
