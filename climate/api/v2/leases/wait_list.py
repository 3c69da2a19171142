"""The route of ``/v2/wait-list``: the leases that wait for capacity, in their order.

Leases of other projects are shown without a name. Operators can request all names.
"""

from typing import Any

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, validation
from climate.api.v2.http.fields import Moment, flag, show
from climate.api.v2.http.schemas import PageQuery, described, page_of
from climate.core.lease.wait_list import HeldBack
from climate.core.page import WAIT_SORTS
from climate.manager.wait_list.listing import Entry, find_entries

_OWN = described("null for a lease of another project.")


class Need(Schema):
    """What a waiting lease needs: ``minimum`` to ``maximum`` units of a resource type.

    ``amounts`` is the size of a unit by resource class. It is empty if a unit is a whole resource.
    """

    resource_type = fields.String()
    minimum = fields.Integer()
    maximum = fields.Integer()
    amounts = fields.Dict(keys=fields.String(), values=fields.Integer())


class WaitListEntry(Schema):
    """An entry of the wait list."""

    position = fields.Integer(
        metadata=described("1 is the first among the leases with these resource types.")
    )
    resource_types = fields.List(fields.String())
    needs = fields.List(fields.Nested(Need))
    duration = fields.Integer(metadata=described("Seconds from the start to the end."))
    priority = fields.Integer()
    promised_start = Moment(
        allow_none=True,
        metadata=described(
            "The start of its booking, else null. A firm promise never becomes later."
        ),
    )
    lease_id = fields.String(allow_none=True, metadata=_OWN)
    lease_name = fields.String(allow_none=True, metadata=_OWN)
    project_id = fields.String(allow_none=True, metadata=_OWN)
    until = Moment(allow_none=True, metadata=_OWN)
    held_back = fields.Enum(HeldBack, by_value=True, allow_none=True, metadata=_OWN)


WaitList = page_of("wait_list", WaitListEntry)


class WaitListQuery(PageQuery):
    """The query parameters of the wait list."""

    resource_type = fields.String(
        metadata=described(
            "The leases with this resource type, or with several that are joined by commas."
            " Default: all leases."
        )
    )
    all_projects = flag(
        load_default=False,
        metadata=described("Name all leases. Requires the policy climate:leases:get_all."),
    )


_QUERY = WaitListQuery()


def index(call: Call) -> Answer:
    """List the leases that wait for capacity, the first in rank first; only yours are named."""
    query = validation.query(_QUERY)
    if query["all_projects"]:
        call.require("leases:get_all")
    page = paging.page({**query, "sort": "rank"}, numbered=True)
    part = find_entries(call.runtime, _pool(query.get("resource_type")), page)
    owner = None if query["all_projects"] else call.caller.project_id
    bodies = [_body(entry, owner) for entry in part.items]
    return {"wait_list": bodies, "next": paging.following(page, part, WAIT_SORTS)}, 200


def _pool(resource_types: str | None) -> str | None:
    return resource_types and ",".join(sorted(resource_types.split(",")))


def _body(entry: Entry, project_id: str | None) -> dict[str, Any]:
    """Return an entry; leases of projects other than ``project_id`` (None: none) are anonymous."""
    wait, lease = entry.wait, entry.lease
    needs = [
        {
            "resource_type": resource_type,
            "minimum": need.minimum,
            "maximum": need.maximum,
            "amounts": dict(need.amounts),
        }
        for resource_type, need in entry.needs
    ]
    own = {
        "lease_id": lease.id,
        "lease_name": lease.name,
        "project_id": lease.project_id,
        "until": show(wait.until),
        "held_back": wait.held_back and wait.held_back.value,
    }
    is_named = project_id in {None, lease.project_id}
    return {
        "position": entry.position,
        "resource_types": wait.pool.split(","),
        "needs": needs,
        "duration": int(wait.length.total_seconds()),
        "priority": wait.priority,
        "promised_start": None if wait.promised_start is None else show(wait.promised_start),
        **(own if is_named else dict.fromkeys(own)),
    }
