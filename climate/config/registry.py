"""All options of climate by section. Registers the options, reads them and returns the settings."""

import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from keystoneauth1 import loading
from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_log import log

from climate.config import checks, log_lines
from climate.config.clouds import (
    FLOATINGIP,
    HOST,
    NETWORK,
    NOVA,
    RESOURCES,
    SIMULATED,
    STACK,
    TRUSTS,
    VOLUME,
)
from climate.config.console import CONSOLE
from climate.config.limits import ENFORCEMENT, LIMITS, OFFERS, offer_rules, rules
from climate.config.mail import EMAIL, email_rules
from climate.config.manager import MANAGER, SELECTION, reminder_rules
from climate.config.notifications import NOTIFICATIONS, retention, webhook_rules
from climate.config.provisioning import (
    CLEANING,
    CREATION,
    PROVISIONER,
    PROVISIONING,
    cleaning,
    creation,
    provisioning,
)
from climate.config.services import service_options
from climate.config.wait_list import WAIT_LIST, wait_list_rules
from climate.core.errors import OperatorError
from climate.core.matching.property_type import ALLOWED_PROJECTS, Kind, PropertyType, declared
from climate.core.settings import Settings

LOG = logging.getLogger(__name__)

DEFAULT = [
    cfg.HostAddressOpt("host", default="127.0.0.1", help="Address on which the API listens."),
    cfg.PortOpt("port", default=1234, help="Port on which the API listens."),
    cfg.IntOpt(
        "cleaning_time",
        default=0,
        min=0,
        help="Minutes that a resource stays free between two leases. Each booking stores the value"
        " when it is made or changed, so a change of the option moves no booking.",
    ),
]
DATABASE = [
    cfg.StrOpt(
        "connection",
        secret=True,
        default="sqlite:///climate.sqlite",
        help="SQLAlchemy URL of the database: sqlite:///FILE, postgresql+psycopg://... or"
        " mysql+pymysql://... (MariaDB 10.6 or later). The default file is in the working"
        " directory.",
    ),
    cfg.IntOpt(
        "pool_size",
        default=10,
        min=1,
        help="Open connections per process; under load up to twice as many.",
    ),
]
API = [
    cfg.StrOpt(
        "public_url",
        help="Address of the service for users, such as https://climate.example.org. Links in mails"
        " and chat messages begin with it. Unset: chat messages have no links, and e-mail is not"
        " possible.",
    ),
    cfg.StrOpt(
        "auth_strategy",
        default="noauth",
        choices=[
            ("noauth", "Identity from 'X-Auth-Token: user:project[:role,...]', not validated."),
            ("keystone", "Keystone tokens, validated according to [keystone_authtoken]."),
        ],
        help="How the API identifies callers.",
    ),
    cfg.BoolOpt(
        "serve_unauthenticated_to_the_network",
        default=False,
        help="With noauth, listen on other addresses than loopback and serve other machines:"
        " anyone who reaches the API can do anything.",
    ),
    cfg.IntOpt(
        "trusted_proxies",
        default=0,
        min=0,
        max=9,
        help="Proxies in front of the API that append the client's address to X-Forwarded-For. The"
        " API takes the client's address from this header, to limit failed sign-ins and to serve"
        " only this machine with noauth. 0 ignores the header. A number that is too high lets"
        " clients choose their address.",
    ),
    cfg.IntOpt("threads", default=8, min=1, help="Requests that a process serves at once."),
    cfg.IntOpt(
        "connection_limit",
        default=1000,
        min=16,
        help="Open connections of a process. At the limit, a new one replaces the one that is idle"
        " longest. The server raises its limit of open files; the log says if that is too low.",
    ),
    cfg.IntOpt(
        "channel_timeout",
        default=30,
        min=1,
        help="Seconds without a byte from or to the client until a connection is closed. A whole"
        " request must arrive within 60 seconds.",
    ),
    cfg.FloatOpt(
        "delete_wait",
        default=5.0,
        min=0,
        help="Seconds that a DELETE of a started lease waits for its end; until then the lease"
        " shows DELETING. In each process a quarter of the threads may wait, one for each lease;"
        " other requests are answered at once.",
    ),
    cfg.FloatOpt(
        "search_timeout",
        default=5.0,
        min=0.1,
        help="Seconds after which a search for free windows ends with search_too_long. A refusal"
        " whose search takes longer names no alternatives.",
    ),
    cfg.IntOpt(
        "idempotency_hours",
        default=24,
        min=1,
        max=8760,
        help="Hours until Idempotency-Keys expire. Managers remove them, so they need the option,"
        " too.",
    ),
    cfg.BoolOpt(
        "metrics",
        default=False,
        help="Serve GET /metrics, for Prometheus, to anyone who reaches the API.",
    ),
]
USER: list[cfg.Opt] = [cfg.StrOpt("region_name", help="Default region of the OpenStack services.")]
# The sections with climate's user: for requests to the cloud, and for the validation of tokens.
SERVICE_USER = "service_user"
TOKEN_CHECKER = "keystone_authtoken"  # noqa: S105 - not a secret; keystonemiddleware names it
# keystonemiddleware's default is no time-out.
_TOKEN_CHECKS = {"http_connect_timeout": 10, "http_request_max_retries": 1}
GROUPS: dict[str, list[cfg.Opt]] = {
    "DEFAULT": DEFAULT,
    "database": DATABASE,
    "api": API,
    "console": CONSOLE,
    "manager": MANAGER,
    "selection": SELECTION,
    "notifications": NOTIFICATIONS,
    "email": EMAIL,
    "limits": LIMITS,
    "offers": OFFERS,
    "wait_list": WAIT_LIST,
    "enforcement": ENFORCEMENT,
    "resources": RESOURCES,
    "provisioning": PROVISIONING,
    "provisioner": PROVISIONER,
    "creation": CREATION,
    "cleaning": CLEANING,
    "physical:host": HOST,
    "virtual:floatingip": FLOATINGIP,
    "virtual:network": NETWORK,
    "virtual:stack": STACK,
    "virtual:volume": VOLUME,
    "nova": NOVA,
    "trusts": TRUSTS,
    "simulated": SIMULATED,
    SERVICE_USER: USER,
}


# Sections to which libraries may add options later.
_SHARED_SECTIONS = {"DEFAULT", "nova", SERVICE_USER}


class Misconfigured(OperatorError):
    """Raised if the configuration is impossible or unsafe."""


def library_options() -> list[tuple[str, list[cfg.Opt]]]:
    """Return keystoneauth's options for climate's service user and for each OpenStack service.

    The result is a list of pairs: section and options.
    """
    connection = loading.get_session_conf_options()
    cfg.set_defaults(connection, timeout=60)
    user = (SERVICE_USER, [*loading.get_auth_common_conf_options(), *connection])
    return [user, *service_options()]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return all options of climate as pairs of section and options.

    oslo-config-generator expects this form.
    """
    user = loading.get_auth_plugin_conf_options("password")
    return [*GROUPS.items(), *library_options(), (SERVICE_USER, user), (TOKEN_CHECKER, user)]


def set_library_defaults() -> None:
    """Replace some defaults of oslo.log and keystonemiddleware by climate's defaults.

    oslo-config-generator also calls this function, so that sample files show climate's defaults.
    """
    quiet = [
        *log.get_default_log_levels(),
        "apscheduler=ERROR",
        "alembic=WARNING",
        "oslo_service=WARNING",
    ]
    log.set_defaults(default_log_levels=quiet)
    for _, options in auth_token.AUTH_TOKEN_OPTS:
        cfg.set_defaults(options, service_type="reservation", **_TOKEN_CHECKS)


def new() -> cfg.ConfigOpts:
    """Return a configuration in which all options are registered; it has read no file yet."""
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    register(conf)
    return conf


def register(conf: cfg.ConfigOpts) -> None:
    """Register all options in ``conf``, except those of oslo.log, which the caller registers."""
    set_library_defaults()
    for group, options in (*GROUPS.items(), *library_options()):
        conf.register_opts(options, group=None if group == "DEFAULT" else group)
    # climate.observability.log_context stores the lease in oslo.log's field for an instance.
    conf.set_default("instance_uuid_format", "[lease: %(uuid)s] ")


def load(conf: cfg.ConfigOpts, prog: str, arguments: Sequence[str] | None = None) -> None:
    """Read the command line and configuration files into ``conf``, and configure logging.

    Without ``--config-file``, oslo.config reads ``climate.conf`` in its default folders. Names that
    are no options are logged as warnings. Raises Misconfigured if options have invalid values or
    the log cannot be opened, and cfg.Error if a file cannot be read.
    """
    conf(args=sys.argv[1:] if arguments is None else arguments, project="climate", prog=prog)
    check_values(conf)
    set_up_logging(conf)
    for warning in unknown_options(conf):
        LOG.warning("%s", warning)


def set_up_logging(conf: cfg.ConfigOpts) -> None:
    """Configure logging from options; raises Misconfigured if the log cannot be opened."""
    # oslo.log's default is standard output, where it would mix with the output of the commands.
    has_log_target = conf.log_file or conf.log_dir or conf.use_syslog or conf.use_journal
    conf.set_default("use_stderr", default=not has_log_target)
    try:
        log.setup(conf, "climate")
    except (OSError, log.LogConfigError) as error:
        raise Misconfigured(f"cannot log as configured: {error}") from error
    log_lines.escape_control_characters(conf)
    logging.captureWarnings(capture=True)


def check_values(conf: cfg.ConfigOpts) -> None:
    """Raise Misconfigured if options have invalid values, even if no program reads the options."""
    if invalid := list(checks.invalid_values(conf, (*GROUPS.items(), *library_options()))):
        raise Misconfigured("; ".join(invalid))


def unknown_options(conf: cfg.ConfigOpts) -> list[str]:
    """Return a warning for each name in the configuration files that is no option of climate."""
    return list(checks.unknown_options(conf, GROUPS.keys() - _SHARED_SECTIONS, {"DEFAULT"}))


def http_url(host: str, port: int) -> str:
    """Return the http URL of a host and port, with brackets around an IPv6 address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Return the settings in ``conf``, as one object for the API and the managers.

    Raises Misconfigured if an option is invalid.
    """
    manager = conf.manager
    return Settings(
        cleaning_time=timedelta(minutes=conf.cleaning_time),
        before_end_lead=_minutes(manager.minutes_before_end_lease),
        before_start_leads=tuple(manager.before_start_leads),
        max_retries=manager.event_max_retries,
        claim_timeout=timedelta(seconds=manager.claim_timeout),
        call_timeout=manager.call_timeout,
        late_after=timedelta(seconds=manager.late_after),
        workers=manager.workers,
        poll_interval=manager.poll_interval,
        shutdown_timeout=manager.shutdown_timeout,
        sync_interval=manager.sync_interval,
        healing_interval=_minutes(conf["physical:host"].healing_interval),
        registered_hosts=tuple(conf["physical:host"].register),
        idempotency_time=timedelta(hours=conf.api.idempotency_hours),
        limits=rules(conf),
        hold_timeout=timedelta(seconds=conf.enforcement.hold_timeout),
        offers=offer_rules(conf),
        trust_ahead=timedelta(hours=conf.trusts.check_ahead),
        trust_interval=timedelta(seconds=conf.trusts.check_interval),
        stack_patience=timedelta(seconds=conf["virtual:stack"].end_patience),
        self_audit_interval=manager.self_audit_interval,
        calendar_memory=manager.calendar_memory,
        search_timeout=conf.api.search_timeout,
        notifications_kept=retention(conf),
        ended_leases_kept=timedelta(days=manager.ended_leases_days) or None,
        history_kept=timedelta(days=manager.history_days) or None,
        feeds_per_project=conf.notifications.feeds_per_project,
        before_end_leads=tuple(manager.before_end_leads),
        packs_hosts=manager.packs_hosts,
        wait_list=wait_list_rules(conf),
        **_checked(conf),
    )


def _minutes(count: int) -> timedelta | None:
    return timedelta(minutes=count) if count else None


def _checked(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return the settings whose options must fit together; raises Misconfigured."""
    try:
        types = declared(conf.resources.property_types)
        if conf.resources.project_restrictions:
            types[ALLOWED_PROJECTS] = PropertyType(Kind.SET)
        return {
            "property_types": types,
            "reminder_rules": reminder_rules(conf, types),
            "webhooks": webhook_rules(conf),
            "email": email_rules(conf),
            "provisioning": provisioning(conf, types),
            "creation": creation(conf),
            "cleaning": cleaning(conf),
        }
    except ValueError as error:
        raise Misconfigured(str(error)) from None
