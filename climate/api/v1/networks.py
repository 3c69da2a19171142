"""``/v1/networks``: the segments on which networks can be reserved."""

from typing import Any

from climate.api.call import Call
from climate.api.v1.schemas import Capabilities, NetworkCreate, number
from climate.core.lease import blazar_wire
from climate.core.lease.model import Resource
from climate.manager.resources import registry as resources

NETWORK = "virtual:network"
# Keys of the object that are no extra capabilities.
_OURS = frozenset({"id", "reservable", "created_at", "updated_at"})


def index(call: Call) -> tuple[Any, int]:
    """List all segments."""
    return {"networks": [_body(one) for one in resources.find_all(call.runtime, NETWORK)]}, 200


def create(call: Call) -> tuple[Any, int]:
    """Make a segment reservable."""
    sent = call.body()
    data = NetworkCreate().load(sent)
    own = {key: sent[key] for key in sent if key not in _OURS and key not in data}
    name = f"{data['network_type']}:{data['physical_network'] or ''}:{data['segment_id']}"
    made = resources.register(call.runtime, NETWORK, name, extra=Capabilities.load(own))
    return {"network": _body(made)}, 201


def show(call: Call, network_id: str) -> tuple[Any, int]:
    """Show a segment."""
    found = resources.get(call.runtime, NETWORK, number("network", network_id))
    return {"network": _body(found)}, 200


def delete(call: Call, network_id: str) -> tuple[Any, int]:
    """Remove a segment that nobody has or will have."""
    resources.delete(call.runtime, NETWORK, number("network", network_id))
    return None, 204


def _body(segment: Resource) -> dict[str, Any]:
    known = segment.properties
    extra = {name: known[name] for name in known if name not in segment.native}
    return {
        "id": str(segment.id),
        "network_type": known["network_type"],
        "physical_network": known["physical_network"] or None,
        "segment_id": int(known["segment_id"]),
        "reservable": segment.reservable,
        "created_at": blazar_wire.stamp(segment.created_at),
        "updated_at": blazar_wire.stamp(segment.updated_at),
        **extra,
    }
