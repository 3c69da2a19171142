"""What an enforcement service is told about a lease: Blazar's protocol, as data.

Dates are ISO 8601 in UTC without a zone. A reservation has beside its own parameters the
``allocations`` that it has or would get: hosts with their properties as text, addresses as in v1.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from climate.core.lease import NOT_TOLD, Lease, Resource
from climate.core.wire import floatingip_body


def lease_body(lease: Lease, resources: Mapping[str, Sequence[Resource]]) -> dict[str, Any]:
    """Return a lease with its ``resources`` by reservation."""
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "start_date": lease.window.start.replace(tzinfo=None).isoformat(),
        "end_date": lease.window.end.replace(tzinfo=None).isoformat(),
        "reservations": [
            {
                **{k: one for k, one in reservation.shown_params.items() if k not in NOT_TOLD},
                "id": reservation.id,
                "resource_type": reservation.resource_type,
                "allocations": [_told(one) for one in resources.get(reservation.id, ())],
            }
            for reservation in lease.reservations
        ],
    }


def _told(resource: Resource) -> dict[str, Any]:
    if resource.type == "virtual:floatingip":
        return floatingip_body(resource)
    told = {name: resource.properties[name] for name in resource.native}
    extra = {name: resource.properties[name] for name in resource.properties.keys() - told.keys()}
    name = resource.external_id
    return {**told, "id": str(resource.id), "hypervisor_hostname": name, "extra": extra}
