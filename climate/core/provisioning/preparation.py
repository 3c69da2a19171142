"""Preparations: one host of one reservation that is to be ready in time, and who is at it. Pure.

A preparation is claimed for a while; whoever reports names itself. If somebody else has it by then,
the report changes nothing: of several who can reach a host exactly one acts, and when that one dies
its claim ends and another takes over. Every report may be sent twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from climate.core.errors import InvalidTransition, PreparationClaimed, PreparationOver


class PreparationState(StrEnum):
    """Where a preparation stands; it is over when nobody needs the host any more."""

    WANTED = "wanted"
    ACCEPTED = "accepted"
    READY = "ready"
    FAILED = "failed"
    OVER = "over"


#: Somebody is to get these ready, or is at it.
OPEN = (PreparationState.WANTED, PreparationState.ACCEPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A host that is to be ready by ``needed_at``.

    ``lead`` is how many seconds were to be allowed for it. From ``replace_at`` on, if it is not
    ready, another host is taken instead; None where there is no time for another. ``seconds`` are
    what was measured, by phase. It is over since ``over_at``; what came of it stays.
    """

    id: str
    resource_id: int
    node: str
    hardware: str
    lease_id: str
    reservation_id: str
    progress: PreparationState
    wanted_at: datetime
    needed_at: datetime
    lead: float
    replace_at: datetime | None = None
    owner: str | None = None
    claimed_until: datetime | None = None
    attempt: int = 0
    accepted_at: datetime | None = None
    ready_at: datetime | None = None
    over_at: datetime | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None

    @property
    def state(self) -> PreparationState:
        """Where it stands."""
        return self.progress if self.over_at is None else PreparationState.OVER

    @property
    def early(self) -> float | None:
        """How many seconds before it was needed it was ready; negative: after."""
        return None if self.ready_at is None else (self.needed_at - self.ready_at).total_seconds()

    @property
    def was_ready(self) -> bool:
        """Whether it was ready when it was needed."""
        return self.ready_at is not None and self.ready_at <= self.needed_at


def accept(mine: Preparation, owner: str, now: datetime, until: datetime) -> Preparation:
    """Return it claimed by ``owner``, or claimed for longer.

    Raises PreparationOver, PreparationClaimed while somebody else has it, and InvalidTransition if
    it is done.
    """
    _check_open(mine)
    if mine.progress not in OPEN:
        raise InvalidTransition(f"Preparation {mine.id} is {mine.progress} already")
    if mine.owner not in {None, owner} and mine.claimed_until and mine.claimed_until > now:
        raise _claimed(mine)
    return replace(
        mine,
        progress=PreparationState.ACCEPTED,
        owner=owner,
        claimed_until=until,
        accepted_at=mine.accepted_at or now,
        attempt=mine.attempt + (mine.owner != owner),
    )


def ready(
    mine: Preparation, owner: str, now: datetime, seconds: Mapping[str, float]
) -> Preparation:
    """Return it ready since ``now``; as it is, if it was reported before. Raises as ``_check``."""
    _check(mine, owner)
    if mine.progress is PreparationState.READY:
        return mine
    done = replace(mine, progress=PreparationState.READY, claimed_until=None)
    return replace(done, ready_at=now, seconds=dict(seconds), reason=None)


def failed(mine: Preparation, owner: str, seconds: Mapping[str, float], reason: str) -> Preparation:
    """Return it failed; as it is, if it was reported before. Raises as ``_check``."""
    _check(mine, owner)
    if mine.progress is not PreparationState.ACCEPTED:
        return mine
    done = replace(mine, progress=PreparationState.FAILED, claimed_until=None)
    return replace(done, seconds=dict(seconds), reason=reason)


def released(mine: Preparation, owner: str) -> Preparation:
    """Return it given back, for anybody to claim. Raises as ``_check``."""
    _check(mine, owner)
    if mine.progress is not PreparationState.ACCEPTED:
        return mine
    return replace(mine, progress=PreparationState.WANTED, owner=None, claimed_until=None)


def _check(mine: Preparation, owner: str) -> None:
    """Raise PreparationOver, or PreparationClaimed unless ``owner`` was the last to claim it."""
    _check_open(mine)
    if mine.owner != owner:
        raise _claimed(mine)


def _check_open(mine: Preparation) -> None:
    if mine.over_at is not None:
        raise PreparationOver(f"Preparation {mine.id} is over: nobody needs {mine.node} for it")


def _claimed(mine: Preparation) -> PreparationClaimed:
    if mine.owner is None:
        return PreparationClaimed(f"Preparation {mine.id} is nobody's: accept it first")
    return PreparationClaimed(f"Preparation {mine.id} is {mine.owner}'s")
