"""Trusts: with a Keystone trust, a manager acts in the cloud as the user of a lease.

When a user creates or changes a lease, climate creates the trust with the user's token, before it
confirms the lease or stores the change. Managers revoke a trust that no lease needs any more, and
retry until that succeeds. The revocation is a finalizer: an event without a lease.

Keystone does not notify climate when a user is disabled or loses a role. So a manager periodically
requests a token with the trust of each lease that runs or starts soon. If Keystone refuses, the
trust is *lost*. The API shows the lease as degraded until the trust works again, or until the
user's next change of the lease replaces the trust. climate sends one notification when a trust is
lost, and one when it works again or is replaced.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import BackendUnavailable, Conflict, Forbidden, NotFound
from climate.core.lease import blazar_wire
from climate.core.lease.model import Lease
from climate.core.lease.schedule import PATIENCE, RELENTLESS, REVOKE
from climate.core.notifications import event_type
from climate.db.engine import ids
from climate.db.events import queue as event_queue
from climate.db.leases import leases
from climate.db.notifications import outbox
from climate.manager.claims import Claim, remove, retry_later
from climate.manager.process.runtime import Runtime
from climate.plugins.base import Drift, Requester
from climate.plugins.openstack.trusts import DeadTrust, Trusts

LOG = logging.getLogger(__name__)


def make(runtime: Runtime, requester: Requester) -> str:
    """Create a Keystone trust with the requester's token and return its id.

    With a trust, climate can act in the cloud as this user. Raises Conflict, Forbidden,
    BackendUnavailable.
    """
    check_possible(runtime, requester)
    return _configured(runtime.trusts).make(requester, runtime.clock.now())


def check_possible(runtime: Runtime, requester: Requester) -> str:
    """Raise Conflict if climate cannot create a Keystone trust; otherwise return the text "none".

    A dry run calls this function instead of ``make``, because this function does not call Keystone.
    The dry run stores the text "none" in place of a trust id, and then rolls back.
    """
    if requester.token is None:
        raise Conflict(
            "climate must act in the cloud as you, which requires a Keystone token: it accepts"
            " tokens only if [api] auth_strategy is keystone"
        )
    _configured(runtime.trusts)
    return "none"


def _configured(trusts: Trusts | None) -> Trusts:
    if trusts is None:
        raise Conflict("[service_user] does not configure climate's own user in the cloud")
    return trusts


def check_owner(requester: Requester, lease: Lease) -> None:
    """Raise Forbidden unless the lease belongs to the requester's user and project."""
    if not is_owner(requester, lease):
        raise Forbidden(
            f"Only user {lease.user_id} of project {lease.project_id} can request this, because"
            " climate must act in the cloud as that user"
        )


def is_owner(requester: Requester, lease: Lease) -> bool:
    """Return whether the lease belongs to the requester's user and project."""
    return (requester.user_id, requester.project_id) == (lease.user_id, lease.project_id)


def replace_trust(session: Session, lease: Lease, trust_id: str, now: datetime) -> Lease:
    """Store the id of a new Keystone trust of a lease, and return the changed lease.

    The caller has locked the lease. If the lease had an old trust, the function stores an event
    that revokes the old trust. If the old trust was lost (no longer worked), managers retry a
    failed start or end of the lease now.
    """
    if lease.trust_id is not None:
        schedule_revocation(session, lease.trust_id, now)
    leases.set_trust(session, lease.id, trust_id)
    changed = replace(lease, trust_id=trust_id)
    return changed if lease.trust_lost is None else restore(session, changed, now)


def restore(session: Session, lease: Lease, now: datetime) -> Lease:
    """Store that a lease's trust works again, and notify; return the changed lease.

    If the start or end of the lease failed and waits for a retry, the retry becomes due now.
    """
    restored = replace(lease, trust_lost=None, updated_at=now)
    leases.update(session, restored)
    outbox.write(session, event_type.LEASE_TRUST_RESTORED, blazar_wire.payload(restored), now)
    event_queue.run_now(session, lease.id, RELENTLESS, now)
    return restored


def release_trust(session: Session, lease: Lease, now: datetime) -> None:
    """If a lease that is over has a trust, store an event that revokes it.

    The caller has locked the lease.
    """
    if lease.trust_id is not None:
        schedule_revocation(session, lease.trust_id, now)
        leases.set_trust(session, lease.id, None)


def schedule_revocation(session: Session, trust_id: str, now: datetime) -> None:
    """Store an event, due now, with which a manager revokes a Keystone trust.

    The event belongs to no lease, so it also runs after the lease is deleted.
    """
    event_queue.insert_finalizer(session, ids.new_id(), REVOKE, {"trust_id": trust_id}, now)


def orphans(runtime: Runtime) -> Iterator[Drift]:
    """Yield a Drift for each Keystone trust of climate that no lease or request needs.

    A Drift is a difference between leases and the cloud. The repair of this Drift is to revoke the
    trust. If an event will revoke the trust anyway, the Drift has no repair.
    """
    if runtime.trusts is None:
        return
    present = runtime.trusts.find_all()
    oldest_request = runtime.clock.now() - runtime.settings.hold_timeout - PATIENCE
    with runtime.database.read() as session:
        in_use = leases.all_trust_ids(session)
        revocations = event_queue.find_finalizers(session, REVOKE)
    superfluous = {payload["trust_id"] for payload in revocations}
    for trust in present:
        owner = f"user {trust.user_id} in project {trust.project_id}"
        if trust.id in superfluous:
            yield Drift(f"a trust of {owner}, which no lease needs, is not revoked yet")
        elif trust.id not in in_use and trust.made_at < oldest_request:
            yield Drift(
                f"a trust of {owner}, made at {trust.made_at:%Y-%m-%d %H:%M:%S}, is of no lease",
                partial(runtime.trusts.revoke, trust.id),
            )


def revoke(runtime: Runtime, claim: Claim, payload: Mapping[str, Any]) -> None:
    """Run an event that revokes the Keystone trust with the id ``payload["trust_id"]``.

    This manager has claimed the event. If Keystone fails, store when to retry.
    """
    try:
        _configured(runtime.trusts).revoke(payload["trust_id"])
    except Exception as error:  # noqa: BLE001 - the event is retried after any failure
        # The error may contain the request's URL, and so the trust's id.
        reason = str(error).replace(payload["trust_id"], "...")
        LOG.warning("a trust that no lease needs is not revoked yet, will try again: %s", reason)
        retry_later(runtime, claim, reason)
    else:
        runtime.database.write(lambda session: remove(session, claim))


class TrustWatch:
    """Checks the Keystone trusts of leases, but at most once per ``trust_interval``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._next: datetime | None = None

    def check_if_due(self) -> None:
        """Check the trusts of leases if the last check was at least ``trust_interval`` ago.

        The first call always checks the trusts.
        """
        now = self._runtime.clock.now()
        if self._next is None or now >= self._next:
            self._next = now + self._runtime.settings.trust_interval
            check_all(self._runtime)


def check_all(runtime: Runtime) -> None:
    """Check with Keystone the trusts of all leases that run or start soon.

    Store for each lease whether its trust is lost or works again. If Keystone does not answer, the
    function returns, and the remaining trusts are checked by the next call.
    """
    if runtime.trusts is None:
        return
    until = runtime.clock.now() + runtime.settings.trust_ahead
    with runtime.database.read() as session:
        trust_ids = leases.with_trusts(session, until)
    for lease_id, trust_id in trust_ids:
        try:
            runtime.trusts.check(trust_id)
            lost = None
        except DeadTrust as error:
            lost = str(error)
        except BackendUnavailable as error:
            LOG.warning("cannot check the trusts of leases, will try again: %s", error.message)
            return
        now = runtime.clock.now()
        runtime.database.write(partial(_store_state, lease_id, trust_id, lost, now))
    if trust_ids:
        runtime.wakeup.hint()


def _store_state(
    lease_id: str, trust_id: str, lost: str | None, now: datetime, session: Session
) -> None:
    """Store whether the trust of a lease works, and write a notification if this changed.

    ``lost`` is the reason why the trust does not work (None: it works). Does nothing if the lease
    has another trust by now, or if the stored state is the same.
    """
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return
    if lease.trust_id != trust_id or (lost is None) == (lease.trust_lost is None):
        return
    if lost is None:
        restore(session, lease, now)
        return
    LOG.warning("the trust of lease %s is lost: %s", lease_id, lost)
    degraded = replace(lease, trust_lost=lost, updated_at=now)
    leases.update(session, degraded)
    payload = blazar_wire.payload(degraded, {"reason": lost})
    outbox.write(session, event_type.LEASE_TRUST_LOST, payload, now)
