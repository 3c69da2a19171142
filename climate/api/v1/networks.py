"""The routes of ``/v1/networks``: reservable network segments."""

from typing import Any

from climate.api.call import Call
from climate.api.v1.schemas import NetworkCreate, capabilities, number
from climate.core.lease import blazar_wire
from climate.core.lease.model import Resource
from climate.manager.resources import registry as resources

NETWORK = "virtual:network"
# Keys of the network object that are no extra capabilities.
_OWN_KEYS = frozenset({"id", "reservable", "created_at", "updated_at"})


def index(call: Call) -> tuple[Any, int]:
    """List all network segments that can be reserved."""
    segments = resources.find_all(call.runtime, NETWORK)
    return {"networks": [_body(segment) for segment in segments]}, 200


def create(call: Call) -> tuple[Any, int]:
    """Make a network segment of the cloud, such as a VLAN, reservable."""
    body = call.body()
    data = NetworkCreate().load(body)
    extra = {key: body[key] for key in body if key not in _OWN_KEYS and key not in data}
    name = f"{data['network_type']}:{data['physical_network'] or ''}:{data['segment_id']}"
    segment = resources.register(call.runtime, NETWORK, name, extra=capabilities(extra))
    return {"network": _body(segment)}, 201


def show(call: Call, network_id: str) -> tuple[Any, int]:
    """Show a reservable network segment."""
    segment = resources.get(call.runtime, NETWORK, number("network", network_id))
    return {"network": _body(segment)}, 200


def delete(call: Call, network_id: str) -> tuple[Any, int]:
    """Make a network segment not reservable any more; fails if a present or future lease has it."""
    resources.delete(call.runtime, NETWORK, number("network", network_id))
    return None, 204


def _body(segment: Resource) -> dict[str, Any]:
    properties = segment.properties
    extra = {name: properties[name] for name in properties if name not in segment.native}
    return {
        "id": str(segment.id),
        "network_type": properties["network_type"],
        "physical_network": properties["physical_network"] or None,
        "segment_id": int(properties["segment_id"]),
        "reservable": segment.reservable,
        "created_at": blazar_wire.stamp(segment.created_at),
        "updated_at": blazar_wire.stamp(segment.updated_at),
        **extra,
    }
