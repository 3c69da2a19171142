"""Shutdowns: a host that is switched off while nobody needs it, and who is at it. Pure.

One is claimed as a preparation is: of several who can reach a host exactly one acts, and another
takes over when that one dies. Until it is claimed it can be given up; from then on the host may be
on its way down, whatever became of who claimed it, so somebody must see it through. Only then can
the host be got ready: nobody switches on what another is switching off.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from climate.core.errors import InvalidTransition, ShutdownClaimed, ShutdownOver


class ShutdownState(StrEnum):
    """Where a shutdown stands; it is over when the host can be used or got ready again."""

    WANTED = "wanted"
    ACCEPTED = "accepted"
    OFF = "off"
    WAKING = "waking"
    ON = "on"
    KEPT = "kept"
    OVER = "over"


#: Somebody is to switch these off, or on again, or is at it.
OPEN = (ShutdownState.WANTED, ShutdownState.ACCEPTED, ShutdownState.WAKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """A host that is to be without power.

    A booking that begins less than ``ahead`` seconds from now forbids it. It is without power
    since ``off_at``. One that is waking is to be switched on again, to be a spare. One that was
    kept as it was, on or off, was so for a ``reason``. It is over since ``over_at``; what came of
    it stays.
    """

    id: str
    resource_id: int
    node: str
    hardware: str
    progress: ShutdownState
    wanted_at: datetime
    ahead: float
    owner: str | None = None
    claimed_until: datetime | None = None
    attempt: int = 0
    accepted_at: datetime | None = None
    off_at: datetime | None = None
    over_at: datetime | None = None
    reason: str | None = None

    @property
    def state(self) -> ShutdownState:
        """Where it stands."""
        return self.progress if self.over_at is None else ShutdownState.OVER


def is_waking(mine: Shutdown) -> bool:
    """Tell whether the host is to be switched on, not off."""
    return mine.progress is ShutdownState.WAKING


def is_held(mine: Shutdown, owner: str, now: datetime) -> bool:
    """Tell whether ``owner`` has claimed it, and long enough to go on without another look."""
    return mine.owner == owner and mine.claimed_until is not None and mine.claimed_until > now


def accept(mine: Shutdown, owner: str, now: datetime, until: datetime) -> Shutdown:
    """Return it claimed by ``owner``, or claimed for longer.

    Raises ShutdownOver, ShutdownClaimed while somebody else has it, and InvalidTransition if it is
    done. Each claim that is not just kept is another ``attempt``.
    """
    _check_there(mine)
    if mine.progress not in OPEN:
        raise InvalidTransition(f"Shutdown {mine.id} is {mine.progress} already")
    if mine.owner not in {None, owner} and mine.claimed_until and mine.claimed_until > now:
        raise _claimed(mine)
    return replace(
        mine,
        progress=ShutdownState.WAKING if is_waking(mine) else ShutdownState.ACCEPTED,
        owner=owner,
        claimed_until=until,
        accepted_at=mine.accepted_at or now,
        attempt=mine.attempt + (not is_held(mine, owner, now)),
    )


def off(mine: Shutdown, owner: str, now: datetime) -> Shutdown:
    """Return it without power since ``now``; as it is, if that was reported before.

    Raises ShutdownOver, and ShutdownClaimed unless ``owner`` was the last to claim it.
    """
    _check(mine, owner)
    if mine.progress is not ShutdownState.ACCEPTED:
        return mine
    return replace(mine, progress=ShutdownState.OFF, off_at=now, claimed_until=None)


def waking(mine: Shutdown) -> Shutdown:
    """Return it to be switched on again, for anybody to claim."""
    return replace(mine, progress=ShutdownState.WAKING, owner=None)


def on(mine: Shutdown, owner: str, now: datetime) -> Shutdown:
    """Return it over, as the host that was waking can be used. Raises as ``off``."""
    if mine.progress is ShutdownState.ON and mine.owner == owner:
        return mine
    _check(mine, owner)
    if not is_waking(mine):
        raise InvalidTransition(f"Shutdown {mine.id} is {mine.progress}, not waking")
    return replace(mine, progress=ShutdownState.ON, over_at=now, claimed_until=None)


def kept(mine: Shutdown, owner: str, reason: str) -> Shutdown:
    """Return it kept as it was, as nothing came of it; as it is, if it is done. Raises as ``off``.

    A host that was to go off stays on, one that was waking is off and cannot be had.
    """
    _check(mine, owner)
    is_begun = mine.progress in {ShutdownState.ACCEPTED, ShutdownState.WAKING}
    return given_up(mine, reason) if is_begun else mine


def given_up(mine: Shutdown, reason: str) -> Shutdown:
    """Return it kept as it was, whoever had it."""
    return replace(mine, progress=ShutdownState.KEPT, reason=reason, claimed_until=None)


def released(mine: Shutdown, owner: str) -> Shutdown:
    """Return it for anybody to claim; it stays begun, as something may have been done.

    Raises as ``off``.
    """
    _check(mine, owner)
    if mine.progress not in {ShutdownState.ACCEPTED, ShutdownState.WAKING}:
        return mine
    return replace(mine, owner=None, claimed_until=None)


def _check(mine: Shutdown, owner: str) -> None:
    _check_there(mine)
    if mine.owner != owner:
        raise _claimed(mine)


def _check_there(mine: Shutdown) -> None:
    if mine.over_at is not None:
        raise ShutdownOver(f"Shutdown {mine.id} is over: {mine.node} is to have power")


def _claimed(mine: Shutdown) -> ShutdownClaimed:
    if mine.owner is None:
        return ShutdownClaimed(f"Shutdown {mine.id} is nobody's: accept it first")
    return ShutdownClaimed(f"Shutdown {mine.id} is {mine.owner}'s")
