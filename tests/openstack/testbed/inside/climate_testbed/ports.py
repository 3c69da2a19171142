"""Network ports without a network: each is bound at once, without an agent."""

from typing import Any

from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api


class BindAtOnce(api.MechanismDriver):  # type: ignore[misc]  # Neutron has no types
    """Reports an Open vSwitch port, the only kind that Nova accepts without a network."""

    def initialize(self) -> None:
        pass

    def bind_port(self, context: Any) -> None:
        context.set_binding(
            context.segments_to_bind[0][api.ID],
            portbindings.VIF_TYPE_OVS,
            {portbindings.CAP_PORT_FILTER: False, portbindings.VIF_DETAILS_BRIDGE_NAME: "br-int"},
            status=constants.PORT_STATUS_ACTIVE,
        )
