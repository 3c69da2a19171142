"""Leases that wait for capacity."""

from typing import Any

from climate.core.lease.wait_list import WaitListRules
from climate.manager.wait_list.passes import place_waiting
from tests.support.service import Story, hosts


def waiting(count: int, minutes: float, **fields: Any) -> dict[str, Any]:
    """Return a request to wait for ``count`` hosts for ``minutes``."""
    return {
        "name": "lease",
        "start": "asap",
        "duration": int(minutes * 60),
        "reservations": [hosts(count, count)],
        "wait": {},
        **fields,
    }


def settle(story: Story) -> None:
    """Run events and passes until nothing is left to do now."""
    while story.run() + place_waiting(story.runtime):
        pass


def wait_for(
    story: Story, count: int, minutes: float, *, token: str | None = None, **fields: Any
) -> str:
    """Request ``count`` hosts for ``minutes``, and return the id of the lease."""
    made = story.ok("POST", "/v2/leases", waiting(count, minutes, **fields), token=token)
    settle(story)
    return str(made["id"])


def rules(story: Story, **changes: Any) -> None:
    """Set the rules of the wait list."""
    object.__setattr__(story.runtime.settings, "wait_list", WaitListRules(**changes))


def only_this_order(story: Story) -> None:
    """Give no promise, and let no lease overtake another."""
    rules(story, promises=0, backfills=False)
