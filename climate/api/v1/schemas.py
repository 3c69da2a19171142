"""Schemas of v1 requests. They ignore unknown keys, because v1 clients rely on that."""

import re
from datetime import UTC, datetime
from typing import Any

from marshmallow import EXCLUDE, Schema, ValidationError, fields, post_load, validate

from climate.core.errors import InvalidDate, InvalidInput, NotFound
from climate.core.lease.schedule import (
    BEFORE_END,
    END,
    EXPIRE,
    RELEASE,
    REVOKE,
    START,
    TELL_END,
    UPDATE,
)
from climate.core.notifications.event_type import CUSTOM_KIND
from climate.manager.leases.reservation_changes import MAX_RESERVATIONS

FORMAT = "%Y-%m-%d %H:%M"
NOW = "now"
_MAX_CAPABILITIES = 1_000
_MAX_KEY = 64
_MAX_VALUE = 10_000
_EMPTY = (None, "")
# Limits the number of reservations, or of custom events, in a request.
LIST_LENGTH = validate.Length(max=MAX_RESERVATIONS)
# Without a slash, which separates the network and the address.
_ID = validate.Regexp(r"[^/]{1,255}\Z")
# Without a colon, which separates the type, the physical network and the segment id.
_SEGMENT = validate.Regexp(r"[^:]{0,64}\Z")
# Events and notifications that only climate creates.
_RESERVED_KINDS = {START, END, UPDATE, f"{BEFORE_END}.stop", RELEASE, TELL_END, REVOKE, EXPIRE}


# Most dates have these digits. ``strptime`` also accepts others (2030-1-5), but is slow. Newer
# Pythons read 24:00 as the next midnight, which ``strptime`` rejects.
_USUAL = re.compile(r"\d{4}-\d\d-\d\d (?:[01]\d|2[0-3]):\d\d", re.ASCII)


def _moment(text: Any) -> datetime:  # noqa: ANN401 - any JSON value
    """Return the UTC time that a text in ``FORMAT`` names; raise ValueError or TypeError."""
    if isinstance(text, str) and _USUAL.fullmatch(text):
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    return datetime.strptime(text, FORMAT).replace(tzinfo=UTC)


class Date(fields.Field[Any]):
    """A field for a UTC date to the minute, such as ``2030-01-15 12:00``.

    If the argument ``now`` is true, the field also accepts the text ``now``.
    """

    def __init__(self, *, now: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._now = now

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> datetime | str:  # noqa: ANN401
        if value == NOW and self._now:
            return NOW
        try:
            return _moment(value)
        except (TypeError, ValueError):
            # Clients of Blazar look for this text up to the format.
            required = f"{FORMAT} (YYYY-MM-DD HH:MM in UTC{', or now' if self._now else ''})"
            raise InvalidDate(f"{value} is an invalid date. Required format: {required}") from None


class OptionalDate(Date):
    """A field for an optional date. Null and the empty text mean the same as an absent key."""

    def deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Load null and the empty text as None.

        Load any other value as a date, as ``Date`` does.
        """
        return None if value in _EMPTY else super().deserialize(value, *args, **kwargs)


class _Lenient(Schema):
    class Meta:
        unknown = EXCLUDE


def check_event_kind(kind: str) -> None:
    """Raise ValidationError if ``kind``, the type of a custom event of a lease, is not allowed.

    An allowed type has up to 64 characters, such as ``backup.start``. Types of events that climate
    itself creates, such as ``start_lease``, are not allowed.
    """
    if not CUSTOM_KIND.fullmatch(kind):
        raise ValidationError(
            "1 to 64 lower case letters, digits, _ and . only, the first of them a letter"
        )
    if kind in _RESERVED_KINDS:
        raise ValidationError(f"{kind} events are made by the service")


class EventSchema(_Lenient):
    """A custom event of a lease: its type, and its date in ``event_date`` or ``time``.

    At this date, climate publishes a notification. The ``openstack`` command sends the date as
    ``event_date``; Heat sends it as ``time``.
    """

    event_type = fields.String(required=True, validate=check_event_kind)
    event_date = OptionalDate(now=False, load_default=None)
    time = OptionalDate(now=False, load_default=None)

    @post_load
    def _pair(self, data: dict[str, Any], **_kwargs: Any) -> tuple[str, datetime]:
        moment = data["event_date"] or data["time"]
        if moment is None:
            raise ValidationError("Missing data for required field.", "event_date")
        return data["event_type"], moment


class LeaseCreate(_Lenient):
    """The body of a request to create a lease.

    The reservations are not validated here: the plug-in of the resource type validates each of
    them.
    """

    start_date = Date(required=True)
    name = fields.String(required=True, validate=validate.Length(1, 80))
    end_date = Date(required=True)
    before_end_date = OptionalDate(now=False, load_default=None)
    reservations = fields.List(fields.Dict(), load_default=list, validate=LIST_LENGTH)
    events = fields.List(fields.Nested(EventSchema), load_default=list, validate=LIST_LENGTH)


class LeaseUpdate(_Lenient):
    """The body of a request to change a lease. A field that the request omits keeps its value."""

    name = fields.String(validate=validate.Length(1, 80))
    start_date = OptionalDate(load_default=None)
    end_date = OptionalDate(load_default=None)
    before_end_date = OptionalDate(now=False, load_default=None)
    reservations = fields.List(fields.Dict(), load_default=list, validate=LIST_LENGTH)


class _Limit(_Lenient):
    limit = fields.Integer(load_default=None, validate=validate.Range(1, 1000))


class PageQuery(_Limit):
    """The query parameters for a page of a list.

    The page contains at most ``limit`` items, and starts after the item with the id ``marker``.
    """

    marker = fields.String(load_default=None)


class NumberedPageQuery(_Limit):
    """The query parameters of ``PageQuery``, for lists in which the ids are numbers."""

    marker = fields.Integer(load_default=0, validate=validate.Range(0, 2**63 - 1))


class ReservationType(_Lenient):
    """The resource type of a reservation, which determines the other keys of the reservation."""

    resource_type = fields.String(required=True, validate=validate.Length(1, 64))


class ReservationId(_Lenient):
    """The id of the reservation to change, in a request to change a lease."""

    id = fields.String(required=True)
    resource_type = fields.String(load_default=None, allow_none=True)


class FloatingipCreate(_Lenient):
    """The floating IP address that an operator makes reservable."""

    floating_network_id = fields.String(required=True, validate=_ID)
    floating_ip_address = fields.String(required=True, validate=_ID)


class NetworkCreate(_Lenient):
    """The network segment that an operator makes reservable.

    Keys of the request that are not in this schema are extra capabilities of the segment.
    """

    network_type = fields.String(required=True, validate=_SEGMENT)
    physical_network = fields.String(load_default="", allow_none=True, validate=_SEGMENT)
    segment_id = fields.Integer(required=True)


class PropertyUpdate(_Lenient):
    """The body of a request to make a property of hosts private (hidden in lists) or public."""

    private = fields.Boolean(required=True, truthy={True}, falsy={False})


LEASE_CREATE, LEASE_UPDATE = LeaseCreate(), LeaseUpdate()
RESERVATION_TYPE, RESERVATION_ID = ReservationType(), ReservationId()
PAGE, NUMBERED_PAGE = PageQuery(), NumberedPageQuery()


def capabilities(data: dict[str, Any]) -> dict[str, str]:
    """Validate ``data``, the extra capabilities in a request; return them with values as text.

    Extra capabilities are properties that an operator sets, such as ``{"rack": "r2"}``. Raises
    InvalidInput if there are too many of them, if a key is empty or too long, or if a value is too
    long or not a text, number or boolean.
    """
    if len(data) > _MAX_CAPABILITIES:
        raise InvalidInput(f"More than {_MAX_CAPABILITIES} extra capabilities in one request")
    for key, value in data.items():
        if len(key) > _MAX_KEY:
            raise InvalidInput(
                f"Extra capability key too long: {key[:_MAX_KEY]}... (limit {_MAX_KEY})"
            )
        if not key:
            raise InvalidInput("Extra capability key is empty")
        if not isinstance(value, str | int | float) or len(str(value)) > _MAX_VALUE:
            raise InvalidInput(
                f"Extra capability {key} must be a text, a number or a boolean of at most"
                f" {_MAX_VALUE} characters"
            )
    return {key: str(value) for key, value in data.items()}


def number(noun: str, text: str) -> int:
    """Return ``text``, a resource id from the URL, as a number.

    ``noun`` names the kind of resource in the error, such as ``host``. Raises NotFound if ``text``
    is not a number, because no resource has such an id.
    """
    if text.isascii() and text.isdecimal() and len(text) < len(str(2**63)):
        return int(text)
    raise NotFound(f"Object with {{'{noun}_id': '{text}'}} not found")
