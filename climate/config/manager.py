"""The options of ``[manager]``: plug-ins, intervals, time-outs, retries and metrics."""

from oslo_config import cfg, types

MANAGER = [
    cfg.ListOpt(
        "plugins",
        default=["physical.host.plugin"],
        help="Resource plugins in use; one that is missing or broken stops the start.",
    ),
    cfg.ListOpt(
        "filters",
        default=[],
        help="Filters that a resource must pass to be booked, besides what was asked for.",
    ),
    cfg.ListOpt(
        "weighers",
        default=[],
        help="Weighers that say which resources are taken first, each NAME or NAME=MULTIPLIER."
        " Without any, requests are spread, so that parallel ones rarely meet.",
    ),
    cfg.IntOpt(
        "minutes_before_end_lease",
        default=60,
        min=0,
        help="Minutes before its end that a lease's before_end_lease event is due; 0 for none.",
    ),
    cfg.ListOpt(
        "before_start_leads",
        item_type=types.Integer(min=1),
        default=[3600, 600, 60],
        help="Seconds before its start that a lease's heads-ups (before_start_lease) are due.",
    ),
    cfg.IntOpt(
        "event_max_retries",
        default=5,
        min=0,
        max=50,
        help="Times a failed start or end is soon tried again before the lease shows ERROR; after"
        " that it is tried on at a slow pace.",
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=1.0,
        min=0.05,
        help="Seconds between looks at the database when no timer or hint calls: the net under"
        " both, and how late other processes' work is seen without PostgreSQL.",
    ),
    cfg.FloatOpt(
        "sync_interval",
        default=60.0,
        min=0.1,
        help="Seconds between looks at which resources the cloud has and which of them work.",
    ),
    cfg.FloatOpt(
        "claim_timeout",
        default=30.0,
        min=1,
        help="Seconds after which the work of a manager that stopped answering is taken over, and"
        " it may change nothing in the cloud any more.",
    ),
    cfg.FloatOpt(
        "call_timeout",
        default=600.0,
        min=1,
        help="Seconds that a plugin may take to hand one reservation over, or to take it back;"
        " then the attempt has failed, and others get its worker.",
    ),
    cfg.FloatOpt(
        "late_after",
        default=60.0,
        min=1,
        help="Seconds past its time after which an event is late: a notification (lease.catch_up)"
        " says once which events of a lease are, and which of them are skipped.",
    ),
    cfg.IntOpt(
        "workers",
        default=8,
        min=1,
        help="Events a manager runs at once. Some workers are kept for each resource type, and no"
        " project gets all.",
    ),
    cfg.FloatOpt(
        "shutdown_timeout",
        default=20.0,
        min=0,
        help="Seconds that work under way may take to finish after SIGTERM; then it is handed"
        " back.",
    ),
    cfg.FloatOpt(
        "self_audit_interval",
        default=60.0,
        min=0,
        help="Seconds between looks at whether the invariants hold; 0 for none.",
    ),
    cfg.HostAddressOpt(
        "metrics_host", default="127.0.0.1", help="Address a manager's metrics are served on."
    ),
    cfg.PortOpt(
        "metrics_port",
        min=1,
        help="Port a manager's metrics are served on, for Prometheus; without it they are not.",
    ),
]
