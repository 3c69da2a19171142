"""Schemas of notifications, subscriptions and dead letters (undeliverable notifications)."""

from collections.abc import Collection, Mapping
from typing import Any

from marshmallow import Schema, ValidationError, fields, validate, validates_schema

from climate.api.v2.http.fields import Count, Moment, Strict, flag
from climate.api.v2.http.schemas import PageQuery, described, page_of, wait_seconds
from climate.core.errors import InvalidInput
from climate.core.notifications import event_type, mail, message
from climate.core.notifications.subscriber_reminder import LONGEST_LEAD, MOST_LEADS
from climate.core.notifications.subscription import (
    LONGEST_URL,
    Format,
    Frequency,
    Kind,
    SubscriptionStatus,
    key_of,
)

_MAX_PATTERNS = 20
_MAX_SEQS = 1000
_MAX_SEQ = 2**63 - 1
_REQUIRED = str(fields.Field.default_error_messages["required"])
# Fields that only subscriptions of one kind have.
_ONLY = {
    Kind.WEBHOOK: frozenset({"url", "secret", "format"}),
    Kind.EMAIL: frozenset({"address", "frequency"}),
}


def _check_event_type(pattern: str) -> None:
    if (reason := event_type.why_unknown(pattern)) is not None:
        raise ValidationError(reason)


def _check_secret(text: str) -> None:
    try:
        key_of(text)
    except InvalidInput as error:
        raise ValidationError(error.message) from None


def _check_zone(name: str) -> None:
    try:
        mail.check_zone(name)
    except InvalidInput as error:
        raise ValidationError(error.message) from None


class Notification(Schema):
    """A notification. If it is about a lease, ``payload`` is the lease in the format of v1."""

    seq = fields.Integer()
    message_id = fields.String()
    event_type = fields.String()
    lease_id = fields.String(allow_none=True)
    created_at = fields.DateTime()
    payload = fields.Dict(keys=fields.String())


def body(notification: message.Notification) -> dict[str, Any]:
    """Return a notification as a dict to render as JSON."""
    return {
        "seq": notification.seq,
        "message_id": notification.message_id,
        "event_type": notification.event_type,
        "lease_id": notification.lease_id,
        "created_at": notification.created_at.isoformat(timespec="microseconds"),
        "payload": dict(notification.payload),
    }


class NotificationPage(Schema):
    """A page of notifications, the oldest first.

    To get the next page, the client sends the ``after`` of this page as the query parameter
    ``after``. This also holds if this page contains no notifications.
    """

    notifications = fields.List(fields.Nested(Notification))
    after = fields.Integer()


def _url(**kwargs: Any) -> fields.String:
    return fields.String(
        validate=validate.Length(1, LONGEST_URL),
        metadata={
            **described("The receiver: climate sends CloudEvents to this URL by POST."),
            "format": "uri",
        },
        **kwargs,
    )


def _secret(**kwargs: Any) -> fields.String:
    return fields.String(
        validate=_check_secret,
        load_only=True,
        metadata=described("Key of the signatures: whsec_ and the base64 of 24 to 64 bytes."),
        **kwargs,
    )


def foreign_fields(kind: Kind, names: Collection[str]) -> dict[str, list[str]]:
    """Return an error for each field among ``names`` that only the other kind has."""
    return {
        name: [f"Only subscriptions of the kind {other.value} have this."]
        for other, own in _ONLY.items()
        for name in names
        if other is not kind and name in own
    }


class _SubscriptionSettings(Strict):
    address = fields.String(
        validate=validate.Length(1, mail.LONGEST_ADDRESS),
        metadata=described("The receiver, if the kind is email. Its owner must confirm it."),
    )
    format = fields.Enum(
        Format,
        by_value=True,
        metadata=described(
            "Form of the bodies: cloudevents, or messages that Slack, Matrix (hookshot) or Teams"
            " (workflows) accept."
        ),
    )
    frequency = fields.Enum(
        Frequency,
        by_value=True,
        metadata=described("A mail for each notification, or at most one in an hour or a day."),
    )
    time_zone = fields.String(
        validate=_check_zone,
        metadata=described("Zone of the times in mails and chat messages: Europe/Berlin."),
    )
    event_types = fields.List(
        fields.String(validate=_check_event_type),
        validate=validate.Length(max=_MAX_PATTERNS),
        metadata={
            **described("Event types; * at the end matches any rest. Empty: all types."),
            "examples": [["lease.event.*"], [*event_type.KNOWN]],
        },
    )
    lease_id = fields.String(allow_none=True, validate=validate.Length(1, 36))
    resource_type = fields.String(allow_none=True, validate=validate.Length(1, 64))
    before_start_leads = fields.List(
        fields.Integer(strict=True, validate=validate.Range(1, LONGEST_LEAD)),
        validate=validate.Length(max=MOST_LEADS),
        metadata=described(
            "Reminders of your own (lease.reminder): how many seconds before the start of each"
            " lease. Empty: none."
        ),
    )
    after = fields.Integer(
        strict=True,
        validate=validate.Range(0, _MAX_SEQ),
        metadata=described("Send notifications after this number; default: only new ones."),
    )


class SubscriptionRequest(_SubscriptionSettings):
    """The body of a request to create a subscription: a URL or an e-mail address.

    A webhook needs ``url``, and with the format ``cloudevents`` also ``secret``. E-mail needs
    ``address``.
    """

    kind = fields.Enum(Kind, by_value=True, load_default=Kind.WEBHOOK)
    url = _url()
    secret = _secret()
    all_projects = fields.Boolean(
        load_default=False,
        truthy={True},
        falsy={False},
        metadata=described(
            "Notifications of all projects. Requires climate:notifications:get_all."
        ),
    )

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def _check_kind(
        self, data: Mapping[str, Any], original: Mapping[str, Any], **_kwargs: Any
    ) -> None:
        kind = data.get("kind")
        if kind is None:  # it is invalid
            return
        errors = foreign_fields(kind, original)
        required = {"address"} if kind is Kind.EMAIL else {"url"}
        if kind is Kind.WEBHOOK and data.get("format", Format.CLOUDEVENTS) is Format.CLOUDEVENTS:
            required.add("secret")
        if kind is Kind.EMAIL and "after" in original:
            errors["after"] = ["Delivery by e-mail begins when the address is confirmed."]
        errors |= {name: [_REQUIRED] for name in sorted(required - original.keys())}
        if errors:
            raise ValidationError(errors)


class SubscriptionChange(_SubscriptionSettings):
    """The body of a request to change a subscription. An omitted field keeps its value."""

    url = _url()
    secret = _secret()
    status = fields.Enum(SubscriptionStatus, by_value=True)


class Subscription(Schema):
    """A subscription: a URL or an e-mail address that receives notifications.

    ``address`` is null for webhooks. ``url`` is a ``mailto:`` URL for e-mail.
    """

    id = fields.String()
    project_id = fields.String()
    user_id = fields.String()
    kind = fields.Enum(Kind, by_value=True)
    url = fields.String()
    address = fields.String(allow_none=True)
    format = fields.Enum(Format, by_value=True)
    frequency = fields.Enum(Frequency, by_value=True)
    time_zone = fields.String()
    confirmed_at = Moment(
        allow_none=True,
        metadata=described(
            "When the owner of the e-mail address confirmed it. Until then, climate sends only the"
            " confirmation."
        ),
    )
    event_types = fields.List(fields.String(), attribute="wanted.event_types")
    lease_id = fields.String(attribute="wanted.lease_id", allow_none=True)
    resource_type = fields.String(attribute="wanted.resource_type", allow_none=True)
    all_projects = fields.Boolean()
    before_start_leads = fields.List(fields.Integer())
    status = fields.Enum(SubscriptionStatus, by_value=True)
    reason = fields.String(
        allow_none=True,
        metadata=described("Why the last delivery failed, or why climate suspended it."),
    )
    after = fields.Integer(
        attribute="done_seq",
        metadata=described("Notifications up to this number are delivered or dead letters."),
    )
    delivered_at = Moment(allow_none=True)
    created_at = Moment()
    updated_at = Moment(allow_none=True)
    dead_letters = fields.Integer(
        metadata=described("Number of notifications that the receiver did not accept.")
    )


SubscriptionPage = page_of("subscriptions", Subscription)


class DeadLetter(Schema):
    """A notification that the receiver of a subscription did not accept in any attempt."""

    seq = fields.Integer()
    attempts = fields.Integer()
    reason = fields.String()
    redelivering = fields.Boolean(
        attribute="wanted", metadata=described("Whether climate is going to send it again.")
    )
    failed_at = Moment()


class DeadLetterPage(Schema):
    """Dead letters: notifications that a receiver did not accept, in the order of their numbers."""

    dead_letters = fields.List(fields.Nested(DeadLetter))


class Redelivery(Strict):
    """The body of a request to send dead letters again (notifications that were not delivered)."""

    seqs = fields.List(
        fields.Integer(strict=True, validate=validate.Range(1, _MAX_SEQ)),
        validate=validate.Length(1, _MAX_SEQS),
        metadata=described("Numbers of dead letters; default: all."),
    )


class Redelivering(Schema):
    """The answer to a request to send dead letters again: how many of them climate will send."""

    redelivering = fields.Integer()


SUBSCRIPTION_REQUEST, SUBSCRIPTION_CHANGE = SubscriptionRequest(), SubscriptionChange()
SUBSCRIPTION, DEAD_LETTER_PAGE, REDELIVERY = Subscription(), DeadLetterPage(), Redelivery()


class FilterQuery(Strict):
    """The query parameters of notifications: a filter, and the number after which to start."""

    after = Count(
        minimum=0,
        maximum=_MAX_SEQ,
        metadata=described("Number of the last notification that you received."),
    )
    event_type = fields.List(
        fields.String(validate=_check_event_type),
        load_default=list,
        validate=validate.Length(max=_MAX_PATTERNS),
        metadata=described("An event type; * at the end matches any rest. Repeatable."),
    )
    lease_id = fields.String()
    resource_type = fields.String()
    project_id = fields.String(
        metadata=described("Another project. Requires climate:notifications:get_all.")
    )


class NotificationQuery(FilterQuery):
    """The query parameters of a page of notifications: filter, size of the page, and waiting time.

    The waiting time is how many seconds the request waits if there is no notification yet.
    """

    limit = Count(minimum=0, maximum=1000, load_default=100)
    wait = wait_seconds()


class SubscriptionQuery(PageQuery):
    """The query parameters of the list of subscriptions: page, and whether to list all projects."""

    all_projects = flag(
        load_default=False,
        metadata=described(
            "Subscriptions of all projects. Requires climate:subscriptions:get_all."
        ),
    )


class DeadLetterQuery(Strict):
    """The query parameters of a page of dead letters.

    The page has at most ``limit`` dead letters, with numbers above ``after``.
    """

    after = Count(minimum=0, maximum=_MAX_SEQ, load_default=0)
    limit = Count(minimum=1, maximum=1000, load_default=100)


NOTIFICATION_QUERY, STREAM_QUERY = NotificationQuery(), FilterQuery()
SUBSCRIPTION_QUERY, DEAD_LETTER_QUERY = SubscriptionQuery(), DeadLetterQuery()
