"""Cleaning: how long a bare-metal node is not available after a lease. Pure.

A measurement begins when the end of a lease begins. It ends when the cloud reports the node as
available again. The cloud also reports since when, so a late report does not spoil a measurement.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum, auto

#: The property of a host with its hardware class, by which climate learns cleaning times.
RESOURCE_CLASS = "resource_class"
# A node that is not available for so long waits for an operator.
_GIVEN_UP = timedelta(days=2)


class NodeState(StrEnum):
    """What the cloud does with a bare-metal node."""

    AVAILABLE = auto()
    CLEANING = auto()
    IN_USE = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Report:
    """What the cloud reports about a bare-metal node: its state, and since when it has it."""

    state: NodeState
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A measurement of a node after the lease ``lease_id``, whose end began at ``began_at``.

    ``seen_at`` is when the node was last seen in cleaning (None: not yet).
    """

    resource_id: int
    lease_id: str
    resource_class: str
    began_at: datetime
    seen_at: datetime | None = None


class Unmeasured(Enum):
    """What to do with a measurement that has no result.

    - WAIT: the node still has its server.
    - SEEN: the node is in cleaning.
    - DISCARD: there is nothing to measure, or the cleaning failed.
    """

    WAIT = auto()
    SEEN = auto()
    DISCARD = auto()


def judge(cleaning: Cleaning, report: Report | None, now: datetime) -> float | Unmeasured:
    """Return the duration of a cleaning in seconds, or what to do if there is none.

    ``report`` is the present report of the cloud (None: it has none). If a new server already uses
    the node, climate did not see when the node became available. Then the duration is that until
    climate last saw the node in cleaning. Without it, short cleanings would be overlooked exactly
    when the time between two leases is too short.
    """
    began = cleaning.began_at
    if report is None or (report.since <= began and report.state is not NodeState.AVAILABLE):
        return Unmeasured.WAIT if now - began < _GIVEN_UP else Unmeasured.DISCARD
    if report.state is NodeState.CLEANING:
        return Unmeasured.SEEN if now - began < _GIVEN_UP else Unmeasured.DISCARD
    ended = report.since if report.state is NodeState.AVAILABLE else cleaning.seen_at
    if report.state is NodeState.FAILED or ended is None or ended <= began:
        return Unmeasured.DISCARD
    return (ended - began).total_seconds()
