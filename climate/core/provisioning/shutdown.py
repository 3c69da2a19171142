"""Shutdowns: tasks for provisioners to switch off a host while no lease needs it. Pure.

If climate later needs the host as a spare (a free host for leases that start at once), the shutdown
becomes WAKING: a provisioner must switch the host on again, as the last step of the same task. If a
lease needs a host that is off, the shutdown is over, and a preparation switches the host on.

climate can cancel a shutdown until a provisioner claims it. After the claim, climate must assume
that the host is being switched off, even if the provisioner has died. So a provisioner must finish
the task, and climate prepares the host again only when the shutdown is over. This ensures that no
process switches a host on while another one switches it off. Functions that change a task return a
changed copy.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from climate.core.errors import InvalidTransition, ShutdownClaimed, ShutdownOver
from climate.core.provisioning.task import Task


class ShutdownState(StrEnum):
    """The state of a shutdown.

    WANTED: no provisioner has claimed it. ACCEPTED: a provisioner is switching the host off. OFF:
    the host is off. WAKING: the host must be switched on again. ON: the host is on again. KEPT:
    climate or the provisioner gave the task up. OVER: climate can use or prepare the host again.
    """

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
    """A task for a provisioner: switch a host off, and later perhaps on again.

    The task must not begin if a booking of the host begins in less than ``ahead`` seconds.
    ``off_at`` is when the host went off (None: not yet). ``reason`` says why the task was given up
    (state ``kept``).
    """

    noun: ClassVar = "Shutdown"
    over_because: ClassVar = "{node} must have power"
    open_states: ClassVar = OPEN
    over_error: ClassVar = ShutdownOver
    claimed_error: ClassVar = ShutdownClaimed

    ahead: float
    off_at: datetime | None = None


def is_waking(task: Shutdown) -> bool:
    """Return whether a provisioner must now switch the host on again."""
    return task.progress is ShutdownState.WAKING


def is_held(task: Shutdown, owner: str, now: datetime) -> bool:
    """Return whether the provisioner ``owner`` has a claim on the task that has not expired."""
    return task.owner == owner and task.claimed_until is not None and task.claimed_until > now


def accept(task: Shutdown, owner: str, now: datetime, until: datetime) -> Shutdown:
    """Return the task, claimed by the provisioner ``owner`` up to the time ``until``.

    If ``owner`` has a claim already, the claim is extended. Raises the errors of
    ``check_claimable``, for instance if another provisioner has a claim.
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
    """Return the task with the information that its host is off since ``now``.

    Nothing changes if the task is not ACCEPTED. Raises the errors of ``check_owner``.
    """
    task.check_owner(owner)
    if task.progress is not ShutdownState.ACCEPTED:
        return task
    return replace(task, progress=ShutdownState.OFF, off_at=now, claimed_until=None)


def waking(task: Shutdown) -> Shutdown:
    """Return the task as WAKING: any provisioner can claim it, to switch the host on again."""
    return replace(task, progress=ShutdownState.WAKING, owner=None)


def on(task: Shutdown, owner: str, now: datetime) -> Shutdown:
    """Return the task as ON and over since ``now``: its host is on again.

    If ``owner`` has reported this before, nothing changes. Raises InvalidTransition if the task is
    not WAKING: climate has not requested to switch the host on. Raises the errors of
    ``check_owner``.
    """
    if task.progress is ShutdownState.ON and task.owner == owner:
        return task
    task.check_owner(owner)
    if not is_waking(task):
        raise InvalidTransition(f"Shutdown {task.id} is {task.progress}, not waking")
    return replace(task, progress=ShutdownState.ON, over_at=now, claimed_until=None)


def kept(task: Shutdown, owner: str, reason: str) -> Shutdown:
    """Return the task as given up by the provisioner ``owner``, with the ``reason``.

    If the task was ACCEPTED, the host stays on, and climate can use it. If the task was WAKING, the
    host may be on or off, and climate cannot use it. In other states, nothing changes. Raises the
    errors of ``check_owner``.
    """
    task.check_owner(owner)
    is_begun = task.progress in {ShutdownState.ACCEPTED, ShutdownState.WAKING}
    return given_up(task, reason) if is_begun else task


def given_up(task: Shutdown, reason: str) -> Shutdown:
    """Return the task as given up, by climate or a provisioner, with the ``reason``."""
    return replace(task, progress=ShutdownState.KEPT, reason=reason, claimed_until=None)


def released(task: Shutdown, owner: str) -> Shutdown:
    """Return the task without the claim of ``owner``, so that any provisioner can claim it.

    The task keeps its state, because the host may already be shutting down. Raises the errors of
    ``check_owner``.
    """
    task.check_owner(owner)
    if task.progress not in {ShutdownState.ACCEPTED, ShutdownState.WAKING}:
        return task
    return replace(task, owner=None, claimed_until=None)
