"""The routes of ``/v1/os-hosts``: hosts, their extra capabilities, and their allocations."""

from typing import Any

from flask import request

from climate.api.call import Call
from climate.api.v1.schemas import NUMBERED_PAGE, PropertyUpdate, capabilities, number
from climate.core.errors import InvalidInput, MissingParameter
from climate.core.lease import blazar_wire
from climate.core.lease.model import HOST, Allocation, Resource
from climate.manager.resources import hosts
from climate.manager.resources import registry as resources

_NUMBERS = ("vcpus", "memory_mb", "local_gb", "hypervisor_version")
# Keys of the host object that are neither properties from the cloud nor extra capabilities.
_OWN_KEYS = frozenset({"name", "status", "trust_id", "reservable", "created_at", "updated_at"})
_FALSE = {"", "0", "false", "no", "off", "none", "null"}


def index(call: Call) -> tuple[Any, int]:
    """List the reservable hosts.

    Without the query parameter ``limit``, the answer lists all of them.
    """
    page = NUMBERED_PAGE.load(request.args.to_dict())
    found = resources.find_all(call.runtime, HOST, page["limit"], page["marker"])
    return {"hosts": [_body(host) for host in found]}, 200


def create(call: Call) -> tuple[Any, int]:
    """Make a host of the cloud reservable."""
    data = call.body()
    name, id_ = data.pop("name", None), data.pop("id", None)
    if not name and not id_:
        raise MissingParameter("Missing parameter name (or id) of the host")
    if not isinstance(name, str | None) or not isinstance(id_, str | int | None):
        raise InvalidInput("Malformed parameter name or id: must be a text")
    extra = capabilities({key: data[key] for key in data if key not in _OWN_KEYS})
    host = resources.register(call.runtime, HOST, name, str(id_) if id_ else None, extra)
    return {"host": _body(host)}, 201


def show(call: Call, host_id: str) -> tuple[Any, int]:
    """Show a reservable host."""
    return {"host": _body(resources.get(call.runtime, HOST, number("host", host_id)))}, 200


def update(call: Call, host_id: str) -> tuple[Any, int]:
    """Add or change extra capabilities of a host.

    Extra capabilities are properties that an operator sets. Example of a body: ``{"rack": "r2"}``.
    """
    data = call.body()
    if not data:
        raise InvalidInput("No data to update")
    if _OWN_KEYS & data.keys():
        names = ", ".join(sorted(_OWN_KEYS & data.keys()))
        raise InvalidInput(f"{names}: not an extra capability, cannot be changed here")
    extra = capabilities(data)
    changed = resources.set_properties(call.runtime, HOST, number("host", host_id), extra)
    return {"host": _body(changed)}, 200


def delete(call: Call, host_id: str) -> tuple[Any, int]:
    """Make a host not reservable any more; fails if a present or future lease has it."""
    resources.delete(call.runtime, HOST, number("host", host_id))
    return None, 204


def allocations(call: Call) -> tuple[Any, int]:
    """List the allocations of each host: the reservations that have it, and from when to when.

    The query parameters ``lease_id`` and ``reservation_id`` select allocations. For a host without
    allocations, the list of reservations is empty.
    """
    by_host = _find_allocations(call)
    return {"allocations": [_allocations(*item) for item in by_host.items()]}, 200


def allocation(call: Call, host_id: str) -> tuple[Any, int]:
    """Show the allocations of a host: the reservations that have it, and from when to when."""
    id_ = number("host", host_id)
    return {"allocation": _allocations(id_, _find_allocations(call, id_)[id_])}, 200


def properties(call: Call) -> tuple[Any, int]:
    """List the extra capabilities of hosts: properties that operators have set, such as a rack.

    The answer contains private extra capabilities only if the query has the parameter ``all``, and
    the policy allows the caller to make extra capabilities private.
    """
    extra, values = hosts.find_properties(call.runtime)
    with_private = _flag("all") and call.may("oshosts:update_resource_properties")
    shown = [prop for prop in extra if with_private or not prop.private]
    if not _flag("detail"):
        return {"resource_properties": [{"property": prop.name} for prop in shown]}, 200
    detailed = [
        {"property": prop.name, "private": prop.private, "values": values.get(prop.name, [])}
        for prop in shown
    ]
    return {"resource_properties": detailed}, 200


def update_property(call: Call, name: str) -> tuple[Any, int]:
    """Make an extra capability of hosts, such as a rack, private (hidden in lists) or public."""
    private = PropertyUpdate().load(call.body())["private"]
    prop = hosts.set_property_private(call.runtime, name, private=private)
    body = {
        "id": prop.id,
        "resource_type": prop.resource_type,
        "property_name": prop.name,
        "private": prop.private,
        "created_at": blazar_wire.date(prop.created_at),
        "updated_at": blazar_wire.date(prop.updated_at) if prop.updated_at else None,
    }
    return {"resource_property": body}, 200


def _find_allocations(call: Call, host_id: int | None = None) -> dict[int, list[Allocation]]:
    lease_id, reservation_id = request.args.get("lease_id"), request.args.get("reservation_id")
    return hosts.find_allocations(
        call.runtime, host_id=host_id, lease_id=lease_id, reservation_id=reservation_id
    )


def _flag(name: str) -> bool:
    return request.args.get(name, "").lower() not in _FALSE


def _body(host: Resource) -> dict[str, Any]:
    native: dict[str, Any] = {name: host.properties[name] for name in sorted(host.native)}
    for name in _NUMBERS:
        if name in native:
            native[name] = int(native[name] or 0)
    extra = {name: host.properties[name] for name in host.properties if name not in host.native}
    return {
        "hypervisor_hostname": host.external_id,
        "cpu_info": "{}",
        "availability_zone": "",
        **native,
        "id": str(host.id),
        "status": None,
        "trust_id": None,
        "reservable": host.reservable,
        "created_at": blazar_wire.stamp(host.created_at),
        "updated_at": blazar_wire.stamp(host.updated_at),
        **extra,
    }


def _allocations(host_id: int, allocations: list[Allocation]) -> dict[str, Any]:
    return {
        "resource_id": str(host_id),
        "reservations": [
            {
                "id": allocation.reservation_id,
                "lease_id": allocation.lease_id,
                "start_date": blazar_wire.date(allocation.window.start),
                "end_date": blazar_wire.date(allocation.window.end),
            }
            for allocation in allocations
        ],
    }
