"""``/v1/floatingips``: the addresses that can be reserved."""

from typing import Any

from climate.api.call import Call
from climate.api.v1.schemas import FloatingipCreate, number
from climate.core.lease import blazar_wire
from climate.manager.resources import registry as resources

FLOATINGIP = "virtual:floatingip"


def index(call: Call) -> tuple[Any, int]:
    """List all addresses."""
    found = resources.find_all(call.runtime, FLOATINGIP)
    return {"floatingips": [blazar_wire.floatingip_body(one) for one in found]}, 200


def create(call: Call) -> tuple[Any, int]:
    """Make an address reservable."""
    data = FloatingipCreate().load(call.body())
    name = f"{data['floating_network_id']}/{data['floating_ip_address']}"
    made = resources.register(call.runtime, FLOATINGIP, name)
    return {"floatingip": blazar_wire.floatingip_body(made)}, 201


def show(call: Call, floatingip_id: str) -> tuple[Any, int]:
    """Show an address."""
    found = resources.get(call.runtime, FLOATINGIP, number("floatingip", floatingip_id))
    return {"floatingip": blazar_wire.floatingip_body(found)}, 200


def delete(call: Call, floatingip_id: str) -> tuple[Any, int]:
    """Remove an address that nobody has or will have."""
    resources.delete(call.runtime, FLOATINGIP, number("floatingip", floatingip_id))
    return None, 204
