"""Preparations: tasks for provisioners to make a host ready for a lease in time. Pure.

A provisioner is a program that powers hosts on and off. Each function returns the changed task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from climate.core.errors import PreparationClaimed, PreparationOver
from climate.core.provisioning.task import Task


class PreparationState(StrEnum):
    """The state of a preparation.

    WANTED: no provisioner has claimed it. ACCEPTED: a provisioner has claimed it. READY: the host
    is ready. FAILED: the provisioner could not make the host ready. OVER: no lease needs the host
    any more.
    """

    WANTED = "wanted"
    ACCEPTED = "accepted"
    READY = "ready"
    FAILED = "failed"
    OVER = "over"


#: Provisioners can claim preparations in these states.
OPEN = (PreparationState.WANTED, PreparationState.ACCEPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation(Task[PreparationState]):
    """A task for a provisioner: make a host ready for a lease by ``needed_at``.

    ``lead`` is the planned duration in seconds. If the host is not ready at ``replace_at``, climate
    tries to give the lease another host (None: climate does not try this). ``seconds`` contains the
    measured duration of each phase, such as ``{"boot": 95.0}``.
    """

    noun: ClassVar = "Preparation"
    over_because: ClassVar = "no lease needs {node} any more"
    open_states: ClassVar = OPEN
    over_error: ClassVar = PreparationOver
    claimed_error: ClassVar = PreparationClaimed

    lease_id: str
    reservation_id: str
    needed_at: datetime
    lead: float
    replace_at: datetime | None = None
    ready_at: datetime | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def early(self) -> float | None:
        """How many seconds before ``needed_at`` the host was ready; negative if it was late."""
        return None if self.ready_at is None else (self.needed_at - self.ready_at).total_seconds()

    @property
    def was_ready(self) -> bool:
        """Whether the host was ready when it was needed."""
        return self.ready_at is not None and self.ready_at <= self.needed_at


def accept(task: Preparation, owner: str, now: datetime, until: datetime) -> Preparation:
    """Return the task, claimed by the provisioner ``owner`` up to the time ``until``.

    If ``owner`` has a claim already, the claim is extended. Raises the errors of
    ``check_claimable``, for instance if another provisioner has a claim.
    """
    task.check_claimable(owner, now)
    return replace(
        task,
        progress=PreparationState.ACCEPTED,
        owner=owner,
        claimed_until=until,
        accepted_at=task.accepted_at or now,
        attempt=task.attempt + (task.owner != owner),
    )


def ready(
    task: Preparation, owner: str, now: datetime, seconds: Mapping[str, float]
) -> Preparation:
    """Return the task with the information that its host became ready at ``now``.

    If the task is READY already, nothing changes. ``seconds`` contains the duration of each phase.
    Raises the errors of ``check_owner``, for instance if another provisioner has the claim.
    """
    task.check_owner(owner)
    if task.progress is PreparationState.READY:
        return task
    done = replace(task, progress=PreparationState.READY, claimed_until=None)
    return replace(done, ready_at=now, seconds=dict(seconds), reason=None)


def failed(task: Preparation, owner: str, seconds: Mapping[str, float], reason: str) -> Preparation:
    """Return the task as failed, with the ``reason``; nothing changes if it is not ACCEPTED.

    ``seconds`` contains the duration of each phase. Raises the errors of ``check_owner``, for
    instance if another provisioner has the claim.
    """
    task.check_owner(owner)
    if task.progress is not PreparationState.ACCEPTED:
        return task
    done = replace(task, progress=PreparationState.FAILED, claimed_until=None)
    return replace(done, seconds=dict(seconds), reason=reason)


def released(task: Preparation, owner: str) -> Preparation:
    """Return the task without the claim of ``owner``, so that any provisioner can claim it.

    Raises the errors of ``check_owner``, for instance if another provisioner has the claim.
    """
    task.check_owner(owner)
    if task.progress is not PreparationState.ACCEPTED:
        return task
    return replace(task, progress=PreparationState.WANTED, owner=None, claimed_until=None)
