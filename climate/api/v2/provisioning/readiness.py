"""How ready leases and hosts are: ``readiness`` of a lease, of a resource, and of all together.

It is apart from the lease, as it changes while the lease, and so its ETag, does not.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from climate.api.call import Answer, Call
from climate.api.v2 import preparation_schemas as schemas
from climate.api.v2.http import validation
from climate.api.v2.leases import views as lease_views
from climate.api.v2.resources import views as resource_views
from climate.api.v2.shutdown_schemas import ENERGY
from climate.core.errors import InvalidDate
from climate.core.provisioning.readiness import Period
from climate.manager import readiness
from climate.manager.provisioning import power_saving as energy


def of_lease(call: Call, lease_id: str) -> Answer:
    """Show how ready the hosts of a lease are; why some failed, to those who may know."""
    found = readiness.of_lease(call.runtime, lease_views.visible(call, lease_id))
    if not call.may("preparations:get"):
        found = replace(found, reasons=())
    body: dict[str, Any] = schemas.LEASE_READINESS.dump(found)
    return body, 200


def of_host(call: Call, resource_id: str) -> Answer:
    """Show how ready a host is, and how long before a lease it is asked for."""
    found = readiness.of_host(call.runtime, resource_views.number(resource_id))
    body: dict[str, Any] = schemas.HOST_READINESS.dump(found)
    return body, 200


def change_host(call: Call, resource_id: str) -> Answer:
    """Set a host aside, or take it back."""
    data = validation.load(schemas.HOST_CHANGE, validation.body(call))
    id_ = resource_views.number(resource_id)
    found = readiness.set_aside(call.runtime, id_, data["set_aside"])
    body: dict[str, Any] = schemas.HOST_READINESS.dump(found)
    return body, 200


def summary(call: Call) -> Answer:
    """Show which share of leases was ready at the start."""
    found = readiness.summary(call.runtime, *_asked_time())
    return schemas.SUMMARY.dump({"readiness": found}), 200


def saved(call: Call) -> Answer:
    """Show how long hosts were switched off."""
    return ENERGY.dump({"saved": energy.saved(call.runtime, *_asked_time())}), 200


def _asked_time() -> tuple[datetime, datetime, Period]:
    """Return since when, until when, and divided how; raises InvalidDate."""
    asked = validation.query(schemas.SUMMARY_QUERY)
    if asked["until"] <= asked["since"]:
        text = "This must be later than since."
        raise validation.of_parameter(InvalidDate(f"until: {text}"), "until")
    return asked["since"], asked["until"], Period(asked["period"])
