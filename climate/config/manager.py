"""The options of ``[manager]``: plug-ins, intervals, time-outs, retries and metrics.

Also those of ``[selection]``: filters of Nova's scheduler.
"""

from oslo_config import cfg, types

from climate.core.matching.property_type import Types
from climate.core.notifications import reminder

SELECTION: list[cfg.Opt] = [
    cfg.ListOpt(
        "nova_filters",
        default=[],
        help="Filters of Nova's scheduler that a host must pass to be booked, as paths of classes,"
        " such as nova.scheduler.filters.compute_filter.ComputeFilter. They need the package nova"
        " in climate's environment. All processes need the same value.",
    ),
    cfg.ListOpt(
        "nova_config_files",
        default=[],
        help="Configuration files of Nova from which these filters read their options, such as"
        " /etc/nova/nova.conf. Empty: Nova's default values.",
    ),
]
MANAGER = [
    cfg.ListOpt(
        "plugins",
        default=["physical.host.plugin"],
        help="Enabled resource plugins; a missing or broken plugin prevents the start.",
    ),
    cfg.ListOpt(
        "filters",
        default=[],
        help="Additional filters that a resource must pass to be booked, such as no_maintenance,"
        " which excludes hosts whose extra capability maintenance is true.",
    ),
    cfg.ListOpt(
        "weighers",
        default=[],
        help="Weighers that order resources, each NAME or NAME=MULTIPLIER: fewest_properties,"
        " fewest_left, lowest_id, or your own. A negative multiplier reverses the order. Empty: a"
        " random order, in which parallel requests rarely conflict.",
    ),
    cfg.BoolOpt(
        "packs_hosts",
        default=False,
        help="Whether requests try the resources with the lowest ids first, instead of random ones."
        " This leaves more resources free for long leases, but parallel requests conflict more"
        " often.",
    ),
    cfg.IntOpt(
        "minutes_before_end_lease",
        default=60,
        min=0,
        help="Minutes before the end of a lease for its before_end_lease event; 0: no event. In a"
        " shorter lease it is due at the start.",
    ),
    cfg.ListOpt(
        "before_start_leads",
        item_type=types.Integer(min=1),
        default=[3600, 600, 60],
        help="Seconds before the start of a lease for its reminders (before_start_lease). A lease"
        " with before_start_lease events of its own has those instead.",
    ),
    cfg.MultiStrOpt(
        "reminder_rules",
        default=[],
        help="Other reminders of the start for certain leases, 'TYPE: SECONDS, SECONDS' or 'TYPE"
        " EXPRESSION: SECONDS, p95'. One rule per line; the first that matches a lease replaces"
        " before_start_leads."
        " TYPE is the type of a reservation of the lease. EXPRESSION selects by the properties of"
        " the resources that the lease books. p95 is the learned lead time with which the hosts of"
        " 95 % of leases are ready; it needs [provisioning] enabled.",
    ),
    cfg.ListOpt(
        "before_end_leads",
        item_type=types.Integer(min=1),
        default=[],
        help="Seconds before the end of a lease for further reminders (before_end_reminder). Those"
        " that would be due before its start are left out.",
    ),
    cfg.IntOpt(
        "event_max_retries",
        default=5,
        min=0,
        max=50,
        help="Quick retries, with growing pauses of at most a minute. After them a start or end"
        " shows ERROR and is retried about every minute; an update or before-end is abandoned.",
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=1.0,
        min=0.05,
        help="Seconds between queries for due events if no timer or hint causes one. Without"
        " PostgreSQL, also the delay until other processes' changes are seen.",
    ),
    cfg.FloatOpt(
        "sync_interval",
        default=60.0,
        min=0.1,
        help="Seconds between synchronisations of the resources and their states with the cloud.",
    ),
    cfg.FloatOpt(
        "claim_timeout",
        default=30.0,
        min=1,
        help="Seconds without a heartbeat after which other managers reclaim a manager's events,"
        " and it may no longer change the cloud. Must be much longer than a busy machine pauses"
        " a thread.",
    ),
    cfg.FloatOpt(
        "call_timeout",
        default=600.0,
        min=1,
        help="Seconds that a plugin may take to start or end a reservation; then the attempt has"
        " failed and its worker is free.",
    ),
    cfg.FloatOpt(
        "late_after",
        default=60.0,
        min=1,
        help="Seconds after its due time from which an event is late: a notification"
        " (lease.catch_up) lists the late and the skipped events of a lease once.",
    ),
    cfg.IntOpt(
        "workers",
        default=8,
        min=1,
        help="Events that a manager runs at once. Each resource type has reserved workers, and no"
        " project gets all workers.",
    ),
    cfg.FloatOpt(
        "shutdown_timeout",
        default=20.0,
        min=0,
        help="Seconds to finish events in progress after SIGTERM; then the manager releases them.",
    ),
    cfg.FloatOpt(
        "self_audit_interval",
        default=60.0,
        min=0,
        help="Seconds between checks of the invariants; 0: no checks.",
    ),
    cfg.StrOpt(
        "calendar_memory",
        default="auto",
        choices=["auto", "on", "off"],
        help="Whether each process keeps the bookings of hosts in memory, to refuse requests and"
        " find windows without long queries; auto: if there are at least 50 hosts. Takes about"
        " 65 MiB for a million bookings.",
    ),
    cfg.IntOpt(
        "ended_leases_days",
        default=90,
        min=0,
        max=36500,
        help="Days after its end until a lease is removed with its reservations and events; the"
        " history keeps a row. 0: never.",
    ),
    cfg.IntOpt(
        "history_days",
        default=730,
        min=0,
        max=36500,
        help="Days after the end of a lease until its row in the history of removed leases"
        " (past_leases) is removed; 0: never.",
    ),
    cfg.HostAddressOpt(
        "metrics_host", default="127.0.0.1", help="Address on which a manager serves metrics."
    ),
    cfg.PortOpt(
        "metrics_port",
        min=1,
        help="Port on which a manager serves metrics to Prometheus; unset: none.",
    ),
]


def reminder_rules(conf: cfg.ConfigOpts, properties: Types) -> tuple[reminder.Rule, ...]:
    """Return the rules by which certain leases have other reminders.

    ``properties`` are the declared types of properties. Raises ValueError if a rule is invalid.
    """
    lines = conf.manager.reminder_rules
    try:
        rules = tuple(reminder.parse(line, properties) for line in lines)
    except ValueError as error:
        raise ValueError(f"[manager] reminder_rules: {error}") from None
    if any(rule.shares for rule in rules) and not conf.provisioning.enabled:
        raise ValueError("[manager] reminder_rules: p95 and the like need [provisioning] enabled")
    return rules
