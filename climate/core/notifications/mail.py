"""Subscriptions by e-mail: which addresses are allowed, secret links, and when a digest is due.

climate sends nothing but the confirmation until the owner of the address has opened the link in it
and pressed the button (double opt-in). So users can subscribe only addresses whose owners agree.
Each mail contains a link that ends the subscription without a sign-in.
"""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from urllib.parse import quote, unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from climate.core.errors import InvalidInput
from climate.core.notifications.subscription import (
    SECRET_PREFIX,
    Frequency,
    Subscription,
    key_of,
)

#: The limit of SMTP (RFC 5321), without the angle brackets.
LONGEST_ADDRESS = 254
#: A confirmation can be used for this long.
CONFIRMED_WITHIN = timedelta(days=7)
#: Limits of confirmations count those of this last time.
LIMITED_TIME = timedelta(hours=1)
#: A digest covers at most this many notifications, and lists at most ``MOST_LISTED`` of them.
MOST_IN_DIGEST, MOST_LISTED = 1000, 100
_SCHEME = "mailto:"
_KEY_BYTES = 32
# As in HTML: what people use, without quoted names, comments and address literals.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"([\w.!#$%&'*+/=?^`{{|}}~-]{{1,64}})@({_LABEL}(?:\.{_LABEL})+)", re.ASCII)
_LINK = re.compile(r"([0-9a-f-]{36})\.[A-Za-z0-9_-]{43}", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_+/-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmailRules:
    """The operator's rules for e-mail.

    After ``attempts`` temporary failures, a notification becomes a dead letter. ``timeout`` is the
    maximum duration of a delivery in seconds. ``domains`` are the domains of allowed addresses
    (empty: all). Daily digests are sent at the hour ``daily_hour`` in the time zone of the
    subscription. A project can have ``per_project`` subscriptions by e-mail. In one hour, climate
    sends at most ``confirmations_per_address`` confirmations to an address, and at most
    ``confirmations_per_project`` for a project.
    """

    attempts: int = 100
    timeout: float = 30.0
    domains: tuple[str, ...] = ()
    daily_hour: int = 7
    per_project: int = 10
    confirmations_per_address: int = 3
    confirmations_per_project: int = 20


class Purpose(StrEnum):
    """What the secret link in a mail does."""

    CONFIRM = "confirm"
    UNSUBSCRIBE = "unsubscribe"


def check_address(text: str, rules: EmailRules) -> None:
    """Raise InvalidInput if ``text`` is no e-mail address, or if climate may not send mails to it.

    Addresses have ASCII characters only, as not every mail server accepts others.
    """
    form = _ADDRESS.fullmatch(text)
    local = form[1] if form else "."
    if form is None or len(text) > LONGEST_ADDRESS or ".." in local or "." in {local[0], local[-1]}:
        raise InvalidInput("This must be an e-mail address such as alice@example.org.")
    if rules.domains and form[2].lower() not in rules.domains:
        raise InvalidInput(
            f"The operator allows only addresses of these domains: {', '.join(rules.domains)}"
            " ([email] domains)"
        )


def url_of(address: str) -> str:
    """Return an e-mail address as a URL, such as ``mailto:alice@example.org`` (RFC 6068)."""
    return _SCHEME + quote(address, safe="@+!$'*-._~=")


def address_of(url: str) -> str | None:
    """Return the e-mail address in a ``mailto:`` URL; None for other URLs."""
    return unquote(url.removeprefix(_SCHEME)) if url.startswith(_SCHEME) else None


def mailbox_key(address: str) -> str:
    """Return a key by which confirmations to the same mailbox are counted.

    The key ignores case, and the tag in ``alice+tag@example.org``.
    """
    local, _, domain = address.lower().partition("@")
    return hashed(f"address {local.partition('+')[0]}@{domain}")


def hashed(text: str) -> str:
    """Return the SHA-256 of a text in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def new_secret() -> str:
    """Return a new random secret, from which the links in mails are made."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def link(subscription: Subscription, secret: str, purpose: Purpose) -> str:
    """Return the last part of the path of a secret link: an id and an unguessable token.

    ``secret`` is the secret of the subscription as plain text. A link that confirms an address
    belongs to one request for a confirmation, so a later request makes it invalid.
    """
    text = f"{purpose} {subscription.id}"
    if purpose is Purpose.CONFIRM and subscription.confirm_requested_at is not None:
        text += f" {subscription.confirm_requested_at.isoformat(timespec='microseconds')}"
    digest = hmac.new(key_of(secret), text.encode(), hashlib.sha256).digest()
    return f"{subscription.id}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def subscription_id_of(link_text: str) -> str | None:
    """Return the id of the subscription to which a link belongs; None if the link is malformed."""
    form = _LINK.fullmatch(link_text)
    return form[1] if form else None


def zone(name: str) -> tzinfo:
    """Return the time zone with this name, such as ``Europe/Berlin``.

    Returns UTC if the machine does not know the zone: a time in UTC is better than no mail.
    """
    if name == "UTC" or not _ZONE.fullmatch(name):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def check_zone(name: str) -> None:
    """Raise InvalidInput if this machine knows no time zone with this name."""
    if name != "UTC" and zone(name) is UTC:
        raise InvalidInput("This must be the name of a time zone, such as Europe/Berlin or UTC.")


def period_start(now: datetime, frequency: Frequency, of: tzinfo, hour: int) -> datetime:
    """Return when the period of a digest that contains ``now`` began, in UTC.

    An hourly period begins at the full hour. A daily one begins at ``hour`` in the time zone
    ``of``.
    """
    if frequency is not Frequency.DAILY:
        return now.replace(minute=0, second=0, microsecond=0)
    today = now.astimezone(of).date()
    starts = (_at(today - timedelta(days=days), hour, of) for days in (0, 1))
    return next((start for start in starts if start <= now), now)


def next_period(now: datetime, frequency: Frequency, of: tzinfo, hour: int) -> datetime:
    """Return when the next period of a digest begins after ``now``, in UTC."""
    began = period_start(now, frequency, of, hour)
    if frequency is not Frequency.DAILY:
        return began + timedelta(hours=1)
    return _at(began.astimezone(of).date() + timedelta(days=1), hour, of)


def _at(day: date, hour: int, of: tzinfo) -> datetime:
    return datetime.combine(day, time(hour), tzinfo=of).astimezone(UTC)
