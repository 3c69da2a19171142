"""Tasks of provisioners: what preparations and shutdowns of hosts have in common. Pure.

A provisioner is a program that powers hosts on and off. It claims a task for a limited time, and
names itself in each report. If another provisioner has claimed the task in the meantime, climate
rejects the report. So only one provisioner acts on a host. If a provisioner dies, its claim
expires, and another provisioner can claim the task. Reports are idempotent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from climate.core.errors import Conflict, InvalidTransition

S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Generic[S]):
    """A provisioner's report on the progress of a task.

    ``owner`` is the name of the provisioner's process. A report with the state ``accepted`` claims
    the task, or extends the claim, for the time ``claim``. Two fields are used only for
    preparations: ``seconds`` maps each phase to its duration; ``cold`` means that the host was off
    at first. climate learns lead times only from cold hosts.
    """

    state: S
    owner: str
    claim: timedelta = timedelta(minutes=2)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cold: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[S]):
    """A task for a provisioner on one host.

    ``owner`` is the provisioner that has claimed the task. ``attempt`` counts the claims, without
    their extensions. ``open_states`` are the states in which the task can be claimed. ``over_at``
    is when the task was over, because nothing was left to do (None: it is not over). ``progress``
    is the present state, or the last state before the task was over.
    """

    noun: ClassVar[str]
    over_because: ClassVar[str]
    open_states: ClassVar[tuple[StrEnum, ...]]
    over_error: ClassVar[type[Conflict]]
    claimed_error: ClassVar[type[Conflict]]

    id: str
    resource_id: int
    node: str
    hardware: str
    progress: S
    wanted_at: datetime
    owner: str | None = None
    claimed_until: datetime | None = None
    attempt: int = 0
    accepted_at: datetime | None = None
    over_at: datetime | None = None
    reason: str | None = None

    @property
    def state(self) -> S:
        """The state of the task: ``progress``, or ``over`` if ``over_at`` is set."""
        return self.progress if self.over_at is None else type(self.progress)("over")

    def check_claimable(self, owner: str, now: datetime) -> None:
        """Raise an error unless the provisioner ``owner`` can claim the task or extend its claim.

        Raises ``over_error`` if the task is over, ``claimed_error`` if another provisioner has a
        claim that has not expired, and InvalidTransition if the work was already done or given up.
        """
        self.check_not_over()
        if self.progress not in self.open_states:
            raise InvalidTransition(f"{self.noun} {self.id} is {self.progress} already")
        if self.owner not in {None, owner} and self.claimed_until and self.claimed_until > now:
            raise self._claimed()

    def check_owner(self, owner: str) -> None:
        """Raise an error unless ``owner`` is the provisioner that claimed the task last.

        Raises ``over_error`` if the task is over, and otherwise ``claimed_error`` if another
        provisioner has claimed the task, or none has.
        """
        self.check_not_over()
        if self.owner != owner:
            raise self._claimed()

    def check_not_over(self) -> None:
        """Raise ``over_error`` if the task is over."""
        if self.over_at is not None:
            because = self.over_because.format(node=self.node)
            raise self.over_error(f"{self.noun} {self.id} is over: {because}")

    def _claimed(self) -> Conflict:
        if self.owner is None:
            return self.claimed_error(f"{self.noun} {self.id} is not claimed: accept it first")
        return self.claimed_error(f"{self.noun} {self.id} is claimed by {self.owner}")
