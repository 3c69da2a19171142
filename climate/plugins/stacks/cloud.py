"""Stack describes a stack in the cloud; StackCloud is the interface of the drivers for stacks.

There is a driver for Heat, and a simulated one. The source of a stack is its template, with files,
parameters and environment. climate's tags on a stack name the reservation and the *plan*: an id of
the source that climate deployed last.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from climate.core.lease.model import Lease
from climate.plugins.base import Requester
from climate.plugins.stacks.contents import Flavors
from climate.plugins.stacks.template import Source

# The tags of climate's stacks: the mark, the reservation's id, and the plan deployed last.
MARK = "climate"
_RESERVATION = "climate-reservation:"
_PLAN = "climate-plan:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of Heat.

    ``status`` is Heat's status, such as UPDATE_FAILED; ``reason`` explains it. ``updated_at`` is
    when the last update began (None: the stack has never been updated).
    """

    id: str
    name: str
    project_id: str
    status: str
    reason: str = ""
    tags: Collection[str] = field(default=())
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def is_busy(self) -> bool:
        """Whether Heat is working on the stack."""
        return self.status.endswith("_IN_PROGRESS")

    @property
    def has_failed(self) -> bool:
        """Whether Heat's last action failed."""
        return self.status.endswith("_FAILED")

    @property
    def action(self) -> str:
        """Heat's last action on the stack: CREATE, UPDATE, SUSPEND and so on."""
        return self.status.partition("_")[0]

    @property
    def plan(self) -> str | None:
        """The plan in the stack's tags: an id of the source that climate deployed last.

        None if climate has deployed nothing, or if an update without tags has removed the tag.
        """
        return _tagged(self.tags, _PLAN)

    @property
    def reservation_id(self) -> str | None:
        """The id of the reservation in the stack's tags; None if there is none."""
        return _tagged(self.tags, _RESERVATION)

    def tags_for(self, reservation_id: str | None, plan: str | None) -> list[str]:
        """Return the users' tags of the stack, followed by new tags of climate.

        climate's tags name the reservation, and the plan: an id of the source that climate deploys.
        If an argument is None, the result has no tag for it.
        """
        others = [tag for tag in self.tags if tag != MARK and not tag.startswith(f"{MARK}-")]
        return [*others, *tags(reservation_id, plan)]


def tags(reservation_id: str | None, plan: str | None = None) -> list[str]:
    """Return climate's tags for a stack: climate's mark, the reservation's id, and the plan.

    The plan is an id of the source that climate deploys. If an argument is None, the result has no
    tag for it.
    """
    marks = [MARK, f"{_RESERVATION}{reservation_id}"] if reservation_id else []
    return [*marks, *([f"{_PLAN}{plan}"] if plan else [])]


def _tagged(tags: Collection[str], prefix: str) -> str | None:
    values = (tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))
    return next(values, None)


class StackCloud(Protocol):
    """Interface of a driver for a cloud in which climate reserves stacks.

    Methods with a ``requester`` use the requester's token if the service requires it. ``update``
    uses the trust of the lease. All other methods use climate's own user.
    """

    #: Whether acting as a user requires a trust.
    knows_users: bool

    def flavors(self, requester: Requester) -> Flavors:
        """Return the flavors that the requester can use."""

    def networks(self, requester: Requester, names: Collection[str]) -> Mapping[str, str]:
        """Return the ids of external networks, by the names or ids in ``names``.

        Each key of the result is an item of ``names``. Items that name no external network are left
        out.
        """

    def preview(self, requester: Requester, source: Source) -> Sequence[Any]:
        """Return the resources that a stack with this source would have.

        The resources of nested stacks are in nested lists. Raises InvalidInput if the cloud rejects
        the source.
        """

    def source(self, requester: Requester, stack_id: str) -> Source:
        """Return the source of an existing stack in the requester's project.

        Raises InvalidInput if there is no such stack.
        """

    def current(self, stack: Stack) -> Source:
        """Return the present source of a stack, which users may have changed."""

    def make_empty(self, requester: Requester, name: str, reservation_id: str) -> Stack:
        """Return the empty stack that is marked with a reservation; create it if it is missing.

        Raises Conflict if the project has another stack with this name.
        """

    def find(self, project_id: str, stack_id: str) -> Stack | None:
        """Return the project's stack with this id; None if it does not exist (any more)."""

    def find_marked(self, project_id: str, reservation_id: str) -> Stack | None:
        """Return the stack that is marked with a reservation; None if there is none."""

    def update(self, lease: Lease, stack: Stack, source: Source, tags: Sequence[str]) -> None:
        """Begin to update ``stack`` to the template in ``source``; ``tags`` replace its tags."""

    def resume(self, stack: Stack) -> None:
        """Begin to resume the stack."""

    def suspend(self, stack: Stack) -> None:
        """Begin to suspend the stack."""

    def delete(self, stack: Stack) -> None:
        """Begin to delete the stack; do nothing if it does not exist."""

    def marked(self) -> Sequence[Stack]:
        """Return the stacks of all projects that are marked with a reservation."""
