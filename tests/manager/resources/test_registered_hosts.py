"""Managers register the hosts that the configuration lists."""

from climate.manager.resources.inventory_sync import synchronise
from climate.plugins.hosts.simulated import SimulatedCloud
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
