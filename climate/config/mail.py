"""The options of e-mail: the mail server of the operator, the sender, and limits."""

import ipaddress
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.utils import parseaddr
from urllib.parse import urlsplit

from oslo_config import cfg, types

from climate.core.errors import InvalidInput
from climate.core.notifications.mail import EmailRules, check_address
from climate.core.notifications.wording import one_line

STARTTLS, TLS, NONE = "starttls", "tls", "none"

EMAIL: list[cfg.Opt] = [
    cfg.HostAddressOpt(
        "server",
        help="SMTP server that accepts the mails of climate. Unset: climate sends no e-mail.",
    ),
    cfg.PortOpt("port", default=587, help="Port of the SMTP server."),
    cfg.StrOpt(
        "security",
        default=STARTTLS,
        choices=[
            (STARTTLS, "Change to TLS after the connection, and send nothing without it."),
            (TLS, "TLS from the first byte, usually on port 465."),
            (NONE, "No encryption: only for a server on the same machine or network."),
        ],
        help="How the connection to the SMTP server is encrypted. The certificate is checked.",
    ),
    cfg.StrOpt("user", help="User at the SMTP server. Unset: climate does not authenticate."),
    cfg.StrOpt("password", secret=True, help="Password of the user at the SMTP server."),
    cfg.StrOpt("cafile", help="CA certificates for the SMTP server, instead of the system's."),
    cfg.StrOpt(
        "sender",
        help="Address from which mails come, such as climate@example.org or 'Lab leases"
        " <climate@example.org>'. The server sends messages about undeliverable mails to it.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=30.0,
        min=0.1,
        max=300,
        help="Seconds for the delivery of a mail to the server, including the connection.",
    ),
    cfg.IntOpt(
        "attempts",
        default=100,
        min=1,
        max=1000,
        help="Attempts to deliver a notification, while the server rejects it temporarily (4xx),"
        " before it becomes a dead letter. The pauses are 1, 2, 4 and so on seconds, at most 300.",
    ),
    cfg.ListOpt(
        "domains",
        default=[],
        item_type=types.String(),
        help="Domains to whose addresses climate sends mails. Empty: all domains.",
    ),
    cfg.IntOpt(
        "daily_hour",
        default=7,
        min=0,
        max=23,
        help="When daily digests are sent: the hour of the day in the subscription's time zone.",
    ),
    cfg.IntOpt(
        "subscriptions_per_project",
        default=10,
        min=0,
        max=10000,
        help="Maximum number of subscriptions of a project by e-mail; 0: none.",
    ),
    cfg.IntOpt(
        "confirmations_per_address",
        default=3,
        min=1,
        max=100,
        help="Maximum number of confirmations that climate sends to an address in an hour.",
    ),
    cfg.IntOpt(
        "confirmations_per_project",
        default=20,
        min=1,
        max=10000,
        help="Maximum number of confirmations that climate sends for a project in an hour.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MailServer:
    """The SMTP server of the operator, and the sender of mails.

    ``security`` is ``starttls``, ``tls`` or ``none``. ``timeout`` is in seconds.
    """

    host: str
    port: int
    security: str
    user: str | None
    password: str | None = field(repr=False)
    cafile: str | None
    sender: Address
    timeout: float


def email_rules(conf: cfg.ConfigOpts) -> EmailRules | None:
    """Return the rules for e-mail, as configured; None if climate sends no e-mail.

    Raises ValueError, with a message for the operator.
    """
    options = conf.email
    public_url(conf)
    if mail_server(conf) is None:
        return None
    return EmailRules(
        attempts=options.attempts,
        timeout=options.timeout,
        domains=tuple(domain.strip().lower() for domain in options.domains),
        daily_hour=options.daily_hour,
        per_project=options.subscriptions_per_project,
        confirmations_per_address=options.confirmations_per_address,
        confirmations_per_project=options.confirmations_per_project,
    )


def mail_server(conf: cfg.ConfigOpts) -> MailServer | None:
    """Return the SMTP server, as configured; None if there is none.

    Raises ValueError, with a message for the operator.
    """
    options = conf.email
    if not options.server:
        return None
    if not public_url(conf):
        raise ValueError(
            "[email] server is set, but [api] public_url is not: each mail needs a link that ends"
            " the subscription"
        )
    if options.user and options.security == NONE and not _is_local(options.server):
        raise ValueError(
            "[email] security = none would send the password in clear: use starttls or tls, or"
            " leave out user"
        )
    if bool(options.user) != bool(options.password):
        raise ValueError("[email] user and password must be set together")
    return MailServer(
        host=options.server,
        port=options.port,
        security=options.security,
        user=options.user,
        password=options.password,
        cafile=options.cafile,
        sender=_sender(options.sender or ""),
        timeout=options.timeout,
    )


def public_url(conf: cfg.ConfigOpts) -> str | None:
    """Return the address of the service for users, without a slash at its end (None: not known).

    Raises ValueError, with a message for the operator.
    """
    url: str | None = conf.api.public_url
    if not url:
        return None
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in {"https", "http"} and bool(parts.hostname)
    except ValueError:
        is_sound = False
    is_sound = is_sound and url.isascii() and url.isprintable() and not set(" <>\"'?#") & set(url)
    if not is_sound:
        raise ValueError(
            f"[api] public_url must be a URL such as https://climate.example.org, not {url!r}"
        )
    return url.rstrip("/")


def _sender(text: str) -> Address:
    name, address = parseaddr(text)
    try:
        check_address(address, EmailRules())
    except InvalidInput:
        raise ValueError(
            "[email] sender must be an address such as climate@example.org or"
            f" 'Lab leases <climate@example.org>', not {text!r}"
        ) from None
    return Address(display_name=one_line(name), addr_spec=address)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
