"""Views of readiness (whether hosts are prepared): of a lease, of a host, and as statistics.

One view quarantines hosts. Readiness is not in the body of a lease, because readiness changes even
if the lease does not. If it were in the body, each change of readiness would change the ETag of the
lease.
"""

from dataclasses import replace
from datetime import datetime

from climate.api.call import Answer, Call
from climate.api.v2.http import validation
from climate.api.v2.leases import views as lease_views
from climate.api.v2.provisioning import schemas
from climate.api.v2.resources import views as resource_views
from climate.core.errors import InvalidDate
from climate.core.provisioning.readiness import Period
from climate.manager.provisioning import power_saving, readiness


def of_lease(call: Call, lease_id: str) -> Answer:
    """Show whether the hosts of a lease are ready: powered on and prepared by provisioners."""
    shown = readiness.of_lease(call.runtime, lease_views.visible(call, lease_id))
    if not call.may("preparations:get"):
        shown = replace(shown, reasons=())
    return schemas.LEASE_READINESS.dump(shown), 200


def of_host(call: Call, resource_id: str) -> Answer:
    """Show the readiness of a host for its next lease, its quarantine and its lead time."""
    shown = readiness.of_host(call.runtime, resource_views.number(resource_id))
    return schemas.HOST_READINESS.dump(shown), 200


def change_host(call: Call, resource_id: str) -> Answer:
    """Quarantine a host, so that no lease gets it, or end its quarantine."""
    data = validation.load(schemas.HOST_CHANGE, validation.body(call))
    id_ = resource_views.number(resource_id)
    shown = readiness.set_aside(call.runtime, id_, data["set_aside"])
    return schemas.HOST_READINESS.dump(shown), 200


def summary(call: Call) -> Answer:
    """Show statistics: how many leases had all hosts ready when they started."""
    shares = readiness.summary(call.runtime, *_period())
    return schemas.SUMMARY.dump({"readiness": shares}), 200


def saved(call: Call) -> Answer:
    """Show for how many hours hosts were switched off (power saving)."""
    return schemas.ENERGY.dump({"saved": power_saving.saved(call.runtime, *_period())}), 200


def _period() -> tuple[datetime, datetime, Period]:
    """Return the query parameters of statistics: start, end, and the length of their periods.

    Raises InvalidDate if the end is not later than the start.
    """
    query = validation.query(schemas.SUMMARY_QUERY)
    if query["until"] <= query["since"]:
        text = "This must be later than since."
        raise validation.of_parameter(InvalidDate(f"until: {text}"), "until")
    return query["since"], query["until"], Period(query["period"])
