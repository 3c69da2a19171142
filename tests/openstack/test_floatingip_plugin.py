"""The floating IP plugin keeps the contract on a real Neutron, however it is interrupted."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from climate import config
from climate.core.lease import Reservation
from climate.plugins.addresses import Subnet
from climate.plugins.base import ResourcePlugin
from climate.plugins.floatingip import FloatingipPlugin
from climate.plugins.neutron import NeutronFloatingips
from tests.contract.plugin import Interrupted, PluginContract, lease, resources
from tests.openstack import settings
from tests.openstack.accounts import Account
from tests.openstack.addresses import SPARE, Public, passing_network
from tests.process import write_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class FragileNeutron(NeutronFloatingips):
    """The real Neutron, of which one network is seen, and which can be told when to fail."""

    left: int | None = None
    mine = ""

    def subnets(self) -> Sequence[Subnet]:
        return [one for one in super().subnets() if one.network_id == self.mine]

    def _send(self, method: str, *arguments: Any, **options: Any) -> Any:
        if method != "GET":
            if self.left == 0:
                raise Interrupted(method)
            if self.left is not None:
                self.left -= 1
        return super()._send(method, *arguments, **options)


@pytest.fixture(scope="module")
def public(administrator: Account) -> Iterator[Public]:
    """Return an external network of our own."""
    with passing_network(administrator.cloud, administrator.project_id) as made:
        yield made


def neutron(plugin: ResourcePlugin) -> FragileNeutron:
    assert isinstance(plugin, FloatingipPlugin)
    assert isinstance(plugin.cloud, FragileNeutron)
    return plugin.cloud


class TestFloatingipPluginOnNeutron(PluginContract):
    example: ClassVar = {"network_id": "any", "amount": 3, "required_floatingips": SPARE[:1]}

    @pytest.fixture
    def plugin(
        self, administrator: Account, public: Public, tmp_path: Path
    ) -> Iterator[FloatingipPlugin]:
        options = settings.options(administrator, "blazar")
        path = write_config(tmp_path / "climate.conf", **options)
        conf = config.new()
        config.load(conf, "test", ["--config-file", str(path)])
        made = FloatingipPlugin(conf, contextlib.nullcontext)
        made.cloud = FragileNeutron(conf)
        made.cloud.mine, self.public = public.id, public
        yield made
        public.clear()

    def state(self, plugin: ResourcePlugin) -> Any:
        return {
            address: [one.project_id, one.description, sorted(one.tags), one.port_id]
            for address, one in sorted(self.public.floatingips().items())
        }

    @contextlib.contextmanager
    def failing_after(self, plugin: ResourcePlugin, effects: int) -> Iterator[None]:
        neutron(plugin).left = effects
        yield
        neutron(plugin).left = None

    def use(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        """Put the first address at the port, as soon as it is there."""
        for one in neutron(plugin).floatingips([], reservation.id)[:1]:
            self.public.cloud.network.update_ip(one.id, port_id=self.public.port_id)

    def sabotage(self, plugin: ResourcePlugin, reservation: Reservation) -> None:
        for one in neutron(plugin).floatingips([], reservation.id):
            self.public.cloud.network.delete_ip(one.id)

    def test_what_is_kept_shows_no_trace_of_its_reservation(self, plugin: FloatingipPlugin) -> None:
        mine, given = self.reservation(plugin, on_end="keep"), resources(plugin, 1)
        for effects in range(5):
            plugin.start(lease(mine), mine, given)
            if not self.interrupted(plugin, effects, "end", mine, given):
                break
            plugin.end(lease(mine), mine, given)
            assert self.state(plugin) == {SPARE[0]: ["lab", "", [], None]}
            self.public.clear()
        assert 1 < effects < 5
