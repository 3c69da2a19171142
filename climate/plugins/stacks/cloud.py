"""Stacks as the plugin sees them; a StackCloud (Heat, or the simulated one) has them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from climate.core.lease.model import Lease
from climate.plugins.base import Asker
from climate.plugins.stacks.contents import Flavors
from climate.plugins.stacks.template import Source

# What our stacks have as tags: whose they are, and what was deployed to them.
MARK = "climate"
_RESERVATION = "climate-reservation:"
_PLAN = "climate-plan:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack; ``status`` is in Heat's words, such as UPDATE_FAILED, and ``reason`` why."""

    id: str
    name: str
    project_id: str
    status: str
    reason: str = ""
    tags: Collection[str] = field(default=())
    created_at: datetime | None = None

    @property
    def is_busy(self) -> bool:
        """Whether Heat is at it."""
        return self.status.endswith("_IN_PROGRESS")

    @property
    def has_failed(self) -> bool:
        """Whether what Heat did last went wrong."""
        return self.status.endswith("_FAILED")

    @property
    def action(self) -> str:
        """What Heat did last: CREATE, UPDATE, SUSPEND."""
        return self.status.partition("_")[0]

    @property
    def plan(self) -> str | None:
        """The fingerprint of what was deployed to it last, if we did that."""
        return _tagged(self.tags, _PLAN)

    @property
    def reservation_id(self) -> str | None:
        """The reservation that it is of."""
        return _tagged(self.tags, _RESERVATION)

    def tags_for(self, reservation_id: str | None, plan: str | None) -> list[str]:
        """Return its tags as they are to be; those of its owner stay."""
        theirs = [one for one in self.tags if one != MARK and not one.startswith(f"{MARK}-")]
        return [*theirs, *tags(reservation_id, plan)]


def tags(reservation_id: str | None, plan: str | None = None) -> list[str]:
    """Return the tags of a reservation's stack."""
    mine = [MARK, f"{_RESERVATION}{reservation_id}"] if reservation_id else []
    return [*mine, *([f"{_PLAN}{plan}"] if plan else [])]


def _tagged(tags: Collection[str], prefix: str) -> str | None:
    found = (one.removeprefix(prefix) for one in tags if one.startswith(prefix))
    return next(found, None)


class StackCloud(Protocol):
    """What must be known and done about stacks, however a cloud does it.

    What is asked for with an ``asker`` is done with that one's own rights, what is done for a
    ``lease`` with its trust, and the rest with ours.
    """

    #: Whether it tells users apart, so that only a trust lets us act as one.
    knows_users: bool

    def flavors(self, asker: Asker) -> Flavors:
        """Return the flavors that the asker may use."""

    def networks(self, asker: Asker, names: Collection[str]) -> Mapping[str, str]:
        """Return the ids of networks, of those that there are, by their name or id."""

    def preview(self, asker: Asker, source: Source) -> Sequence[Any]:
        """Return the resources that a stack would have, nested.

        Raises InvalidInput with the cloud's own words if there can be no such stack.
        """

    def source(self, asker: Asker, stack_id: str) -> Source:
        """Return what a stack of the asker's project was made from; raises InvalidInput."""

    def make_empty(self, asker: Asker, name: str, reservation_id: str) -> Stack:
        """Return a stack of nothing, marked as the reservation's; raises Conflict if taken.

        If there is one of the reservation's already, it is that.
        """

    def find(self, project_id: str, stack_id: str) -> Stack | None:
        """Return a stack, None if it is gone."""

    def find_marked(self, project_id: str, reservation_id: str) -> Stack | None:
        """Return the stack that is marked as a reservation's."""

    def update(self, lease: Lease, stack: Stack, source: Source, tags: Sequence[str]) -> None:
        """Have the cloud begin to make the stack what the source says."""

    def resume(self, stack: Stack) -> None:
        """Have the cloud begin to resume it."""

    def suspend(self, stack: Stack) -> None:
        """Have the cloud begin to suspend it."""

    def delete(self, stack: Stack) -> None:
        """Have the cloud begin to delete it; fine if it is gone."""

    def marked(self) -> Sequence[Stack]:
        """Return all stacks of all projects that are marked as reservations'."""
