"""A plug-in call that hangs delays only the leases that need its resources."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from climate.cmd.bootstrap import Manager, make_manager
from climate.core.lease.model import Granted, Lease, Reservation
from climate.core.lease.schedule import START
from climate.plugins.fencing import Fenced
from climate.plugins.hosts.plugin import HostPlugin
from tests.conftest import MakeStory
from tests.support.process import eventually
from tests.support.service import Story


class Hanging:
    """Hosts of which some hang until a test releases them."""

    def __init__(self, plugin: HostPlugin) -> None:
        self._start = plugin.start
        self.hosts: set[str] = set()
        self.let_go = threading.Event()
        self.calls = 0
        self.fenced = 0

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        if self.hosts.isdisjoint(item.external_id for item in resources):
            return self._start(lease, reservation, resources)
        self.calls += 1
        assert self.let_go.wait(60)
        try:
            return self._start(lease, reservation, resources)
        except Fenced:
            self.fenced += 1
            raise


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    made = make_story(manager__workers=4, manager__call_timeout=30, manager__poll_interval=0.1)
    made.register(8)
    return made


@pytest.fixture
def hanging(story: Story, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    plugin = story.runtime.plugins["physical:host"]
    assert isinstance(plugin, HostPlugin)
    made = Hanging(plugin)
    monkeypatch.setattr(plugin, "start", made.start)
    return made


@pytest.fixture
def manager(story: Story, hanging: Hanging) -> Iterator[Manager]:
    made = make_manager(story.conf, story.runtime)
    made.start()
    yield made
    hanging.let_go.set()
    made.stop()


def is_in(story: Story, lease: Mapping[str, Any], status: str) -> None:
    eventually(lambda: story.lease(lease["id"])["status"] == status, f"the lease is {status}")


def status_of(story: Story, lease: Mapping[str, Any], kind: str) -> str:
    found = story.lease(lease["id"])["events"]
    return next(str(item["status"]) for item in found if item["event_type"] == kind)


def name_of(story: Story, lease: Mapping[str, Any]) -> str:
    [number] = story.hosts_of(lease["id"])
    return f"sim-{number}"


def test_a_lease_of_other_hosts_starts_meanwhile(
    story: Story, hanging: Hanging, manager: Manager
) -> None:
    stuck = [story.reserve(60, 120) for _ in range(2)]
    hanging.hosts |= {name_of(story, lease) for lease in stuck}
    story.clock.advance(3600)
    eventually(lambda: hanging.calls == 2, "two starts hang")
    others = [
        story.ok("POST", "/v1/leases", story.lease_body(0, 60), token=f"u:p{n}")["lease"]
        for n in range(4)
    ]
    for lease in others:
        is_in(story, lease, "ACTIVE")
    assert {story.lease(lease["id"])["status"] for lease in stuck} == {"STARTING"}
    hanging.let_go.set()
    for lease in stuck:
        is_in(story, lease, "ACTIVE")


def test_other_events_of_the_batch_run_on_another_worker(
    story: Story, hanging: Hanging, manager: Manager
) -> None:
    is_in(story, story.reserve(0, 60), "ACTIVE")  # so it is known that starts are quick
    before, stuck, behind = (story.reserve(60, 120) for _ in range(3))
    hanging.hosts.add(name_of(story, stuck))
    story.clock.advance(3600)
    eventually(lambda: hanging.calls == 1, "a start hangs")
    assert any(len(item.claims) > 1 for item in manager.dispatcher.pool.running), "taken together"
    story.clock.advance(2)
    for lease in (before, behind):
        is_in(story, lease, "ACTIVE")
    assert story.lease(stuck["id"])["status"] == "STARTING"
    hanging.let_go.set()
    is_in(story, stuck, "ACTIVE")


def test_a_call_past_its_time_limit_fails_and_changes_nothing_more(
    story: Story, hanging: Hanging, manager: Manager
) -> None:
    lease = story.reserve(60, 600)
    host = name_of(story, lease)
    hanging.hosts.add(host)
    story.clock.advance(3600)
    eventually(lambda: hanging.calls == 1, "the start hangs")
    story.clock.advance(20)  # less than a claim lasts: it is kept all along
    manager.dispatcher.upkeep.renew()
    story.clock.advance(11)
    eventually(lambda: not manager.dispatcher.pool.running, "the worker is free")
    eventually(lambda: status_of(story, lease, START) == "UNDONE", "the attempt has failed")
    hanging.let_go.set()
    eventually(lambda: hanging.fenced == 1, "what was given up found itself fenced out")
    assert story.cloud.effects() == []
    story.clock.advance(2)
    is_in(story, lease, "ACTIVE")


def test_a_lease_deleted_during_its_start_is_reclaimed_after_the_start(
    story: Story, hanging: Hanging, manager: Manager
) -> None:
    lease = story.reserve(60, 120)
    hanging.hosts.add(name_of(story, lease))
    story.clock.advance(3600)
    eventually(lambda: hanging.calls == 1, "the start hangs")
    assert story.call("DELETE", f"/v1/leases/{lease['id']}").status_code < 300
    assert story.lease(lease["id"])["status"] == "DELETING"
    hanging.let_go.set()
    eventually(
        lambda: story.call("GET", f"/v1/leases/{lease['id']}").status_code == 404,
        "the lease is gone",
    )
    assert [effect["effect"] for effect in story.cloud.effects()] == [
        "ensure_pool",
        "add_host",
        "remove_host",
        "delete_pool",
    ]
    assert story.event_types(lease["id"])[-3:] == [
        "lease.event.start_lease",
        "lease.event.end_lease",
        "lease.delete",
    ]
