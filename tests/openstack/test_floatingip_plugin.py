"""The floating IP plugin keeps the contract on a real Neutron, even if a call is interrupted."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from oslo_config.cfg import ConfigOpts

from climate.config import registry as config_registry
from climate.core.lease.model import Reservation
from climate.plugins.base import ExpectedState, ResourcePlugin
from climate.plugins.networking.addressing import Subnet
from climate.plugins.networking.floatingip import FloatingipPlugin
from climate.plugins.networking.neutron_floatingips import NeutronFloatingips
from climate.plugins.openstack.neutron import Neutron
from tests.openstack import settings
from tests.openstack.accounts import Account
from tests.openstack.addresses import SPARE, Public, temporary_network
from tests.plugins.contract import Interrupted, PluginContract, lease, resources
from tests.support.process import write_config

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]


class FragileNeutron(Neutron):
    """The real Neutron, which fails when a test says so."""

    left: int | None = None

    def send(self, method: str, *arguments: Any, **options: Any) -> Any:
        if method != "GET":
            if self.left == 0:
                raise Interrupted(method)
            if self.left is not None:
                self.left -= 1
        return super().send(method, *arguments, **options)


class OurFloatingips(NeutronFloatingips):
    """The floating IPs of the tests' own network."""

    def __init__(self, conf: ConfigOpts, network_id: str) -> None:
        super().__init__(conf)
        self.neutron: FragileNeutron = FragileNeutron(conf, "floatingips")
        self._network_id = network_id

    def subnets(self) -> Sequence[Subnet]:
        return [subnet for subnet in super().subnets() if subnet.network_id == self._network_id]


@pytest.fixture(scope="module")
def public(administrator: Account) -> Iterator[Public]:
    with temporary_network(administrator.cloud, administrator.project_id) as made:
        yield made


def ours(plugin: ResourcePlugin) -> OurFloatingips:
    assert isinstance(plugin, FloatingipPlugin)
    assert isinstance(plugin.cloud, OurFloatingips)
    return plugin.cloud


class TestFloatingipPluginOnNeutron(PluginContract):
    example: ClassVar = {"network_id": "any", "amount": 3, "required_floatingips": SPARE[:1]}

    @pytest.fixture
    def plugin(
        self, administrator: Account, public: Public, tmp_path: Path
    ) -> Iterator[FloatingipPlugin]:
        options = settings.options(administrator, "blazar")
        path = write_config(tmp_path / "climate.conf", **options)
        conf = config_registry.new()
        config_registry.load(conf, "test", ["--config-file", str(path)])
        made = FloatingipPlugin(conf, contextlib.nullcontext)
        made.cloud, self.public = OurFloatingips(conf, public.id), public
        yield made
        public.clear()

    def state(self, plugin: ResourcePlugin) -> Any:
        return {
            address: [one.project_id, one.description, sorted(one.tags), one.port_id]
            for address, one in sorted(self.public.floatingips().items())
        }

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        ours(plugin).neutron.left = effects
        yield
        ours(plugin).neutron.left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Attach the first floating IP to the port as soon as it exists."""
        for item in ours(plugin).occupants([], reservation.id)[:1]:
            self.public.cloud.network.update_ip(item.id, port_id=self.public.port_id)

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for item in ours(plugin).occupants([], reservation.id):
            self.public.cloud.network.delete_ip(item.id)

    def test_a_kept_floating_ip_has_no_tag_of_its_reservation(
        self, plugin: FloatingipPlugin
    ) -> None:
        mine, given = self.reservation(plugin, on_end="keep"), resources(plugin, 1)
        for effects in range(5):
            plugin.start(lease(mine), mine, given)
            if not self.interrupted(plugin, effects, "end", mine, given):
                break
            plugin.end(lease(mine), mine, given)
            assert self.state(plugin) == {SPARE[0]: ["lab", "", [], None]}
            self.public.clear()
        assert 1 < effects < 5

    def test_ignores_the_same_addresses_of_another_network(
        self, administrator: Account, plugin: FloatingipPlugin
    ) -> None:
        with temporary_network(administrator.cloud, administrator.project_id) as other:
            theirs = other.take(SPARE[0], "lab")
            given = resources(plugin, 1)
            assert plugin.find(name=SPARE[0]).external_id == SPARE[0]
            assert [item.usable for item in plugin.refresh(given)] == [True]
            for on_start in ("create", "nothing"):
                mine = self.reservation(plugin, amount=1, on_start=on_start)
                plugin.start(lease(mine), mine, given)
                plugin.end(lease(mine), mine, given)
            assert other.floatingips()[SPARE[0]].id == theirs.id
            expected = ExpectedState(given, (), ())
            assert list(plugin.audit(lambda: expected)) == []

    def test_keeps_tags_of_the_owner(self, plugin: FloatingipPlugin) -> None:
        mine, given = self.reservation(plugin), resources(plugin, 1)
        plugin.start(lease(mine), mine, given)
        tagged = self.public.take(SPARE[5], "lab")
        self.public.cloud.network.set_tags(tagged, ["climate", f"reservation:{mine.id}"])
        plugin.start(lease(mine), mine, given)
        plugin.end(lease(mine), mine, given)
        assert list(self.public.floatingips()) == [SPARE[5]]
