"""Malformed templates are rejected, and the audit ignores young stacks."""

from collections.abc import Collection
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from oslo_config.cfg import ConfigOpts

from climate.core.errors import InvalidInput
from climate.plugins.base import ExpectedState, Requester
from climate.plugins.stacks.audit import find_drifts
from climate.plugins.stacks.cloud import Stack, StackCloud
from climate.plugins.stacks.plugin import StackPlugin
from climate.plugins.stacks.schema import StackSchema
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


SERVER = {"type": "OS::Nova::Server", "properties": {"flavor": "m1.small"}}


def group(count: Any, member: Any = SERVER) -> dict[str, Any]:
    properties = {"count": count, "resource_def": member}
    return {"type": "OS::Heat::ResourceGroup", "properties": properties}


def volume(**properties: Any) -> dict[str, Any]:
    return {"type": "OS::Cinder::Volume", "properties": properties}


def server(**properties: Any) -> dict[str, Any]:
    return {"type": "OS::Nova::Server", "properties": {"flavor": "m1.small", **properties}}


def disk(size: Any) -> dict[str, Any]:
    return server(block_device_mapping_v2=[{"volume_size": size}])


@each_case(
    "resources, environment, reason",
    [
        ({"a": SERVER}, {}, None),
        ({"a": group(2, group("3"))}, {}, None),
        ({"a": SERVER}, {"resource_registry": ["x"]}, None),  # Heat rejects this, without servers
        ([], {}, None),
        (["a"], {}, "cannot be read"),
        ({"a": {"type": 1.5}}, {}, "has no type"),
        ({"a": {"type": ["x"]}}, {}, "has no type"),
        ({"a": {"type": "OS::Nova::Server", "properties": 7}}, {}, "properties are no object"),
        ({"a": group("x")}, {}, "cannot be read"),
        ({"a": group(None)}, {}, "cannot be read"),
        ({"a": group(10**30)}, {}, "cannot be read"),
        ({"a": group(10**6)}, {}, "more than 10000 resources"),
        ({"a": group(10**3, group(10**3, group(10**3)))}, {}, "more than 10000 resources"),
        ({"a": volume(size="x")}, {}, "has size x"),
        ({"a": volume(size=[1])}, {}, "has size [1]"),
        ({"a": volume(size=float("1e400"))}, {}, "has size inf"),
        ({"a": disk({})}, {}, "has size {}"),
        ({"a": volume(size=1, volume_type={"": ""})}, {}, "has volume type {'': ''}"),
        ({"a": volume(size=1, metadata="x")}, {}, "has no type"),
        ({"a": server(block_device_mapping_v2=7)}, {}, None),
        ({"a": server(block_device_mapping_v2=["x"])}, {}, None),
    ],
)
def test_rejects_a_malformed_template(
    conf: ConfigOpts, resources: Any, environment: dict[str, Any], reason: str | None
) -> None:
    plugin = StackPlugin(conf, turn=lambda _: nullcontext(), clock=ManualClock(NOON))
    template = {"heat_template_version": "2016-10-14", "resources": resources}
    params = StackSchema().load({"template": template, "environment": environment})
    if reason is None:
        plugin.look_up(params, Requester("alice", "lab"))
        return
    with pytest.raises(InvalidInput) as rejection:
        plugin.look_up(params, Requester("alice", "lab"))
    assert reason in rejection.value.message
