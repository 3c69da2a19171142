"""Shutdowns: tasks to switch off a host while no lease needs it. Pure.

Until a provisioner claims a shutdown, climate can cancel it. After that the host may be on its way
down, even if the provisioner died, so another provisioner must finish the task. climate prepares
the host only when the shutdown is over: no process powers on a host that another one powers off.
The functions of this module return the changed task.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from climate.core.errors import InvalidTransition, ShutdownClaimed, ShutdownOver
from climate.core.provisioning.task import Task


class ShutdownState(StrEnum):
    """The state of a shutdown. ``over`` means that the host can be used or prepared again."""

    WANTED = "wanted"
    ACCEPTED = "accepted"
    OFF = "off"
    WAKING = "waking"
    ON = "on"
    KEPT = "kept"
    OVER = "over"


#: Provisioners can claim shutdowns in these states.
OPEN = (ShutdownState.WANTED, ShutdownState.ACCEPTED, ShutdownState.WAKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown(Task[ShutdownState]):
    """A host to be switched off.

    A booking that begins in less than ``ahead`` seconds prevents that. The host is off since
    ``off_at``. A waking host is to be switched on again as a spare. ``kept`` means that climate or
    the provisioner gave the task up, for a ``reason``.
    """

    noun: ClassVar = "Shutdown"
    over_because: ClassVar = "{node} must have power"
    open_states: ClassVar = OPEN
    over_error: ClassVar = ShutdownOver
    claimed_error: ClassVar = ShutdownClaimed

    ahead: float
    off_at: datetime | None = None


def is_waking(task: Shutdown) -> bool:
    """Return whether the task is to switch the host on, not off."""
    return task.progress is ShutdownState.WAKING


def is_held(task: Shutdown, owner: str, now: datetime) -> bool:
    """Return whether ``owner`` has a claim on the task that has not expired."""
    return task.owner == owner and task.claimed_until is not None and task.claimed_until > now


def accept(task: Shutdown, owner: str, now: datetime, until: datetime) -> Shutdown:
    """Claim the task for ``owner``, or extend its claim; raises as ``check_claimable``."""
    task.check_claimable(owner, now)
    return replace(
        task,
        progress=ShutdownState.WAKING if is_waking(task) else ShutdownState.ACCEPTED,
        owner=owner,
        claimed_until=until,
        accepted_at=task.accepted_at or now,
        attempt=task.attempt + (not is_held(task, owner, now)),
    )


def off(task: Shutdown, owner: str, now: datetime) -> Shutdown:
    """Store that the host of an accepted task is off since ``now``; raises as ``check_owner``."""
    task.check_owner(owner)
    if task.progress is not ShutdownState.ACCEPTED:
        return task
    return replace(task, progress=ShutdownState.OFF, off_at=now, claimed_until=None)


def waking(task: Shutdown) -> Shutdown:
    """Store that the host must be switched on again; any provisioner can claim the task."""
    return replace(task, progress=ShutdownState.WAKING, owner=None)


def on(task: Shutdown, owner: str, now: datetime) -> Shutdown:
    """Store that a waking host has power; raises as ``check_owner``, and InvalidTransition."""
    if task.progress is ShutdownState.ON and task.owner == owner:
        return task
    task.check_owner(owner)
    if not is_waking(task):
        raise InvalidTransition(f"Shutdown {task.id} is {task.progress}, not waking")
    return replace(task, progress=ShutdownState.ON, over_at=now, claimed_until=None)


def kept(task: Shutdown, owner: str, reason: str) -> Shutdown:
    """Store that the provisioner gave the task up, and why; raises as ``check_owner``.

    A host that was to go off stays in use. A waking host is not usable, whether it is on or off.
    """
    task.check_owner(owner)
    is_begun = task.progress in {ShutdownState.ACCEPTED, ShutdownState.WAKING}
    return given_up(task, reason) if is_begun else task


def given_up(task: Shutdown, reason: str) -> Shutdown:
    """Store that the task was given up, and why, whichever provisioner has claimed it."""
    return replace(task, progress=ShutdownState.KEPT, reason=reason, claimed_until=None)


def released(task: Shutdown, owner: str) -> Shutdown:
    """Release the claim, so that any provisioner can claim the task; raises as ``check_owner``.

    The task keeps its state, as the host may already be on its way down.
    """
    task.check_owner(owner)
    if task.progress not in {ShutdownState.ACCEPTED, ShutdownState.WAKING}:
        return task
    return replace(task, owner=None, claimed_until=None)
