"""What v2 takes in query strings."""

from typing import Any

from marshmallow import fields, validate

from climate.api.v2.http.fields import NOW, Count, Moment, Strict, flag
from climate.api.v2.leases.schemas import says
from climate.api.v2.notifications.schemas import BAD_PATTERN, MOST_PATTERNS
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.notifications.message import PATTERN
from climate.core.page import LEASE_SORTS, RESOURCE_SORTS

_LARGEST = 2**63 - 1


def sorted_by(names: Any, default: str) -> fields.String:  # noqa: ANN401 - any names
    """Return the field that says what a list is sorted by, with ``-`` the other way round."""
    both = [way + name for name in names for way in ("", "-")]
    return fields.String(load_default=default, validate=validate.OneOf(both))


def wait_seconds() -> Count:
    """Return the field that says how long to wait if there is nothing yet."""
    text = says("Seconds to wait for the first.")
    bounds = {"minimum": 0, "maximum": 60}
    return Count(minimum=0, maximum=60, load_default=0, metadata={**text, **bounds})


class PageQuery(Strict):
    """Which part of a list."""

    limit = Count(minimum=1, maximum=1000, load_default=100)
    marker = fields.String(metadata=says("Where to go on, from the link to the next page."))


class LeaseQuery(PageQuery):
    """Which leases, in which order."""

    sort = sorted_by(LEASE_SORTS, "-start")
    status = fields.List(
        fields.String(validate=validate.OneOf([status.value for status in LeaseStatus])),
        load_default=list,
        validate=validate.Length(max=len(LeaseStatus)),
    )
    name = fields.String()
    resource_type = fields.String()
    starts_before = Moment()
    starts_after = Moment()
    ends_before = Moment()
    ends_after = Moment()
    all_projects = flag(
        load_default=False,
        metadata=says("Of all projects, to those with the policy climate:leases:get_all."),
    )


class ResourceQuery(PageQuery):
    """Which resources, in which order."""

    sort = sorted_by(RESOURCE_SORTS, "id")
    resource_type = fields.String()
    properties = fields.String(
        metadata=says('A property expression as JSON, such as ["==", "$vcpus", 64].')
    )


class AvailabilityQuery(Strict):
    """What shall be free, and between when one wants to know."""

    resource_type = fields.String(required=True)
    params = fields.String(metadata=says("What is asked for, as JSON; one unit of it counts."))
    start = Moment(words=(NOW,))
    end = Moment(required=True)


class FilterQuery(Strict):
    """Which notifications, from where on."""

    after = Count(
        minimum=0,
        maximum=_LARGEST,
        metadata={**says("What was seen last."), "minimum": 0, "maximum": _LARGEST},
    )
    event_type = fields.List(
        fields.String(validate=validate.Regexp(PATTERN, error=BAD_PATTERN)),
        load_default=list,
        validate=validate.Length(max=MOST_PATTERNS),
        metadata=says("A type, or with * at its end all that begin so; any of several."),
    )
    lease_id = fields.String()
    resource_type = fields.String()
    project_id = fields.String(
        metadata=says("Of another project, to those with climate:notifications:get_all.")
    )


class NotificationQuery(FilterQuery):
    """Which notifications, and how long to wait if there is none."""

    limit = Count(minimum=0, maximum=1000, load_default=100)
    wait = wait_seconds()


class SubscriptionQuery(PageQuery):
    """Which subscriptions."""

    all_projects = flag(
        load_default=False,
        metadata=says("Of all projects, to those with the policy climate:subscriptions:get_all."),
    )


class DeadLetterQuery(Strict):
    """Which dead letters."""

    after = Count(minimum=0, maximum=_LARGEST, load_default=0)
    limit = Count(minimum=1, maximum=1000, load_default=100)


# Made once: making a schema takes longer than using it.
LEASE_QUERY = LeaseQuery()
RESOURCE_QUERY = ResourceQuery()
NOTIFICATION_QUERY = NotificationQuery()
AVAILABILITY_QUERY = AvailabilityQuery()
STREAM_QUERY = FilterQuery()
SUBSCRIPTION_QUERY = SubscriptionQuery()
DEAD_LETTER_QUERY = DeadLetterQuery()
