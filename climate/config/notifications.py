"""The options of notifications: the broker, the retention of the log, and webhooks."""

import ipaddress
from datetime import timedelta

from oslo_config import cfg, types

from climate.core.notifications.subscription import Network, WebhookRules


def _network(text: str) -> Network:
    """Parse a network; raises ValueError."""
    return ipaddress.ip_network(text.strip())


NOTIFICATIONS: list[cfg.Opt] = [
    cfg.StrOpt(
        "transport_url",
        secret=True,
        help="URL of the broker for oslo.messaging, such as rabbit://user:password@host:5672/."
        " Without it notifications are logged and kept for GET /v2/notifications.",
    ),
    cfg.ListOpt("topics", default=["notifications"], help="Topics to publish on."),
    cfg.StrOpt("publisher_id", default="climate.lease", help="Who we say that we are."),
    cfg.IntOpt(
        "kept_days",
        default=90,
        min=0,
        max=36500,
        help="Days after which notifications that were published are removed, and dead letters"
        " with them; 0: never.",
    ),
    cfg.IntOpt(
        "followers",
        default=16,
        min=0,
        max=1000,
        help="How many may follow notifications at once at a process, by streams and by questions"
        " that wait. The built-in server has a thread for each, besides [api] threads; with"
        " another server, leave it most of its threads.",
    ),
    cfg.IntOpt(
        "subscriptions_per_project",
        default=10,
        min=0,
        max=10000,
        help="Webhook subscriptions that a project may have; 0: nobody has any.",
    ),
    cfg.ListOpt(
        "webhook_networks",
        default=[],
        item_type=types.String(),
        help="Networks (10.1.0.0/16, fd00::/8) that webhooks may reach besides the public"
        " Internet.",
    ),
    cfg.BoolOpt(
        "webhook_http", default=False, help="Whether webhooks may be plain http, not only https."
    ),
    cfg.StrOpt("webhook_cafile", help="Certificates that those of receivers are checked with."),
    cfg.FloatOpt(
        "webhook_timeout",
        default=10.0,
        min=0.1,
        max=300,
        help="Seconds that a receiver has to answer, connecting included.",
    ),
    cfg.IntOpt(
        "webhook_attempts",
        default=10,
        min=1,
        max=100,
        help="Times that a notification is tried before it is put aside as a dead letter. The"
        " pauses are 1, 2, 4 and so on seconds, at most 300.",
    ),
    cfg.IntOpt(
        "webhook_dead_letters",
        default=5,
        min=1,
        help="Dead letters in a row after which a subscription is suspended.",
    ),
    cfg.IntOpt(
        "webhook_max_bytes",
        default=256 * 1024,
        min=4096,
        help="Largest body that is sent; of a larger one only what it is about.",
    ),
    cfg.IntOpt(
        "webhook_parallel",
        default=16,
        min=1,
        max=1000,
        help="Subscriptions that a manager serves at once; those with slow receivers get half.",
    ),
]


def retention(conf: cfg.ConfigOpts) -> timedelta | None:
    """Return how long climate keeps published notifications; None: forever."""
    days = conf.notifications.kept_days
    return timedelta(days=days) if days else None


def webhook_rules(conf: cfg.ConfigOpts) -> WebhookRules:
    """Return the rules for webhooks in the configuration; raises ValueError for a bad network."""
    options = conf.notifications
    return WebhookRules(
        networks=tuple(_network(text) for text in options.webhook_networks),
        plain=options.webhook_http,
        timeout=options.webhook_timeout,
        attempts=options.webhook_attempts,
        given_up=options.webhook_dead_letters,
        largest=options.webhook_max_bytes,
        parallel=options.webhook_parallel,
        per_project=options.subscriptions_per_project,
    )
