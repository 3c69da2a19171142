"""The options of climate's own limits, of offers, and of an external service that decides."""

from datetime import timedelta

from oslo_config import cfg

from climate.core.limits import NAMES, UNLIMITED, Limits, Rules, Scope
from climate.core.settings import OfferRules

_MEANINGS = {
    "leases": "Current and future leases of a {scope}",
    "hosts": "Hosts of a {scope} at any one time",
    "vcpus": "Virtual CPUs of hosts and instances of a {scope} at any one time",
    "gigabytes": "GiB of volumes of a {scope} at any one time",
    "floatingips": "Floating IPs of a {scope} at any one time",
    "networks": "Networks of a {scope} at any one time",
    "host_hours": "Host-hours of a {scope} in any rolling window (period)",
    "duration": "Seconds that a lease of a {scope} may last",
    "horizon": "Seconds from now to the latest end of a lease of a {scope}",
    "extension_window": "Seconds before its end from which a lease of a {scope} may be extended",
    "extension": "Seconds of one extension of a running lease of a {scope}",
}
# Keeps one project from filling the database; a project that needs more gets a limit of its own.
_DEFAULTS = {"project_leases": 1000}
LIMITS: list[cfg.Opt] = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Enforce limits on projects and users: the defaults below, or a party's own limits,"
        " which 'climate-manage limits set' stores. If false, only project_leases is enforced.",
    ),
    *(
        cfg.IntOpt(
            f"{scope}_{name}",
            default=_DEFAULTS.get(f"{scope}_{name}", UNLIMITED),
            min=UNLIMITED,
            help=f"{_MEANINGS[name].format(scope=scope)}; -1: unlimited.",
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
OFFERS: list[cfg.Opt] = [
    cfg.IntOpt(
        "longest",
        default=300,
        min=1,
        help="Seconds that an offer may hold capacity until a user accepts it; also the default.",
    ),
    cfg.IntOpt(
        "per_project",
        default=3,
        min=0,
        help="Open offers of a project; 0: no offers. [limits] exempt_* are exempt from it.",
    ),
]
_ENDPOINT_HELP = "Its URL, if not below external_service_base_endpoint."
ENFORCEMENT: list[cfg.Opt] = [
    cfg.URIOpt(
        "external_service_base_endpoint",
        schemes=["http", "https"],
        help="URL of an external service that approves leases; climate appends /check-create,"
        " /check-update or /on-end. A request without a URL is not sent.",
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
        help="X-Auth-Token for the service; empty: no such header.",
    ),
    cfg.StrOpt("auth_url", default="", help="URL of Keystone to send to the service."),
    cfg.StrOpt("cafile", help="CA certificates for the service."),
    cfg.FloatOpt("connect_timeout", default=3.0, min=0.1, help="Seconds to wait for a connection."),
    cfg.FloatOpt("timeout", default=10.0, min=0.1, help="Seconds for the complete response."),
    cfg.BoolOpt(
        "fail_open", default=False, help="Admit leases while the service gives no valid response."
    ),
    cfg.FloatOpt(
        "hold_timeout",
        default=60.0,
        min=1,
        help="Seconds after which a manager releases the resources of a request whose process"
        " died; must exceed connect_timeout plus timeout.",
    ),
]


def rules(conf: cfg.ConfigOpts) -> Rules:
    """Return the configured limits of projects and users, and who is exempt from them."""
    limits = conf.limits
    return Rules(
        enabled=limits.enabled,
        defaults={
            scope: Limits().overridden({name: limits[f"{scope}_{name}"] for name in NAMES})
            for scope in Scope
        },
        period=timedelta(seconds=limits.period),
        exempt_projects=frozenset(limits.exempt_projects),
        exempt_users=frozenset(limits.exempt_users),
        exempt_roles=frozenset(role.lower() for role in limits.exempt_roles),
    )


def offer_rules(conf: cfg.ConfigOpts) -> OfferRules:
    """Return the configured rules of offers."""
    longest = timedelta(seconds=conf.offers.longest)
    return OfferRules(longest=longest, per_project=conf.offers.per_project)
