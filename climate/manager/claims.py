"""A claim on an event, and its fence: what is stored in its name only while it holds."""

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import NotFound
from climate.core.lease import Lease
from climate.core.lifecycle import EventStatus
from climate.db import events, leases

LOG = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0


@dataclass(frozen=True, slots=True)
class Claim:
    """An event that this manager may run, as long as owner and attempt are still in its row.

    One that outlives its lease has no lease id.
    """

    event_id: str
    lease_id: str | None
    owner: str
    attempt: int


def lease_of(session: Session, claim: Claim) -> Lease | None:
    """Lock and return the lease of a claim; None if the claim is not ours any more."""
    if claim.lease_id is None:
        return None
    try:
        lease = leases.get(session, claim.lease_id, lock=True)
    except NotFound:
        return None
    if not events.is_mine(session, claim.event_id, claim.owner, claim.attempt):
        LOG.warning("event %s of lease %s was taken over", claim.event_id, claim.lease_id)
        return None
    return lease


def close(
    session: Session,
    claim: Claim,
    now: datetime,
    status: EventStatus,
    **outcome: Any,
) -> bool:
    """Store a claim's outcome; False if the claim is not ours any more."""
    return events.finish(
        session, claim.event_id, claim.owner, claim.attempt, now, status=status.value, **outcome
    )


def give_way(session: Session, claim: Claim, **again: datetime) -> None:
    """Undo the claim as if it had not been made, perhaps to a later ``run_at``."""
    events.give_way(session, claim.event_id, claim.owner, claim.attempt, **again)


def pause_before(attempt: int) -> float:
    """Return the seconds between attempt ``attempt`` (from 1) and the next: 1, 2, 4 ... 300."""
    return float(min(_FIRST_PAUSE * 2 ** min(attempt - 1, 16), _LONGEST_PAUSE))
