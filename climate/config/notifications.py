"""The options of notifications: broker, retention of the log, webhooks and calendar feeds."""

import base64
import ipaddress
from datetime import timedelta

from oslo_config import cfg, types

from climate.core.notifications.subscription import WebhookRules

NOTIFICATIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="Broker URL for oslo.messaging, such as rabbit://user:password@host:5672/. Unset:"
        " notifications go only to the log and to GET /v2/notifications.",
    ),
    cfg.ListOpt(
        "topics",
        default=["notifications"],
        help="Topics on which to publish; the queue is TOPIC.info.",
    ),
    cfg.StrOpt(
        "publisher_id",
        default="climate.lease",
        help="Publisher id of the notifications, and source of CloudEvents.",
    ),
    cfg.IntOpt(
        "kept_days",
        default=90,
        min=0,
        max=36500,
        help="Days after which published notifications, and their dead letters, are removed; 0:"
        " never. Unpublished ones stay.",
    ),
    cfg.IntOpt(
        "followers",
        default=16,
        min=0,
        max=1000,
        help="Streams and long polls that a process serves at once. A project has at most a quarter"
        " of them, and a quarter is kept for provisioners. The built-in server has a thread for"
        " each, in addition to [api] threads; another server needs more threads than this.",
    ),
    cfg.IntOpt(
        "subscriptions_per_project",
        default=10,
        min=0,
        max=10000,
        help="Maximum number of webhook subscriptions of a project; 0: none.",
    ),
    cfg.IntOpt(
        "feeds_per_project",
        default=50,
        min=0,
        max=10000,
        help="Maximum number of calendar feeds of a project; 0: none.",
    ),
    cfg.ListOpt(
        "webhook_secret_keys",
        default=[],
        secret=True,
        item_type=types.String(),
        help="Fernet keys that encrypt the secrets of webhooks in the database. The first key"
        " encrypts, all decrypt. Empty: secrets are stored in clear.",
    ),
    cfg.ListOpt(
        "webhook_networks",
        default=[],
        item_type=types.String(),
        help="Networks (10.1.0.0/16, fd00::/8) that webhooks may reach besides the public"
        " Internet.",
    ),
    cfg.BoolOpt("webhook_http", default=False, help="Allow webhooks with plain http."),
    cfg.StrOpt("webhook_cafile", help="CA certificates for receivers of webhooks."),
    cfg.FloatOpt(
        "webhook_timeout",
        default=10.0,
        min=0.1,
        max=300,
        help="Seconds for a receiver to respond, including the time to connect.",
    ),
    cfg.IntOpt(
        "webhook_attempts",
        default=10,
        min=1,
        max=100,
        help="Attempts to deliver a notification before it becomes a dead letter. The pauses are"
        " 1, 2, 4 and so on seconds, at most 300: with 10 attempts, nine minutes.",
    ),
    cfg.IntOpt(
        "webhook_dead_letters",
        default=5,
        min=1,
        help="Consecutive dead letters that suspend a subscription.",
    ),
    cfg.IntOpt(
        "webhook_max_bytes",
        default=256 * 1024,
        min=4096,
        help="Maximum bytes of a body; of a larger notification only its ids, name and status are"
        " sent.",
    ),
    cfg.IntOpt(
        "webhook_parallel",
        default=16,
        min=1,
        max=1000,
        help="Subscriptions that a manager serves at once; slow receivers get half of them.",
    ),
]


_KEY_BYTES = 32


def retention(conf: cfg.ConfigOpts) -> timedelta | None:
    """Return how long climate keeps published notifications (None: forever)."""
    days = conf.notifications.kept_days
    return timedelta(days=days) if days else None


def webhook_rules(conf: cfg.ConfigOpts) -> WebhookRules:
    """Return the rules for webhooks, as configured.

    Raises ValueError, with a message for the operator, if an option is invalid.
    """
    options = conf.notifications
    try:
        networks = tuple(ipaddress.ip_network(text.strip()) for text in options.webhook_networks)
    except ValueError as error:
        raise ValueError(f"[notifications] webhook_networks: {error}") from None
    return WebhookRules(
        networks=networks,
        plain=options.webhook_http,
        timeout=options.webhook_timeout,
        attempts=options.webhook_attempts,
        given_up=options.webhook_dead_letters,
        largest=options.webhook_max_bytes,
        parallel=options.webhook_parallel,
        per_project=options.subscriptions_per_project,
        secret_keys=tuple(_fernet_key(text.strip()) for text in options.webhook_secret_keys),
    )


def _fernet_key(text: str) -> str:
    """Return ``text`` if it is a Fernet key, else raise ValueError.

    The message does not contain the key.
    """
    try:
        is_valid = len(base64.b64decode(text, altchars=b"-_", validate=True)) == _KEY_BYTES
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(
            "[notifications] webhook_secret_keys: each key must be the URL-safe base64 of 32 bytes"
        )
    return text
