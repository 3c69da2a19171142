"""The route of ``/v2/leases/<id>/resources``: a lease's resources, their states and times.

The resources are not in the body of the lease, because their states change even if the lease does
not. If they were in the body, each such change would change the ETag of the lease.
"""

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, validation
from climate.api.v2.http.fields import Moment
from climate.api.v2.http.schemas import PageQuery, described, page_of, sorted_by
from climate.api.v2.leases.views import visible
from climate.core.page import LEASE_RESOURCE_SORTS
from climate.core.provisioning.host_state import HostState
from climate.manager.resources import holders


class LeaseResource(Schema):
    """A resource that a reservation of the lease has or will have."""

    reservation_id = fields.String(attribute="held.reservation_id")
    id = fields.String(attribute="held.resource_id")
    name = fields.String()
    resource_type = fields.String(attribute="held.resource_type")
    properties = fields.Dict(keys=fields.String(), values=fields.String())
    start = Moment(attribute="held.start")
    end = Moment()
    busy_until = Moment(
        attribute="held.busy_until", metadata=described("End of the cleaning time.")
    )
    state = fields.Enum(
        HostState,
        by_value=True,
        metadata=described("preparing and failing are about the preparation for this lease."),
    )
    ready_at = Moment(
        allow_none=True, metadata=described("When a provisioner had prepared the host; else null.")
    )
    amounts = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        attribute="held.amounts",
        metadata=described("Amounts by resource class; empty: the whole resource."),
    )
    handed_over = fields.Boolean(
        metadata=described("Whether climate has handed the resource over to the project.")
    )


LeaseResourcePage = page_of("resources", LeaseResource)


class LeaseResourceQuery(PageQuery):
    """The query parameters of the list of a lease's resources: order and page."""

    sort = sorted_by(LEASE_RESOURCE_SORTS, "name")


_QUERY, _PAGE = LeaseResourceQuery(), LeaseResourcePage()


def index(call: Call, lease_id: str) -> Answer:
    """List the resources of a lease."""
    page = paging.page(validation.query(_QUERY))
    private = call.may("resources:get_private")
    part = holders.of_lease(call.runtime, visible(call, lease_id), page, private=private)
    following = paging.following(page, part, LEASE_RESOURCE_SORTS)
    return _PAGE.dump({"resources": part.items, "next": following}), 200
