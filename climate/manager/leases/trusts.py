"""Trusts: by its trust, managers act in the cloud as the user of a lease.

A request makes the trust with the requester's own token, before it confirms the lease or the
change. Managers revoke a trust that no lease needs any more, and retry until that succeeds: this is
an event without a lease, stored by the transaction that made the trust superfluous.

Keystone sends no notice when a user is disabled or loses a role. So managers check the trusts of
leases that run or start soon, by requesting a token with each. A lease whose trust is lost is
degraded and shows why, until the trust works again or a change by its owner gives it another one.
A notification reports each of these changes once.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.backoff import pause_before
from climate.core.errors import BackendUnavailable, Conflict, Forbidden, NotFound
from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import EventStatus
from climate.core.lease.model import Lease
from climate.core.lease.schedule import PATIENCE, RELENTLESS, REVOKE
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.manager.claims import Claim, close
from climate.manager.process.runtime import Runtime
from climate.plugins.base import Drift, Requester
from climate.plugins.openstack.trusts import DeadTrust, Trusts

LOG = logging.getLogger(__name__)

LOST = "lease.trust_lost"
RESTORED = "lease.trust_restored"


def make(runtime: Runtime, requester: Requester) -> str:
    """Make a trust of the requester's and return its id.

    Raises Conflict, Forbidden, BackendUnavailable.
    """
    if requester.token is None:
        raise Conflict(
            "For this climate must act in the cloud as you, which takes a token of Keystone's: it"
            " is to be had where [api] auth_strategy is keystone"
        )
    return _trusts(runtime).make(requester, runtime.clock.now())


def _trusts(runtime: Runtime) -> Trusts:
    """Return the client for trusts; raises Conflict if none is configured."""
    if runtime.trusts is None:
        raise Conflict("[service_user] does not say who climate is in the cloud")
    return runtime.trusts


def make_for(runtime: Runtime, requester: Requester, lease: Lease) -> str:
    """Make a trust for a lease, return its id; raises Forbidden unless the requester owns it."""
    if not is_owner(requester, lease):
        raise Forbidden(
            f"For this climate must act in the cloud as the lease's user {lease.user_id} in project"
            f" {lease.project_id}, so nobody else can ask for it"
        )
    return make(runtime, requester)


def is_owner(requester: Requester, lease: Lease) -> bool:
    """Return whether the requester owns the lease."""
    return (requester.user_id, requester.project_id) == (lease.user_id, lease.project_id)


def give(session: Session, lease: Lease, trust_id: str, now: datetime) -> Lease:
    """Replace the trust of a lease, locked, by a new one."""
    if lease.trust_id is not None:
        drop(session, lease.trust_id, now)
    leases.set_trust(session, lease.id, trust_id)
    given = replace(lease, trust_id=trust_id)
    return given if lease.trust_lost is None else restore(session, given, now)


def restore(session: Session, lease: Lease, now: datetime) -> Lease:
    """Store that a lease's trust works again; failed starts and ends are due at once."""
    restored = replace(lease, trust_lost=None, updated_at=now)
    leases.update(session, restored)
    outbox.write(session, RESTORED, blazar_wire.payload(restored), now)
    event_queue.run_now(session, lease.id, RELENTLESS, now)
    return restored


def leave(session: Session, lease: Lease, now: datetime) -> None:
    """Let managers revoke the trust of a lease that is over, if it has any."""
    if lease.trust_id is not None:
        drop(session, lease.trust_id, now)
        leases.set_trust(session, lease.id, None)


def drop(session: Session, trust_id: str, now: datetime) -> None:
    """Let a manager revoke a trust."""
    event_queue.insert_finalizer(session, ids.new_id(), REVOKE, {"trust_id": trust_id}, now)


def orphans(runtime: Runtime) -> Iterator[Drift]:
    """Yield climate's trusts that belong to no lease and to no request in progress."""
    if runtime.trusts is None:
        return
    present = runtime.trusts.find_all()
    old = runtime.clock.now() - runtime.settings.hold_timeout - PATIENCE
    with runtime.database.read() as session:
        known = leases.all_trust_ids(session)
        leaving = {payload["trust_id"] for payload in event_queue.find_finalizers(session, REVOKE)}
    for trust in present:
        whose = f"user {trust.user_id} in project {trust.project_id}"
        if trust.id in leaving:
            yield Drift(f"a trust of {whose}, which no lease needs, is not revoked yet")
        elif trust.id not in known and trust.made_at < old:
            yield Drift(
                f"a trust of {whose}, made at {trust.made_at:%Y-%m-%d %H:%M:%S}, is of no lease",
                partial(runtime.trusts.revoke, trust.id),
            )


def revoke(runtime: Runtime, claim: Claim, payload: Mapping[str, Any]) -> None:
    """Revoke the trust that a claimed event names, or requeue the event."""
    now = runtime.clock.now()
    try:
        _trusts(runtime).revoke(payload["trust_id"])
    except Exception as error:  # noqa: BLE001 - the event is retried after any failure
        reason = str(error).replace(payload["trust_id"], "...")  # it may be part of a URL
        LOG.warning("a trust that no lease needs is not revoked yet: %s", reason)
        pause = pause_before(claim.attempt, runtime.settings.max_retries, runtime.rng)
        again = {"last_error": reason, "run_at": now + timedelta(seconds=pause)}
        runtime.database.write(lambda one: close(one, claim, now, EventStatus.UNDONE, **again))
    else:
        runtime.database.write(lambda one: _forget(one, claim))


def _forget(session: Session, claim: Claim) -> None:
    if event_queue.is_mine(session, claim.event_id, claim.owner, claim.attempt):
        event_queue.remove(session, [claim.event_id])


class TrustWatch:
    """Checks trusts at an interval that is longer than its caller's."""

    def __init__(self, runtime: Runtime) -> None:
        """Make the first check due at once."""
        self._runtime = runtime
        self._next: datetime | None = None

    def look(self) -> None:
        """Check the trusts if that is due."""
        now = self._runtime.clock.now()
        if self._next is None or now >= self._next:
            self._next = now + self._runtime.settings.trust_interval
            check_all(self._runtime)


def check_all(runtime: Runtime) -> None:
    """Check which trusts work, and store what has changed.

    If Keystone does not answer, nothing changes.
    """
    if runtime.trusts is None:
        return
    until = runtime.clock.now() + runtime.settings.trust_ahead
    with runtime.database.read() as session:
        known = leases.with_trusts(session, until)
    for lease_id, trust_id in known:
        try:
            runtime.trusts.check(trust_id)
            lost = None
        except DeadTrust as error:
            lost = str(error)
        except BackendUnavailable as error:
            LOG.warning("trusts are not checked: %s", error.message)
            return
        runtime.database.write(partial(_note, runtime, lease_id, trust_id, lost))
    if known:
        runtime.wakeup.hint()


def _note(
    runtime: Runtime, lease_id: str, trust_id: str, lost: str | None, session: Session
) -> None:
    """Store whether a trust is lost, and notify, unless the lease has another trust by now."""
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return
    if lease.trust_id != trust_id or (lost is None) == (lease.trust_lost is None):
        return
    now = runtime.clock.now()
    if lost is None:
        restore(session, lease, now)
        return
    LOG.warning("the trust of lease %s is lost", lease_id)
    degraded = replace(lease, trust_lost=lost, updated_at=now)
    leases.update(session, degraded)
    outbox.write(session, LOST, blazar_wire.payload(degraded, {"reason": lost}), now)
