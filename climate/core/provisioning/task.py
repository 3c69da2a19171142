"""Tasks of provisioners: what preparations and shutdowns have in common. Pure.

A provisioner claims a task for a limited time and names itself in each report. If another
provisioner has claimed the task since, the report changes nothing. So exactly one provisioner acts
on a host. When it dies, its claim expires, and another provisioner takes over. Reports are
idempotent.
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
    """A provisioner's report: ``owner`` names the process, ``claim`` is how long its claim lasts.

    Only for preparations: ``seconds`` is the duration of each phase, and ``cold`` says that the
    host had no power at the beginning, so that climate can learn from the duration.
    """

    state: S
    owner: str
    claim: timedelta = timedelta(minutes=2)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cold: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[S]):
    """Work on one host. From ``over_at`` on, the state is over; ``progress`` keeps the result."""

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
        """The progress, or ``over`` once ``over_at`` is set."""
        return self.progress if self.over_at is None else type(self.progress)("over")

    def check_claimable(self, owner: str, now: datetime) -> None:
        """Raise unless ``owner`` can claim the task, or extend its claim.

        Raises ``over_error``, ``claimed_error`` while another owner's claim lasts, or
        InvalidTransition if the state is not open.
        """
        self.check_not_over()
        if self.progress not in self.open_states:
            raise InvalidTransition(f"{self.noun} {self.id} is {self.progress} already")
        if self.owner not in {None, owner} and self.claimed_until and self.claimed_until > now:
            raise self._claimed()

    def check_owner(self, owner: str) -> None:
        """Raise ``over_error`` if the task is over.

        Raise ``claimed_error`` unless ``owner`` claimed the task last.
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
