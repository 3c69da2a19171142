"""The audit ignores young stacks: their lease may not be stored yet."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from climate.plugins.base import ExpectedState
from climate.plugins.stacks.cloud import Stack, StackCloud
from climate.plugins.stacks.plugin import find_drifts
from tests.support.cases import each_case
from tests.support.clock import ManualClock

NOON = datetime(2030, 1, 15, 12, tzinfo=UTC)


class Cloud:
    """Has one stack, created at noon."""

    def marked(self) -> Collection[Stack]:
        values: dict[str, Any] = dict.fromkeys(Stack.__dataclass_fields__, "x")
        return [Stack(**{**values, "created_at": NOON})]

    def delete(self, stack: Stack) -> None:
        raise NotImplementedError


@each_case("minutes, count", [(59, 0), (61, 1)])
def test_the_audit_reports_an_unknown_stack_after_an_hour(minutes: int, count: int) -> None:
    clock = ManualClock(NOON + timedelta(minutes=minutes))
    expected = ExpectedState(registered=(), running=(), changing=())
    cloud = cast("StackCloud", Cloud())
    assert len(list(find_drifts(cloud, clock, lambda: expected))) == count
