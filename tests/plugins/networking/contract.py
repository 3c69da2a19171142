"""The contract of plug-ins with network endpoints, on the simulated cloud."""

from typing import Any

import pytest

from climate.core.lease.model import Reservation
from tests.plugins.fragile import SimulatedContract


class EndpointContract(SimulatedContract):
    @pytest.fixture
    def plugin(self, plugin: Any) -> Any:
        return plugin

    def state(self, plugin: Any) -> Any:
        return sorted(
            [item.endpoint, item.project_id, item.reservation_id, item.is_marked, item.port_id]
            for item in plugin.cloud.occupants_by_id().values()
        )

    def use(self, plugin: Any, reservation: Reservation) -> None:
        for item in plugin.cloud.occupants([], reservation.id):
            plugin.cloud.use(item.id, "a port")

    def sabotage(self, plugin: Any, reservation: Reservation) -> None:
        for item in plugin.cloud.occupants([], reservation.id):
            plugin.cloud.delete(item)
