"""The stacks that are marked as ours, against leases. Looks only; repairs are offered."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial

from climate.clock import Clock
from climate.plugins.base import Difference, Expected
from climate.plugins.stacks import Stack, StackCloud

# One that is younger may be of a lease that is just being asked for.
_NEW = timedelta(hours=1)


def differences(
    cloud: StackCloud, clock: Clock, expected: Callable[[], Expected]
) -> Iterator[Difference]:
    """Name every stack of no lease."""
    now = clock.now()
    marked = [one for one in cloud.marked() if not _is_new(one, now)]
    told = expected()
    known = {*told.known, *told.awaited}
    for stack in marked:
        if stack.reservation_id not in known:
            yield Difference(
                f"stack {stack.id} ({stack.name}) of project {stack.project_id} is marked as that"
                f" of {stack.reservation_id}, which no lease has",
                partial(cloud.delete, stack),
                reservation_id=stack.reservation_id,
            )


def _is_new(stack: Stack, now: datetime) -> bool:
    return stack.created_at is not None and now - stack.created_at < _NEW
