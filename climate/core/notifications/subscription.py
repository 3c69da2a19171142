"""Subscriptions by webhook and e-mail: allowed URLs, and what happens if a delivery fails.

climate delivers the notifications of a subscription one at a time, so its receiver gets them in
order. It retries a failed delivery with growing pauses. When all attempts have failed, the
notification becomes a dead letter: climate delivers it again only if the owner of the subscription
asks for it. After several dead letters in a row, climate suspends the subscription until its owner
resumes it.
"""

import base64
import binascii
import ipaddress
import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from urllib.parse import urlsplit

from climate.core.errors import InvalidInput
from climate.core.notifications.message import Notification, NotificationFilter

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

LONGEST_URL = 2048
#: The format of Standard Webhooks: this prefix and the base64 of 24 to 64 bytes.
SECRET_PREFIX = "whsec_"  # noqa: S105 - how secrets begin
_KEY_BYTES = range(24, 65)
# Seconds: the longest pause of climate, and the longest Retry-After that it honours.
_LONGEST_PAUSE = 300.0
_LONGEST_RETRY_AFTER = 3600.0
_LONGEST_REASON = 500
# Seconds until the next attempt if the mail server of climate fails.
_PAUSE_WITHOUT_SERVER = 30.0
# All global unicast addresses assigned so far (RFC 4291).
_UNICAST = ipaddress.IPv6Network("2000::/3")
# More networks that are not public: which of them ``is_global`` rejects depends on the patch
# release of Python.
_SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",  # IETF protocol assignments; Oracle Cloud has metadata at 192.0.0.192
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "168.63.129.16/32",  # Azure's host, as its virtual machines see it
        "2001::/23",  # IETF protocol assignments, with Teredo
        "3fff::/20",  # documentation
    )
)
# Globally reachable anycast addresses in 192.0.0.0/24 (RFC 7723, RFC 8155).
_ANYCAST = {ipaddress.IPv4Address("192.0.0.9"), ipaddress.IPv4Address("192.0.0.10")}
# IPv6 addresses with an IPv4 address in their last 32 bits, for NAT64 gateways (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class SubscriptionStatus(Enum):
    """Whether climate delivers to a subscription (ACTIVE) or not (SUSPENDED)."""

    ACTIVE = "active"
    SUSPENDED = "suspended"


class Kind(StrEnum):
    """How climate delivers notifications: by HTTP POST (WEBHOOK) or by e-mail (EMAIL)."""

    WEBHOOK = "webhook"
    EMAIL = "email"


class Format(StrEnum):
    """The form of a webhook's body: a CloudEvent, or a message that a chat service accepts."""

    CLOUDEVENTS = "cloudevents"
    SLACK = "slack"
    MATRIX = "matrix"
    TEAMS = "teams"


class Frequency(StrEnum):
    """How often climate sends e-mail: for each notification, or at most once an hour or a day."""

    IMMEDIATE = "immediate"
    HOURLY = "hourly"
    DAILY = "daily"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRules:
    """The operator's rules for webhooks.

    ``networks`` are the networks, besides the public Internet, to which webhooks may go. ``plain``
    allows http URLs. ``timeout`` is the maximum duration of a delivery in seconds. After
    ``attempts`` failed attempts, a notification becomes a dead letter. After ``given_up`` dead
    letters in a row, the subscription is suspended. ``largest`` is the maximum size of a body in
    bytes. A manager serves ``parallel`` subscriptions at once. A project can have ``per_project``
    subscriptions. ``secret_keys`` are Fernet keys for stored secrets: the first encrypts, all
    decrypt.
    """

    networks: tuple[Network, ...] = ()
    plain: bool = False
    timeout: float = 10.0
    attempts: int = 10
    given_up: int = 5
    largest: int = 256 * 1024
    parallel: int = 16
    per_project: int = 10
    secret_keys: tuple[str, ...] = field(default=(), repr=False)


#: The defaults.
NO_WEBHOOK_RULES = WebhookRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription to notifications, and the progress of its deliveries.

    All notifications up to the number ``done_seq`` are processed: they were delivered, became dead
    letters, or do not match the filter ``wanted``. ``attempts`` is the number of failed attempts to
    deliver the next notification. ``given_up`` is the number of dead letters in a row. ``reason``
    is why the subscription is suspended. ``slow`` means that the last delivery was slow or failed.
    With ``all_projects``, the subscription gets notifications of all projects.

    ``time_zone`` is the zone of the times in mails and chat messages. The other fields are for
    e-mail, whose ``url`` is a ``mailto:`` URL. climate sends notifications only after the owner of
    the address has confirmed it (``confirmed_at``). ``confirm_requested_at`` and
    ``confirm_sent_at`` are the times of the last request for a confirmation, and of its mail. The
    digest that climate is about to send ends at the number ``digest_through``.

    ``before_start_leads`` are the numbers of seconds before the start of a lease at which the
    subscriber wants reminders. Reminders due up to ``reminded_through`` are written.
    """

    id: str
    project_id: str
    user_id: str
    url: str
    wanted: NotificationFilter
    all_projects: bool
    status: SubscriptionStatus = SubscriptionStatus.ACTIVE
    reason: str | None = None
    done_seq: int
    attempts: int = 0
    given_up: int = 0
    slow: bool = False
    delivered_at: datetime | None = None
    created_at: datetime
    updated_at: datetime | None = None
    kind: Kind = Kind.WEBHOOK
    format: Format = Format.CLOUDEVENTS
    frequency: Frequency = Frequency.IMMEDIATE
    time_zone: str = "UTC"
    confirmed_at: datetime | None = None
    confirm_requested_at: datetime | None = None
    confirm_sent_at: datetime | None = None
    digest_through: int | None = None
    before_start_leads: tuple[int, ...] = ()
    reminded_through: datetime | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether climate may send notifications to the receiver."""
        return self.kind is not Kind.EMAIL or self.confirmed_at is not None

    @property
    def is_digest(self) -> bool:
        """Whether climate combines notifications in one mail."""
        return self.frequency is not Frequency.IMMEDIATE


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter: a notification that climate could not deliver to a subscription.

    ``wanted`` means that the owner of the subscription requested another delivery, which has not
    happened yet.
    """

    subscription_id: str
    seq: int
    attempts: int
    reason: str
    wanted: bool
    failed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The notifications that one mail reports: all numbers in order, and those that it lists."""

    seqs: tuple[int, ...]
    listed: tuple[Notification, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An attempt, at the time ``at``, to deliver a notification to a subscription.

    ``letter`` is the dead letter that is delivered again. It is None if the notification is not a
    dead letter. ``secret`` is as the database stores it, perhaps encrypted. With ``digest``, the
    delivery is a mail about several notifications, the first of which is ``notification``.
    """

    subscription: Subscription
    secret: str = field(repr=False)
    notification: Notification
    letter: DeadLetter | None
    at: datetime
    digest: Digest | None = None

    @property
    def seqs(self) -> tuple[int, ...]:
        """The numbers of all notifications that are delivered, in order."""
        return self.digest.seqs if self.digest else (self.notification.seq,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """An attempt, at the time ``at``, to send the mail by which an address is confirmed.

    ``secret`` is as the database stores it, perhaps encrypted.
    """

    subscription: Subscription
    secret: str = field(repr=False)
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an attempt to deliver a notification. It succeeded if ``reason`` is None.

    ``gone`` means that the receiver answered 410. ``permanent`` means that the receiver rejected
    the notification for good. ``is_ours`` means that the mail server of climate failed, which is
    not the fault of the receiver. ``retry_after`` is the pause in seconds that the receiver
    requested. ``slow`` means that the receiver answered slowly or gave no answer.
    """

    reason: str | None = None
    gone: bool = False
    permanent: bool = False
    is_ours: bool = False
    retry_after: float = 0.0
    slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What climate does after a failed delivery.

    It retries after ``pause`` seconds. If ``give_up`` is set, it makes the notification a dead
    letter instead. ``suspend`` is the reason to suspend the subscription (None: do not suspend it).
    ``counts`` states whether the attempt counts towards the maximum.
    """

    pause: float
    give_up: bool = False
    counts: bool = True
    suspend: str | None = None


def judge(failed: Subscription, outcome: Outcome, rules: WebhookRules, jitter: float) -> Verdict:
    """Decide what climate does after a failed delivery to the subscription ``failed``.

    ``outcome`` is the result of the delivery. ``jitter`` is a random number in [0, 1), which varies
    the pause before the retry.
    """
    reason = (outcome.reason or "")[:_LONGEST_REASON]
    if outcome.gone:
        return Verdict(pause=0.0, suspend=reason)
    vary = 0.75 + jitter / 2
    if outcome.is_ours:
        return Verdict(pause=_PAUSE_WITHOUT_SERVER * vary, counts=False)
    requested = min(outcome.retry_after, _LONGEST_RETRY_AFTER)
    pause = max(min(2.0 ** min(failed.attempts, 30), _LONGEST_PAUSE) * vary, requested)
    if failed.attempts + 1 < rules.attempts and not outcome.permanent:
        return Verdict(pause=pause)
    if failed.given_up + 1 < rules.given_up:
        return Verdict(pause=pause, give_up=True)
    text = f"{rules.given_up} notifications in a row were not delivered; the last error: {reason}"
    return Verdict(pause=0.0, give_up=True, suspend=text)


def key_of(secret: str) -> bytes:
    """Return the key in ``secret``, which is ``whsec_`` and the base64 of 24 to 64 bytes.

    Raises InvalidInput if ``secret`` has another form.
    """
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(SECRET_PREFIX) or len(key) not in _KEY_BYTES:
        raise InvalidInput(
            f"This must be {SECRET_PREFIX} and the base64 of 24 to 64 random bytes, as from:"
            f' echo "{SECRET_PREFIX}$(openssl rand -base64 32)"'
        )
    return key


def check_url(url: str, rules: WebhookRules) -> None:
    """Raise InvalidInput if ``url`` is invalid, or if the rules forbid webhooks to it.

    If the URL contains an IP address, the function checks the address. It does not resolve host
    names.
    """
    host, _ = where(url)
    scheme = url.partition(":")[0].lower()
    if scheme != "https" and not (rules.plain and scheme == "http"):
        schemes = "https:// or http://" if rules.plain else "https://"
        raise InvalidInput(f"This must begin with {schemes}.")
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.fragment:
        raise InvalidInput("Leave out user, password and fragment: they cannot be sent.")
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        check_address("127.0.0.1", rules)
    elif re.fullmatch(r"[\d.]+|.*:.*", name):
        check_address(name, rules)


def where(url: str) -> tuple[str, int]:
    """Return the host and the port of a URL; raises InvalidInput for an invalid URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        is_sound = bool(host) and url.isascii() and url.isprintable() and " " not in url
    except ValueError:
        host, port, is_sound = None, None, False
    if not is_sound or not host or port == 0 or len(url) > LONGEST_URL:
        raise InvalidInput("This must be a URL such as https://example.org/hook.")
    return host, port or (443 if parts.scheme == "https" else 80)


def check_address(text: str, rules: WebhookRules) -> None:
    """Raise InvalidInput if ``text`` is no IP address, or if the rules forbid webhooks to it."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        raise InvalidInput("This is not an IP address in its standard form.") from None
    effective = effective_address(address)
    is_allowed = any(effective in network for network in rules.networks)
    if not (is_allowed or _is_public(effective)):
        raise InvalidInput(
            "This address is not public: ask your operator to allow it"
            " ([notifications] webhook_networks)"
        )


def effective_address(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address contains; otherwise return ``address``."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address


def _is_public(address: Address) -> bool:
    if address not in _ANYCAST and any(address in network for network in _SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_global and address in _UNICAST
    return address.is_global and not address.is_multicast
