"""A stack that no lease has may be of one that is just being asked for, as long as it is young."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from climate.clock import ManualClock
from climate.plugins.base import ExpectedState
from climate.plugins.stacks.cloud import Stack, StackCloud
from climate.plugins.stacks.plugin import find_drifts

NOON = datetime(2030, 1, 15, 12, tzinfo=UTC)


class Cloud:
    """Has one stack, made at noon."""

    def marked(self) -> Collection[Stack]:
        values: dict[str, Any] = dict.fromkeys(Stack.__dataclass_fields__, "x")
        return [Stack(**{**values, "created_at": NOON})]

    def delete(self, stack: Stack) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(("minutes", "found"), [(59, 0), (61, 1)])
def test_it_is_named_when_it_is_an_hour_old_by_the_clock(minutes: int, found: int) -> None:
    clock = ManualClock(NOON + timedelta(minutes=minutes))
    expected = ExpectedState(registered=(), running=(), changing=())
    cloud = cast("StackCloud", Cloud())
    assert len(list(find_drifts(cloud, clock, lambda: expected))) == found
