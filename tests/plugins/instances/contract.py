"""The contract of plug-ins whose reservations are slots on hosts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from climate.core.errors import Conflict
from climate.core.lease.model import Granted
from climate.plugins.base import ResourcePlugin
from climate.plugins.hosts.plugin import HostPlugin
from tests.plugins.contract import PluginContract, resources


class SlotContract(PluginContract):
    """The contract of plug-ins whose reservations are slots on hosts."""

    #: The amounts of one unit of the example.
    amounts: ClassVar[dict[str, int]]
    taken: ClassVar = HostPlugin.resource_type

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        hosts = resources(self.hosts, count)
        return tuple(
            replace(host, amounts={name: n * host.id for name, n in self.amounts.items()})
            for host in hosts
        )

    @pytest.fixture(autouse=True)
    def _hosts(self, hosts: HostPlugin) -> None:
        self.hosts = hosts

    def test_finds_every_resource_of_the_inventory_by_name(self, plugin: ResourcePlugin) -> None:
        """Operators register hosts, not slots."""
        assert list(plugin.inventory()) == []

    def test_rejects_an_unknown_name_or_number(self, plugin: ResourcePlugin) -> None:
        with pytest.raises(Conflict, match="register hosts"):
            plugin.find(name="no such thing")
