"""The options of the limits that climate itself enforces, and of an external service for limits."""

from datetime import timedelta

from oslo_config import cfg

from climate.core.limits import NAMES, UNLIMITED, Limits, Rules, Scope

_MEANINGS = {
    "leases": "Leases that a {scope} may have at once, over and deleted ones not counted",
    "hosts": "Hosts that a {scope} may have at any one time",
    "vcpus": "Virtual CPUs, of hosts and of instances, that a {scope} may have at any one time",
    "host_hours": "Host-hours that a {scope} may use in any window of the length of period",
    "duration": "Seconds that a lease of a {scope} may last",
    "horizon": "Seconds from now that a lease of a {scope} may end at the latest",
    "extension_window": "Seconds before its end from which on a running lease of a {scope} may be"
    " prolonged",
    "extension": "Seconds that a running lease of a {scope} may be prolonged by at once",
}
LIMITS: list[cfg.Opt] = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Count what projects and users have, and refuse what is beyond their limits: those"
        " below, or those of their own that 'climate-manage limits set' has stored.",
    ),
    *(
        cfg.IntOpt(
            f"{scope}_{name}",
            default=UNLIMITED,
            min=UNLIMITED,
            help=f"{_MEANINGS[name].format(scope=scope)}; -1: as many as there are.",
        )
        for scope in Scope
        for name in NAMES
    ),
    cfg.IntOpt(
        "period",
        default=30 * 24 * 3600,
        min=3600,
        max=3660 * 24 * 3600,
        help="Seconds of the rolling window in which host-hours are counted.",
    ),
    cfg.ListOpt("exempt_projects", default=[], help="Ids of projects without limits."),
    cfg.ListOpt("exempt_users", default=[], help="Ids of users without limits."),
    cfg.ListOpt("exempt_roles", default=[], help="Roles whose requests are not limited."),
]
_ENDPOINT_HELP = "Its address, if not below external_service_base_endpoint."
ENFORCEMENT: list[cfg.Opt] = [
    cfg.URIOpt(
        "external_service_base_endpoint",
        schemes=["http", "https"],
        help="Address of a service that is asked about each lease, at check-create, check-update"
        " and on-end below it. Without an address a question is not asked.",
    ),
    *(
        cfg.URIOpt(
            f"external_service_{name}_endpoint", schemes=["http", "https"], help=_ENDPOINT_HELP
        )
        for name in ("check_create", "check_update", "on_end")
    ),
    cfg.StrOpt(
        "external_service_token",
        default="",
        secret=True,
        help="What the service gets as X-Auth-Token; empty: no such header.",
    ),
    cfg.StrOpt("auth_url", default="", help="Address of Keystone, as the service is told it."),
    cfg.StrOpt("cafile", help="Certificates that the service's own is checked with."),
    cfg.FloatOpt("connect_timeout", default=3.0, min=0.1, help="Seconds to wait for a connection."),
    cfg.FloatOpt("timeout", default=10.0, min=0.1, help="Seconds to wait for the whole answer."),
    cfg.BoolOpt(
        "fail_open",
        default=False,
        help="Whether leases are granted while the service gives no answer that can be used.",
    ),
    cfg.FloatOpt(
        "hold_timeout",
        default=60.0,
        min=1,
        help="Seconds after which a manager releases what was held for a question whose asker"
        " died; more than connect_timeout and timeout together.",
    ),
]


def rules(conf: cfg.ConfigOpts) -> Rules:
    """Return the default limits, the rolling period and the exemptions in the configuration."""
    limits = conf.limits
    return Rules(
        enabled=limits.enabled,
        defaults={
            scope: Limits.of({name: limits[f"{scope}_{name}"] for name in NAMES}) for scope in Scope
        },
        period=timedelta(seconds=limits.period),
        exempt_projects=frozenset(limits.exempt_projects),
        exempt_users=frozenset(limits.exempt_users),
        exempt_roles=frozenset(role.lower() for role in limits.exempt_roles),
    )
