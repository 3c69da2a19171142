"""Notifications, and what sends them elsewhere: subscriptions (webhooks) and calendar feeds."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict, Unpack

from climate.client.errors import ClientError, TemporarilyUnavailable
from climate.client.models import DeadLetter, Feed, Notification, Subscription
from climate.client.transport import Answer, Transport, convert, patiently, segment

# Seconds of one long poll.
_POLL = 30
_NO_PLACE = "too_many_followers"


class NotificationFilter(TypedDict, total=False):
    """Which notifications to read. An ``event_type`` may end with ``*``."""

    event_type: Sequence[str]
    lease_id: str
    resource_type: str
    project_id: str


class Notifications:
    """The notifications of the caller's project. Methods raise the errors of ``Transport.send``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def last(self) -> int:
        """Return the number of the last notification."""
        answer = self._transport.send("GET", "/notifications", query={"limit": 0})
        return answer.member("after", int)

    def list(
        self, *, after: int = 0, limit: int | None = None, **wanted: Unpack[NotificationFilter]
    ) -> Iterator[Notification]:
        """Yield the stored notifications with numbers above ``after``, at most ``limit``."""
        left = limit
        while left is None or left > 0:
            query = {**wanted, "after": after, "limit": 1000 if left is None else min(left, 1000)}
            answer = self._transport.send("GET", "/notifications", query=query)
            found = _notifications(answer)
            yield from found
            left = None if left is None else left - len(found)
            if not found:
                return
            after = answer.member("after", int)

    def follow(
        self,
        *,
        after: int | None = None,
        on_retry: Callable[[ClientError], None] | None = None,
        **wanted: Unpack[NotificationFilter],
    ) -> Iterator[Notification]:
        """Yield notifications as climate publishes them, forever.

        Begins after the number ``after``, or with what is new. While the service does not answer,
        it is tried again and again, and no notification is lost; ``on_retry`` is called with each
        error. Raises NotificationsRemoved if the next ones are not kept any more.
        """
        if after is None:
            after = patiently(self.last, on_retry=on_retry)
        while True:
            position = after
            answer = patiently(lambda: self._poll(position, wanted), on_retry=on_retry)  # noqa: B023
            yield from _notifications(answer)
            after = answer.member("after", int)

    def _poll(self, after: int, wanted: NotificationFilter) -> Answer:
        query = {**wanted, "after": after}
        try:
            return self._transport.wait("/notifications", query=query, seconds=_POLL)
        except TemporarilyUnavailable as error:
            if error.code != _NO_PLACE:
                raise
        # What is there needs no place. If there is nothing, the error makes the caller pause.
        answer = self._transport.wait("/notifications", query=query, seconds=0)
        if not _notifications(answer):
            raise TemporarilyUnavailable(
                503,
                {"code": _NO_PLACE, "detail": "The service has no place for a long poll."},
            )
        return answer


class SubscriptionOptions(TypedDict, total=False):
    """What a subscription can have.

    ``secret`` is ``whsec_`` and the base64 of 24 to 64 bytes. ``before_start_leads`` asks for
    reminders so many seconds before the start of each lease.
    """

    url: str
    secret: str
    event_types: Sequence[str]
    lease_id: str | None
    resource_type: str | None
    before_start_leads: Sequence[int]
    after: int
    all_projects: bool
    status: str


class Subscriptions:
    """The webhooks of the caller's project. Methods raise the errors of ``Transport.send``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, **options: Unpack[SubscriptionOptions]) -> Subscription:
        """Create a subscription; ``url`` and ``secret`` are required."""
        answer = self._transport.send("POST", "/subscriptions", body=options)
        return convert(answer.body, Subscription)

    def list(self, *, all_projects: bool = False) -> Iterator[Subscription]:
        """Yield the subscriptions."""
        query = {"all_projects": all_projects}
        return self._transport.pages("/subscriptions", "subscriptions", Subscription, query)

    def get(self, subscription_id: str) -> Subscription:
        """Return a subscription. Raises NotFound."""
        return self._transport.get(_subscription(subscription_id), Subscription)

    def update(self, subscription_id: str, **changes: Unpack[SubscriptionOptions]) -> Subscription:
        """Change a subscription. With ``status``, suspend or resume it."""
        answer = self._transport.send("PATCH", _subscription(subscription_id), body=changes)
        return convert(answer.body, Subscription)

    def delete(self, subscription_id: str) -> None:
        """Delete a subscription."""
        self._transport.send("DELETE", _subscription(subscription_id))

    def dead_letters(self, subscription_id: str) -> Iterator[DeadLetter]:
        """Yield the notifications that the receiver did not accept."""
        path, after = f"{_subscription(subscription_id)}/dead-letters", 0
        while True:
            answer = self._transport.send("GET", path, query={"after": after, "limit": 1000})
            found = answer.member("dead_letters", tuple[DeadLetter, ...])
            yield from found
            if not found:
                return
            after = found[-1].seq

    def redeliver(self, subscription_id: str, seqs: Sequence[int] = ()) -> int:
        """Send dead letters again (default: all). Return how many."""
        body = {"seqs": list(seqs)} if seqs else {}
        path = f"{_subscription(subscription_id)}/redeliver"
        answer = self._transport.send("POST", path, body=body)
        return answer.member("redelivering", int)


class Feeds:
    """The calendar feeds of the project. Methods raise the errors of ``Transport.send``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, scope: str, target_id: str, name: str | None = None) -> Feed:
        """Create a feed of a ``lease``, a ``project`` or a ``resource``; it has its secret URL."""
        body = {"scope": scope, "id": target_id, **({"name": name} if name else {})}
        return convert(self._transport.send("POST", "/feeds", body=body).body, Feed)

    def list(self, *, all_projects: bool = False) -> Iterator[Feed]:
        """Yield the feeds, without their URLs."""
        return self._transport.pages("/feeds", "feeds", Feed, {"all_projects": all_projects})

    def delete(self, feed_id: str) -> None:
        """Delete a feed: its URL leads nowhere from now on."""
        self._transport.send("DELETE", f"/feeds/{segment(feed_id)}")


def _notifications(answer: Answer) -> tuple[Notification, ...]:
    return answer.member("notifications", tuple[Notification, ...])


def _subscription(subscription_id: str) -> str:
    return f"/subscriptions/{segment(subscription_id)}"
