"""A trust that died is found before it is needed, and its lease's owner is told; once.

Keystone says nothing when a role is taken or a user disabled, so it is asked for a token by each
trust of leases that run or start soon. A lease whose trust is lost shows as degraded, and why;
when it works again, or its owner gives it another by a change of the lease, that is over.
"""

import logging
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from climate.core import wire
from climate.core.errors import BackendUnavailable, NotFound
from climate.db import leases, outbox
from climate.db import trusts as stored_trusts
from climate.manager.leases import trusts
from climate.manager.runtime import Runtime
from climate.plugins.trusts import DeadTrust

LOG = logging.getLogger(__name__)

LOST = "lease.trust_lost"


class TrustWatch:
    """Looks at trusts now and then, less often than it is asked to."""

    def __init__(self, runtime: Runtime) -> None:
        """Prepare; the first look is not put off."""
        self._runtime = runtime
        self._next: datetime | None = None

    def look(self) -> None:
        """Look, unless it is too soon."""
        now = self._runtime.clock.now()
        if self._next is None or now >= self._next:
            self._next = now + self._runtime.settings.trust_interval
            look(self._runtime)


def look(runtime: Runtime) -> None:
    """Find out which trusts work, and write down what has changed.

    If Keystone does not answer nothing is known, and nothing changes.
    """
    if runtime.trusts is None:
        return
    until = runtime.clock.now() + runtime.settings.trust_ahead
    with runtime.database.read() as session:
        concerned = stored_trusts.of_leases(session, until)
    for lease_id, trust_id in concerned:
        try:
            runtime.trusts.check(trust_id)
            lost = None
        except DeadTrust as error:
            lost = str(error)
        except BackendUnavailable as error:
            LOG.warning("trusts are not looked at: %s", error.message)
            return
        runtime.database.write(partial(_note, runtime, lease_id, trust_id, lost))
    if concerned:
        runtime.wakeup.hint()


def _note(
    runtime: Runtime, lease_id: str, trust_id: str, lost: str | None, session: Session
) -> None:
    """Store whether a trust is lost, and tell, unless it is known or the lease has another."""
    try:
        lease = leases.get(session, lease_id, lock=True)
    except NotFound:
        return
    if lease.trust_id != trust_id or (lost is None) == (lease.trust_lost is None):
        return
    now = runtime.clock.now()
    if lost is None:
        trusts.restore(session, lease, now)
        return
    LOG.warning("the trust of lease %s is lost", lease_id)
    found = replace(lease, trust_lost=lost, updated_at=now)
    leases.update(session, found)
    outbox.write(session, LOST, wire.payload(found, {"reason": lost}), now)
