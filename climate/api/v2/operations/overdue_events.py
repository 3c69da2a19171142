"""The route of ``/v2/overdue-events``: events that should have run already, and why they wait."""

from marshmallow import Schema, fields

from climate.api.call import Answer, Call
from climate.api.v2.http import paging, validation
from climate.api.v2.http.fields import Moment
from climate.api.v2.http.schemas import PageQuery, described, page_of, sorted_by
from climate.core.lease.overdue import Cause
from climate.core.page import OVERDUE_SORTS
from climate.manager.audit import operations


class BlockingLease(Schema):
    """A lease that must end before an overdue event of another lease can run.

    It occupies ``resource``, which the other lease needs.
    """

    lease_id = fields.String()
    lease_name = fields.String()
    resource = fields.String(metadata=described("Name of the resource in the cloud."))


class OverdueEvent(Schema):
    """An event of a lease, such as its start, that should have run by now, and why it has not."""

    id = fields.String(attribute="event.id")
    lease_id = fields.String(
        allow_none=True,
        attribute="event.lease_id",
        metadata=described("null: the work of a lease that was deleted."),
    )
    lease_name = fields.String(allow_none=True, attribute="event.lease_name")
    project_id = fields.String(allow_none=True, attribute="event.project_id")
    type = fields.String(attribute="event.kind")
    due_at = Moment(attribute="event.due_at")
    late_seconds = fields.Float()
    attempt = fields.Integer(
        attribute="event.attempt", metadata=described("Attempts so far, the present included.")
    )
    next_attempt_at = Moment(
        attribute="event.run_at", metadata=described("Earliest time of the next attempt.")
    )
    owner = fields.String(
        allow_none=True,
        attribute="event.owner",
        metadata=described("The manager that has claimed the event; null: none."),
    )
    last_error = fields.String(allow_none=True, attribute="event.last_error")
    cause = fields.Enum(Cause, by_value=True, metadata=described("The reason, for programs."))
    reason = fields.String(metadata=described("The reason, for people."))
    blocked_by = fields.Nested(BlockingLease, allow_none=True, attribute="event.blocked_by")


OverduePage = page_of("events", OverdueEvent)


class OverdueQuery(PageQuery):
    """The query parameters of the list of overdue events: order and page."""

    sort = sorted_by(OVERDUE_SORTS, "due")


_QUERY, _PAGE = OverdueQuery(), OverduePage()


def index(call: Call) -> Answer:
    """List the overdue events of all leases, and why they have not run yet."""
    page = paging.page(validation.query(_QUERY))
    explained, part = operations.find_overdue(call.runtime.store, page)
    following = paging.following(page, part, OVERDUE_SORTS)
    return _PAGE.dump({"events": explained, "next": following}), 200
