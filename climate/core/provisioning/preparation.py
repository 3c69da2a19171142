"""Preparations: tasks for provisioners to get a host ready for a lease in time. Pure.

The functions of this module return the changed task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from climate.core.errors import PreparationClaimed, PreparationOver
from climate.core.provisioning.task import Task


class PreparationState(StrEnum):
    """The state of a preparation. ``over`` means that no lease needs the host any more."""

    WANTED = "wanted"
    ACCEPTED = "accepted"
    READY = "ready"
    FAILED = "failed"
    OVER = "over"


#: Provisioners can claim preparations in these states.
OPEN = (PreparationState.WANTED, PreparationState.ACCEPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation(Task[PreparationState]):
    """A task to get a host ready for a lease by ``needed_at``.

    ``lead`` is the planned duration in seconds. If the host is not ready at ``replace_at``, climate
    replaces it by another host. If there is no time for that, ``replace_at`` is None. ``seconds``
    is the measured duration of each phase.
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
        """The seconds from ``ready_at`` to ``needed_at``; negative if the host was late."""
        return None if self.ready_at is None else (self.needed_at - self.ready_at).total_seconds()

    @property
    def was_ready(self) -> bool:
        """Whether the host was ready when it was needed."""
        return self.ready_at is not None and self.ready_at <= self.needed_at


def accept(task: Preparation, owner: str, now: datetime, until: datetime) -> Preparation:
    """Claim the task for the provisioner ``owner`` until ``until``, or extend its claim.

    Raises the errors of ``check_claimable``.
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
    """Store that the host became ready at ``now``, unless an earlier report has said so.

    Raises the errors of ``check_owner``.
    """
    task.check_owner(owner)
    if task.progress is PreparationState.READY:
        return task
    done = replace(task, progress=PreparationState.READY, claimed_until=None)
    return replace(done, ready_at=now, seconds=dict(seconds), reason=None)


def failed(task: Preparation, owner: str, seconds: Mapping[str, float], reason: str) -> Preparation:
    """Store that an accepted preparation failed, and the ``reason``.

    Raises the errors of ``check_owner``.
    """
    task.check_owner(owner)
    if task.progress is not PreparationState.ACCEPTED:
        return task
    done = replace(task, progress=PreparationState.FAILED, claimed_until=None)
    return replace(done, seconds=dict(seconds), reason=reason)


def released(task: Preparation, owner: str) -> Preparation:
    """Release the claim of ``owner``, so that any provisioner can claim the task.

    Raises the errors of ``check_owner``.
    """
    task.check_owner(owner)
    if task.progress is not PreparationState.ACCEPTED:
        return task
    return replace(task, progress=PreparationState.WANTED, owner=None, claimed_until=None)
