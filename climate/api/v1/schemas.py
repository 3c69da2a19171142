"""What v1 clients may send. Unknown keys are ignored, as v1 clients rely on it."""

import re
from datetime import UTC, datetime
from typing import Any, ClassVar

from marshmallow import EXCLUDE, Schema, ValidationError, fields, post_load, validate

from climate.core.errors import InvalidDate, InvalidInput, NotFound
from climate.core.lease.schedule import BEFORE_END, END, RELEASE, REVOKE, START, TELL_END, UPDATE

FORMAT = "%Y-%m-%d %H:%M"
NOW = "now"
_MOST = 100
_CAPABILITIES = 1_000
_KEY = 64
_VALUE = 10_000
_KIND = re.compile(r"[a-z][a-z0-9_.]{0,63}", re.ASCII)
_EMPTY = (None, "")
# Text without a slash, which stands between network and address.
_ID = validate.Regexp(r"[^/]{1,255}\Z")
# Text without a colon, which stands between type, physical network and number.
_SEGMENT = validate.Regexp(r"[^:]{0,64}\Z")
# Events and notifications that only the service makes.
_OURS = {START, END, UPDATE, f"{BEFORE_END}.stop", RELEASE, TELL_END, REVOKE}


class Date(fields.Field[Any]):
    """A UTC date to the minute, or ``now`` where that is allowed (loaded as the word)."""

    def __init__(self, *, now: bool = True, **kwargs: Any) -> None:
        """Allow ``now`` or not."""
        super().__init__(**kwargs)
        self._now = now

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> datetime | str:  # noqa: ANN401
        if value == NOW and self._now:
            return NOW
        try:
            return datetime.strptime(value, FORMAT).replace(tzinfo=UTC)
        except (TypeError, ValueError):
            raise InvalidDate(f"{value} is an invalid date. Required format: {FORMAT}") from None


class OptionalDate(Date):
    """A date that may also be null or empty, which is as good as absent."""

    def deserialize(self, value: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Read null and the empty text as absent."""
        return None if value in _EMPTY else super().deserialize(value, *args, **kwargs)


class _Lenient(Schema):
    class Meta:
        unknown = EXCLUDE


def check_event_kind(kind: str) -> None:
    """Raise ValidationError unless users can have events of that kind."""
    if not _KIND.fullmatch(kind):
        raise ValidationError(
            "1 to 64 lower case letters, digits, _ and . only, the first of them a letter"
        )
    if kind in _OURS:
        raise ValidationError(f"{kind} events are made by the service")


class EventSchema(_Lenient):
    """A user's own event; the command line calls its date ``event_date``, Heat ``time``."""

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
    """A lease to be made; reservations are checked by the plugin of their type."""

    start_date = Date(required=True)
    name = fields.String(required=True, validate=validate.Length(1, 80))
    end_date = Date(required=True)
    before_end_date = OptionalDate(now=False, load_default=None)
    reservations = fields.List(
        fields.Dict(), load_default=list, validate=validate.Length(max=_MOST)
    )
    events = fields.List(
        fields.Nested(EventSchema), load_default=list, validate=validate.Length(max=_MOST)
    )


class LeaseUpdate(_Lenient):
    """What is to change; what is absent stays."""

    name = fields.String(validate=validate.Length(1, 80))
    start_date = OptionalDate(load_default=None)
    end_date = OptionalDate(load_default=None)
    before_end_date = OptionalDate(now=False, load_default=None)
    reservations = fields.List(
        fields.Dict(), load_default=list, validate=validate.Length(max=_MOST)
    )


class ReservationType(_Lenient):
    """The part of a reservation that all types share."""

    resource_type = fields.String(required=True, validate=validate.Length(1, 64))


class ReservationId(_Lenient):
    """Which reservation of the lease is to change."""

    id = fields.String(required=True)
    resource_type = fields.String(load_default=None, allow_none=True)


class FloatingipCreate(_Lenient):
    """An address that is to be reserved."""

    floating_network_id = fields.String(required=True, validate=_ID)
    floating_ip_address = fields.String(required=True, validate=_ID)


class NetworkCreate(_Lenient):
    """A segment on which networks are to be reserved; other keys are extra capabilities."""

    network_type = fields.String(required=True, validate=_SEGMENT)
    physical_network = fields.String(load_default="", allow_none=True, validate=_SEGMENT)
    segment_id = fields.Integer(required=True)


class PropertyUpdate(_Lenient):
    """Whether ordinary listings show a property."""

    private = fields.Boolean(required=True, truthy={True}, falsy={False})


class Capabilities:
    """Extra capabilities: whatever keys, values kept as text."""

    _scalars: ClassVar = (str, int, float, bool)

    @classmethod
    def load(cls, data: dict[str, Any]) -> dict[str, str]:
        """Return the values as text; raises InvalidInput for what has no plain text."""
        if len(data) > _CAPABILITIES:
            raise InvalidInput(f"More than {_CAPABILITIES} extra capabilities in one request")
        for key, value in data.items():
            if len(key) > _KEY:
                raise InvalidInput(f"Extra capability key too long: {key[:_KEY]}... (limit {_KEY})")
            if not key:
                raise InvalidInput("Extra capability key is empty")
            if not isinstance(value, cls._scalars) or len(str(value)) > _VALUE:
                raise InvalidInput(
                    f"Extra capability {key} must be a text, a number or a boolean of at most"
                    f" {_VALUE} characters"
                )
        return {key: str(value) for key, value in data.items()}


LEASE_CREATE, LEASE_UPDATE = LeaseCreate(), LeaseUpdate()
RESERVATION_TYPE, RESERVATION_ID = ReservationType(), ReservationId()


def number(noun: str, text: str) -> int:
    """Return the number that an id is; whatever else is no id of any ``noun``."""
    if text.isascii() and text.isdecimal() and len(text) < len(str(2**63)):
        return int(text)
    raise NotFound(f"Object with {{'{noun}_id': '{text}'}} not found")
