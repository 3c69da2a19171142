"""What v2 takes and gives about notifications, and about having them sent."""

from typing import Any

from marshmallow import Schema, ValidationError, fields, validate

from climate.api.v2.http.fields import Count, Moment, Strict, flag
from climate.api.v2.http.queries import PageQuery, wait_seconds
from climate.api.v2.http.schemas import next_page, says
from climate.core.errors import InvalidInput
from climate.core.notifications.message import PATTERN
from climate.core.notifications.subscription import LONGEST_URL, SubscriptionStatus, key_of

MOST_PATTERNS = 20
_MOST_SEQS = 1000
_LARGEST = 2**63 - 1
BAD_PATTERN = "This is no type of events, nor the beginning of one and a *."


def _check_secret(text: str) -> None:
    try:
        key_of(text)
    except InvalidInput as error:
        raise ValidationError(error.message) from None


class Notification(Schema):
    """Something that happened, as a rule to a lease; ``payload`` is the lease as v1 shows it."""

    seq = fields.Integer()
    message_id = fields.String()
    event_type = fields.String()
    lease_id = fields.String(allow_none=True)
    created_at = fields.DateTime()
    payload = fields.Dict(keys=fields.String())


class NotificationPage(Schema):
    """Notifications, the oldest first; go on ``after`` this number, whether there are any."""

    notifications = fields.List(fields.Nested(Notification))
    after = fields.Integer()


def _patterns(**kwargs: Any) -> fields.List[str]:
    return fields.List(
        fields.String(validate=validate.Regexp(PATTERN, error=BAD_PATTERN)),
        validate=validate.Length(max=MOST_PATTERNS),
        metadata=says("Types, or with * at the end all that begin so; none: all types."),
        **kwargs,
    )


def _place(**kwargs: Any) -> fields.String:
    return fields.String(
        validate=validate.Length(1, LONGEST_URL),
        metadata={**says("Where CloudEvents are sent, by POST."), "format": "uri"},
        **kwargs,
    )


def _secret(**kwargs: Any) -> fields.String:
    return fields.String(
        validate=_check_secret,
        load_only=True,
        metadata=says("What they are signed with: whsec_ and the base64 of 24 to 64 bytes."),
        **kwargs,
    )


def _after() -> fields.Integer:
    return fields.Integer(
        strict=True,
        validate=validate.Range(0, _LARGEST),
        metadata=says("Send what comes after this number; what is new, if it is not given."),
    )


class SubscriptionRequest(Strict):
    """A subscription to be made."""

    url = _place(required=True)
    secret = _secret(required=True)
    event_types = _patterns(load_default=list)
    lease_id = fields.String(load_default=None, allow_none=True, validate=validate.Length(1, 36))
    resource_type = fields.String(
        load_default=None, allow_none=True, validate=validate.Length(1, 64)
    )
    all_projects = fields.Boolean(
        load_default=False,
        truthy={True},
        falsy={False},
        metadata=says("Of all projects, to those with the policy climate:notifications:get_all."),
    )
    after = _after()


class SubscriptionChange(Strict):
    """What is to change; what is absent stays."""

    url = _place()
    secret = _secret()
    event_types = _patterns()
    lease_id = fields.String(allow_none=True, validate=validate.Length(1, 36))
    resource_type = fields.String(allow_none=True, validate=validate.Length(1, 64))
    status = fields.Enum(SubscriptionStatus, by_value=True)
    after = _after()


class Subscription(Schema):
    """A place that notifications are sent to."""

    id = fields.String()
    project_id = fields.String()
    user_id = fields.String()
    url = fields.String()
    event_types = fields.List(fields.String(), attribute="wanted.event_types")
    lease_id = fields.String(attribute="wanted.lease_id", allow_none=True)
    resource_type = fields.String(attribute="wanted.resource_type", allow_none=True)
    all_projects = fields.Boolean()
    status = fields.Enum(SubscriptionStatus, by_value=True)
    reason = fields.String(
        allow_none=True, metadata=says("Why the last delivery failed, or why it is suspended.")
    )
    after = fields.Integer(
        attribute="done_seq", metadata=says("All up to this number is dealt with.")
    )
    delivered_at = Moment(allow_none=True)
    created_at = Moment()
    updated_at = Moment(allow_none=True)
    dead_letters = fields.Integer(metadata=says("How many notifications were not taken."))


class SubscriptionPage(Schema):
    """A page of subscriptions."""

    subscriptions = fields.List(fields.Nested(Subscription))
    next = next_page()


class DeadLetter(Schema):
    """A notification that was not taken, by its number."""

    seq = fields.Integer()
    attempts = fields.Integer()
    reason = fields.String()
    redelivering = fields.Boolean(
        attribute="wanted", metadata=says("Whether it is about to be sent again.")
    )
    failed_at = Moment()


class DeadLetterPage(Schema):
    """Dead letters, by their numbers."""

    dead_letters = fields.List(fields.Nested(DeadLetter))


class Redelivery(Strict):
    """Which dead letters are to be sent again."""

    seqs = fields.List(
        fields.Integer(strict=True, validate=validate.Range(1, _LARGEST)),
        validate=validate.Length(1, _MOST_SEQS),
        metadata=says("Their numbers; all, if it is not given."),
    )


class Redelivering(Schema):
    """How many dead letters are about to be sent again."""

    redelivering = fields.Integer()


SUBSCRIPTION_REQUEST, SUBSCRIPTION_CHANGE = SubscriptionRequest(), SubscriptionChange()
SUBSCRIPTION, DEAD_LETTER_PAGE, REDELIVERY = Subscription(), DeadLetterPage(), Redelivery()


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


NOTIFICATION_QUERY, STREAM_QUERY = NotificationQuery(), FilterQuery()
SUBSCRIPTION_QUERY, DEAD_LETTER_QUERY = SubscriptionQuery(), DeadLetterQuery()
