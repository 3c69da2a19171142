"""The route of ``/v2/past-leases``: records of leases that had started and were then removed."""

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, validation
from climate.api.v2.http.fields import Moment, flag
from climate.api.v2.http.schemas import PageQuery, described, page_of, sorted_by
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.page import PAST_LEASE_SORTS, PastLeaseFilter
from climate.manager.leases.read import find_past_leases


class PastResource(Schema):
    """A resource that a past lease had at its end.

    ``amounts`` is how much of the resource the lease had, such as ``{"VCPU": 4}``. It is empty if
    the lease had the whole resource.
    """

    id = fields.String()
    name = fields.String()
    amounts = fields.Dict(keys=fields.String(), values=fields.Integer())


class PastReservation(Schema):
    """A reservation of a past lease."""

    id = fields.String()
    resource_type = fields.String()
    status = fields.String()
    resources = fields.List(fields.Nested(PastResource))


class PastLease(Schema):
    """The record of a past lease: a lease that had started and was then removed.

    A user removes a lease by deleting it; climate removes it some time after its end. From then on,
    ``/v2/leases`` does not list the lease.
    """

    id = fields.String()
    name = fields.String()
    user_id = fields.String()
    project_id = fields.String()
    status = fields.Enum(
        LeaseStatus,
        by_value=True,
        metadata=described("DELETING: it was deleted before its end; TERMINATED: it had ended."),
    )
    degraded = fields.Boolean()
    start = Moment(attribute="start_at")
    end = Moment(attribute="end_at", metadata=described("The planned end."))
    started_at = Moment(
        allow_none=True,
        metadata=described("When climate had handed over all resources; null: it never had."),
    )
    ended_at = Moment(metadata=described("When climate had reclaimed all resources."))
    created_at = Moment()
    reservations = fields.List(fields.Nested(PastReservation))


PastLeasePage = page_of("past_leases", PastLease)


class PastLeaseQuery(PageQuery):
    """The query parameters of the list of past leases: filter, order and page."""

    sort = sorted_by(PAST_LEASE_SORTS, "-ended")
    user_id = fields.String()
    ended_before = Moment()
    ended_after = Moment()
    all_projects = flag(
        load_default=False,
        metadata=described("Leases of all projects. Requires the policy climate:leases:get_all."),
    )


_QUERY, _PAGE = PastLeaseQuery(), PastLeasePage()


def index(call: Call) -> Answer:
    """List past leases of your project, or of all projects."""
    query = validation.query(_QUERY)
    page = paging.page(query)
    if query["all_projects"]:
        call.require("leases:get_all")
    wanted = PastLeaseFilter(
        project_id=None if query["all_projects"] else call.caller.project_id,
        **{name: query.get(name) for name in ("user_id", "ended_before", "ended_after")},
    )
    part = find_past_leases(call.runtime, wanted, page)
    following = paging.following(page, part, PAST_LEASE_SORTS)
    return _PAGE.dump({"past_leases": part.items, "next": following}), 200
