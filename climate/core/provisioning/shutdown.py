"""Shutdowns: tasks for provisioners to switch off a host while no lease needs it. Pure.

Until a provisioner claims a shutdown, climate can cancel it. After that, the provisioner may
already be switching the host off, even if it has died since, so another provisioner must finish the
task. climate prepares the host again only when the shutdown is over. So no process switches a host
on while another one switches it off. The functions of this module return the changed task.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from climate.core.errors import InvalidTransition, ShutdownClaimed, ShutdownOver
from climate.core.provisioning.task import Task


class ShutdownState(StrEnum):
    """The state of a shutdown. ``over`` means that climate can use or prepare the host again."""

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
    """A task to switch off a host, and later perhaps to switch it on again.

    If a booking of the host begins in less than ``ahead`` seconds, the task must not begin. The
    host is off since ``off_at``. In the state ``waking``, the host is to be switched on again as a
    spare. In the state ``kept``, climate or the provisioner gave the task up, for a ``reason``.
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
    """Return whether the provisioner ``owner`` has a claim on the task that has not expired."""
    return task.owner == owner and task.claimed_until is not None and task.claimed_until > now


def accept(task: Shutdown, owner: str, now: datetime, until: datetime) -> Shutdown:
    """Claim the task for the provisioner ``owner`` until ``until``, or extend its claim.

    Raises the errors of ``check_claimable``.
    """
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
    """Store that the host of an accepted task is off since ``now``.

    Raises the errors of ``check_owner``.
    """
    task.check_owner(owner)
    if task.progress is not ShutdownState.ACCEPTED:
        return task
    return replace(task, progress=ShutdownState.OFF, off_at=now, claimed_until=None)


def waking(task: Shutdown) -> Shutdown:
    """Store that the host must be switched on again; any provisioner can claim the task."""
    return replace(task, progress=ShutdownState.WAKING, owner=None)


def on(task: Shutdown, owner: str, now: datetime) -> Shutdown:
    """Store that a host that was to be switched on again has power.

    Raises the errors of ``check_owner``. Raises InvalidTransition if the host was not to be
    switched on.
    """
    if task.progress is ShutdownState.ON and task.owner == owner:
        return task
    task.check_owner(owner)
    if not is_waking(task):
        raise InvalidTransition(f"Shutdown {task.id} is {task.progress}, not waking")
    return replace(task, progress=ShutdownState.ON, over_at=now, claimed_until=None)


def kept(task: Shutdown, owner: str, reason: str) -> Shutdown:
    """Store that the provisioner gave the task up, and why.

    If the host was to be switched off, it stays in use. If it was to be switched on again, it is
    not usable, whether it is on or off. Raises the errors of ``check_owner``.
    """
    task.check_owner(owner)
    is_begun = task.progress in {ShutdownState.ACCEPTED, ShutdownState.WAKING}
    return given_up(task, reason) if is_begun else task


def given_up(task: Shutdown, reason: str) -> Shutdown:
    """Store that climate or a provisioner gave the task up, and why."""
    return replace(task, progress=ShutdownState.KEPT, reason=reason, claimed_until=None)


def released(task: Shutdown, owner: str) -> Shutdown:
    """Release the claim of ``owner``, so that any provisioner can claim the task.

    The task keeps its state, as the host may already be shutting down. Raises the errors of
    ``check_owner``.
    """
    task.check_owner(owner)
    if task.progress not in {ShutdownState.ACCEPTED, ShutdownState.WAKING}:
        return task
    return replace(task, owner=None, claimed_until=None)
