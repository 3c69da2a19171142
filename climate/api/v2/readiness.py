"""How ready leases and hosts are: ``readiness`` of a lease, of a resource, and of all together.

It is apart from the lease, as it changes while the lease, and so its ETag, does not.
"""

from dataclasses import replace
from typing import Any

from climate.api.call import Answer, Call
from climate.api.v2 import leases, reading, resources
from climate.api.v2 import preparation_schemas as schemas
from climate.core.errors import InvalidDate
from climate.core.readiness import Period
from climate.manager import readiness


def of_lease(call: Call, lease_id: str) -> Answer:
    """Show how ready the hosts of a lease are; why some failed, to those who may know."""
    found = readiness.of_lease(call.runtime, leases.visible(call, lease_id))
    if not call.may("preparations:get"):
        found = replace(found, reasons=())
    body: dict[str, Any] = schemas.LEASE_READINESS.dump(found)
    return body, 200


def of_host(call: Call, resource_id: str) -> Answer:
    """Show how ready a host is, and how long before a lease it is asked for."""
    found = readiness.of_host(call.runtime, resources.number(resource_id))
    body: dict[str, Any] = schemas.HOST_READINESS.dump(found)
    return body, 200


def change_host(call: Call, resource_id: str) -> Answer:
    """Set a host aside, or take it back."""
    data = reading.load(schemas.HOST_CHANGE, reading.body(call))
    id_ = resources.number(resource_id)
    found = readiness.set_aside(call.runtime, id_, data["set_aside"])
    body: dict[str, Any] = schemas.HOST_READINESS.dump(found)
    return body, 200


def summary(call: Call) -> Answer:
    """Show which share of leases was ready at the start."""
    asked = reading.query(schemas.SUMMARY_QUERY)
    if asked["until"] <= asked["since"]:
        text = "This must be later than since."
        raise reading.of_parameter(InvalidDate(f"until: {text}"), "until")
    period = Period(asked["period"])
    found = readiness.summary(call.runtime, asked["since"], asked["until"], period)
    return schemas.SUMMARY.dump({"readiness": found}), 200
