"""Managers register the hosts that the configuration lists."""

from dataclasses import replace

import pytest

from climate.manager.resources.inventory_sync import synchronise
from climate.plugins.hosts.simulated import SimulatedCloud, host
from tests.conftest import MakeStory
from tests.support.service import Story

HOSTS = "/v1/os-hosts"


def names(story: Story) -> list[str]:
    return sorted(host["service_name"] for host in story.ok("GET", HOSTS)["hosts"])


def test_a_sync_registers_the_listed_hosts(make_story: MakeStory) -> None:
    story = make_story(simulated__hosts=12, **{"physical:host__register": ["sim-2", "sim-1?"]})
    assert names(story) == []
    for _ in range(2):
        synchronise(story.runtime)
        assert names(story) == ["sim-10", "sim-11", "sim-12", "sim-2"]
    assert story.reserve(60, 120)["status"] == "PENDING"


def test_a_host_with_servers_is_registered_when_it_is_empty(make_story: MakeStory) -> None:
    story = make_story(simulated__hosts=2, **{"physical:host__register": ["*"]})
    cloud = story.runtime.plugins["physical:host"].cloud  # type: ignore[attr-defined]
    assert isinstance(cloud, SimulatedCloud)
    cloud.boot_server("sim-1", "mine")
    synchronise(story.runtime)
    assert names(story) == ["sim-2"]
    cloud.act("delete_servers", host="sim-1")
    synchronise(story.runtime)
    assert names(story) == ["sim-1", "sim-2"]


@pytest.mark.parametrize(("before", "after"), [(None, "svc"), ("n1", "n1")])
def test_a_service_and_its_nodes_are_never_registered_both(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch, before: str | None, after: str
) -> None:
    found = []
    for number, id_ in enumerate(["svc/n1", "svc/n2", "svc"], 1):
        each, name = host(number, ()), id_.rpartition("/")[2]
        named = {**each.properties, "hypervisor_hostname": name, "service_name": name}
        found.append(replace(each, external_id=id_, properties=named))
    monkeypatch.setattr(SimulatedCloud, "hosts", lambda _self: found)
    story = make_story(**{"physical:host__register": ["n1", "svc"]})
    if before:
        story.ok("POST", HOSTS, {"name": before})
    synchronise(story.runtime)
    assert names(story) == [after]
