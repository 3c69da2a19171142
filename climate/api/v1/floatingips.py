"""The routes of ``/v1/floatingips``: reservable floating IP addresses."""

from typing import Any

from climate.api.call import Call
from climate.api.v1.schemas import FloatingipCreate, number
from climate.core.lease import blazar_wire
from climate.manager.resources import registry as resources

FLOATINGIP = "virtual:floatingip"


def index(call: Call) -> tuple[Any, int]:
    """List all floating IP addresses that can be reserved."""
    addresses = resources.find_all(call.runtime, FLOATINGIP)
    return {"floatingips": [blazar_wire.floatingip_body(address) for address in addresses]}, 200


def create(call: Call) -> tuple[Any, int]:
    """Make a floating IP address of the cloud reservable."""
    data = FloatingipCreate().load(call.body())
    name = f"{data['floating_network_id']}/{data['floating_ip_address']}"
    address = resources.register(call.runtime, FLOATINGIP, name)
    return {"floatingip": blazar_wire.floatingip_body(address)}, 201


def show(call: Call, floatingip_id: str) -> tuple[Any, int]:
    """Show a reservable floating IP address."""
    address = resources.get(call.runtime, FLOATINGIP, number("floatingip", floatingip_id))
    return {"floatingip": blazar_wire.floatingip_body(address)}, 200


def delete(call: Call, floatingip_id: str) -> tuple[Any, int]:
    """Make a floating IP address not reservable any more.

    Fails if a present or future lease has it.
    """
    resources.delete(call.runtime, FLOATINGIP, number("floatingip", floatingip_id))
    return None, 204
