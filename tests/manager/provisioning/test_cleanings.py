"""climate learns how long bare-metal nodes are cleaned, and books them for this time."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from climate.core.provisioning.cleaning import RESOURCE_CLASS, Cleaning, NodeState, Report
from climate.db.provisioning import cleanings
from climate.db.tables.leases import AllocationRow
from climate.manager.resources.inventory_sync import synchronise
from climate.plugins.base import DiscoveredResource, NotYet
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.conftest import MakeStory
from tests.support.service import Story, hosts

OPTIONS = {"DEFAULT__cleaning_time": 30, "cleaning__learned": True, "cleaning__longest": 2400}
SMALL = hosts(resource_properties=["==", "$resource_class", "small"])
VIRTUAL = hosts(resource_properties=["==", "$resource_class", "null"])


class Metal:
    """A cloud in which sim-1 and sim-2 are nodes of the class small, and sim-3 is none."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.report: Report | None = None
        self._hosts = SimulatedCloud.hosts

    def hosts(self, cloud: SimulatedCloud) -> list[DiscoveredResource]:
        return [self._as_node(host) for host in self._hosts(cloud)]

    def _as_node(self, host: DiscoveredResource) -> DiscoveredResource:
        if host.external_id == "sim-3":
            return host
        named = {**host.properties, RESOURCE_CLASS: "small"}
        return replace(host, properties=named, provision=self.report)

    def becomes(self, state: NodeState, since: datetime | None = None) -> None:
        """Report this state of all nodes, and let a manager see it."""
        self.report = Report(state, since or self.story.clock.now())
        synchronise(self.story.runtime)

    def durations(self) -> list[float]:
        with self.story.runtime.database.read() as session:
            return list(cleanings.times(session).get("small", []))

    def unfinished(self) -> list[Cleaning]:
        with self.story.runtime.database.read() as session:
            return cleanings.find_all(session)

    def reserve(self, start: float, end: float, reservation: dict[str, Any]) -> dict[str, Any]:
        body = self.story.asking(start, end, reservations=[reservation])
        return dict(self.story.ok("POST", "/v2/leases", body))

    def cleaning_after(self, lease: dict[str, Any]) -> float:
        """Return for how many seconds after a lease its host is booked."""
        (reservation,) = lease["reservations"]
        of_lease = AllocationRow.reservation_id == reservation["id"]
        with self.story.runtime.database.read() as session:
            (until,) = session.scalars(sa.select(AllocationRow.busy_until).where(of_lease))
        return float((until - datetime.fromisoformat(lease["end"])).total_seconds())

    def use(self, minutes: float) -> None:
        """Let a lease end whose node is available ``minutes`` later."""
        lease = self.reserve(0, 60, SMALL)
        self.story.run()
        self.becomes(NodeState.IN_USE)
        self.story.at(60)
        assert self.story.lease(lease["id"])["status"] == "TERMINATED"
        self.story.clock.advance(60)
        self.becomes(NodeState.CLEANING)
        self.story.clock.advance(minutes * 60)
        self.becomes(NodeState.AVAILABLE, self.story.clock.now() - timedelta(minutes=1))


@pytest.fixture
def metal(make_story_everywhere: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Metal:
    made = Metal(story := make_story_everywhere(**OPTIONS))
    find = made.hosts
    monkeypatch.setattr(SimulatedCloud, "hosts", lambda cloud: find(cloud))  # noqa: PLW0108 - binds
    story.register(3)
    return made


def test_a_measured_cleaning_keeps_nodes_of_the_class_booked(metal: Metal) -> None:
    before = metal.reserve(3000, 3060, SMALL)
    assert metal.cleaning_after(before) == 1800
    metal.use(10)
    assert metal.durations() == [600]
    learned = metal.cleaning_after(metal.reserve(600, 660, SMALL))
    assert 600 < learned < 1800
    assert metal.cleaning_after(before) == 1800, "what is booked stays"
    assert metal.cleaning_after(metal.reserve(600, 660, VIRTUAL)) == 1800
    assert metal.cleaning_after(metal.reserve(700, 760, hosts())) == 1800, "any host"


def test_a_learned_time_is_bounded(metal: Metal) -> None:
    metal.use(300)
    assert metal.cleaning_after(metal.reserve(60, 120, SMALL)) == 2400


def test_a_lease_that_ends_early_keeps_its_learned_time(metal: Metal) -> None:
    metal.use(10)
    lease = metal.reserve(0, 600, SMALL)
    learned = metal.cleaning_after(lease)
    metal.story.at(60)
    metal.story.ok("PATCH", f"/v2/leases/{lease['id']}", {"end": "now"})
    ended = metal.story.ok("GET", f"/v2/leases/{lease['id']}")
    assert metal.cleaning_after(ended) == learned


def test_a_change_of_the_dates_learns_again_and_one_of_the_end_does_not(metal: Metal) -> None:
    lease = metal.reserve(6000, 6060, SMALL)
    path = f"/v2/leases/{lease['id']}"
    metal.use(10)
    end = metal.story.moment(5990)
    longer = metal.story.ok("PATCH", path, {"end": end})
    assert metal.cleaning_after(longer) == 1800
    moved = metal.story.ok("PATCH", path, {"start": metal.story.moment(5900)})
    assert metal.cleaning_after(moved) < 1800


@pytest.mark.parametrize(
    ("error", "is_kept"), [(NotYet("servers remain"), True), (RuntimeError("Nova is down"), False)]
)
def test_a_measurement_begins_with_the_first_attempt_and_none_may_fail(
    metal: Metal, monkeypatch: pytest.MonkeyPatch, error: Exception, is_kept: bool
) -> None:
    plugin = metal.story.runtime.plugins["physical:host"]
    end, errors = plugin.end, [error]

    def failing(*given: Any) -> object:
        if errors:
            raise errors.pop()
        return end(*given)

    monkeypatch.setattr(plugin, "end", failing)
    lease = metal.reserve(0, 60, SMALL)
    metal.story.run()
    began = metal.story.clock.now() + timedelta(hours=1)
    metal.story.at(60)
    metal.story.until(began + timedelta(minutes=2), step=1)
    assert metal.story.lease(lease["id"])["status"] == "TERMINATED"
    assert [each.began_at for each in metal.unfinished()] == ([began] if is_kept else [])
