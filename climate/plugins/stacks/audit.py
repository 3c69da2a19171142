"""Finds stacks that climate created for leases that are over or unknown."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from climate.clock import Clock
from climate.plugins.base import Drift, ExpectedState
from climate.plugins.stacks.cloud import Stack, StackCloud

# A stack that is younger may belong to a lease that climate is just creating.
_NEW = timedelta(hours=1)


def find_drifts(
    cloud: StackCloud, clock: Clock, expected: Callable[[], ExpectedState]
) -> Iterator[Drift]:
    """Yield a drift for each stack that climate marked for a reservation that is over or unknown.

    Stacks younger than ``_NEW`` are left out, because climate may just be creating their lease.
    """
    now = clock.now()
    marked = [stack for stack in cloud.marked() if not _is_new(stack, now)]
    state = expected()
    known = {*state.known, *state.awaited}
    for stack in marked:
        if stack.reservation_id not in known:
            yield Drift(
                f"stack {stack.id} ({stack.name}) of project {stack.project_id} is marked with"
                f" reservation {stack.reservation_id}, which no lease has",
                partial(cloud.delete, stack),
                reservation_id=stack.reservation_id,
            )


def _is_new(stack: Stack, now: datetime) -> bool:
    return stack.created_at is not None and now - stack.created_at < _NEW
