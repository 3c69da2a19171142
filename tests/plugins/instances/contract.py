"""The contract of plug-ins whose reservations are slots on hosts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from climate.core.errors import Conflict
from climate.core.lease import Granted
from climate.plugins.base import ResourcePlugin
from climate.plugins.host import HostPlugin
from tests.plugins.contract import PluginContract, resources


class SlotContract(PluginContract):
    """The contract of plugins whose reservations are slots on hosts."""

    #: What one unit of the example takes.
    amounts: ClassVar[dict[str, int]]
    taken: ClassVar = HostPlugin.resource_type

    def granted(self, plugin: ResourcePlugin, count: int) -> Sequence[Granted]:
        found = resources(self.hosts, count)
        shares = ({name: n * one.id for name, n in self.amounts.items()} for one in found)
        return tuple(replace(one, amounts=mine) for one, mine in zip(found, shares, strict=True))

    @pytest.fixture(autouse=True)
    def _hosts(self, hosts: HostPlugin) -> None:
        self.hosts = hosts

    def test_all_that_there_is_can_be_found(self, plugin: ResourcePlugin) -> None:
        """Nothing of this type is registered; hosts are."""
        assert list(plugin.inventory()) == []

    def test_what_is_not_there_is_not_found(self, plugin: ResourcePlugin) -> None:
        with pytest.raises(Conflict, match="register hosts"):
            plugin.find(name="no such thing")
