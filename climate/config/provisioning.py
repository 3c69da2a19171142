"""The options for what must be ready when a lease starts.

They say which hosts managers prepare, how climate-provisioner works, and how early managers create
servers, volumes, networks and stacks.
"""

import ipaddress
from dataclasses import replace
from datetime import timedelta

from oslo_config import cfg, types

from climate.core.errors import InvalidQuery
from climate.core.matching import expression
from climate.core.matching.property_type import Types, typed
from climate.core.notifications.subscription import Network
from climate.core.provisioning import energy, lead_time
from climate.core.settings import CleaningRules, Creation, Provisioning

_POLICY = lead_time.Policy()
_ENERGY = energy.Policy()
_CREATION = Creation()
_CLEANING = CleaningRules()
PROVISIONING: list[cfg.Opt] = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Request the preparation of hosts before their leases start, and treat a free host"
        " without power as working.",
    ),
    cfg.StrOpt(
        "hosts",
        default="",
        help='Property expression of the hosts to prepare, such as ["==", "$provisioned", "true"];'
        " empty: all.",
    ),
    cfg.FloatOpt(
        "ready_share",
        default=0.99,
        min=0.5,
        max=0.9999,
        help="Target share of leases whose hosts are all ready at the start.",
    ),
    cfg.FloatOpt(
        "prior",
        default=_POLICY.prior,
        min=1,
        help="Seconds of preparation assumed for a hardware class without known durations.",
    ),
    cfg.FloatOpt(
        "margin", default=_POLICY.margin, min=1, help="Safety factor on the learned duration."
    ),
    cfg.FloatOpt(
        "shortest",
        default=_POLICY.shortest,
        min=1,
        help="Minimum lead time of a preparation in seconds.",
    ),
    cfg.FloatOpt(
        "longest",
        default=_POLICY.longest,
        min=1,
        help="Maximum lead time of a preparation in seconds.",
    ),
    cfg.FloatOpt(
        "interval",
        default=5.0,
        min=0.1,
        help="Seconds between a manager's checks for hosts to prepare.",
    ),
    cfg.IntOpt(
        "keep_days",
        default=90,
        min=1,
        help="Days after which finished preparations and shutdowns are removed.",
    ),
    cfg.BoolOpt(
        "topics",
        default=False,
        help="Also publish a host's notifications on the topic climate.node.NAME. The broker keeps"
        " messages that no program reads: see docs/operator/provisioning.md.",
    ),
    cfg.BoolOpt(
        "power_off",
        default=False,
        help="Power off hosts that no lease needs for longer than they take to become ready.",
    ),
    cfg.FloatOpt(
        "idle_time",
        default=_ENERGY.idle_time,
        min=1,
        help="Minimum seconds without a lease before a host is powered off, and again after it.",
    ),
    cfg.IntOpt(
        "spare",
        default=_ENERGY.spare,
        min=0,
        help="Free hosts of each hardware class that stay on.",
    ),
]
PROVISIONER: list[cfg.Opt] = [
    cfg.StrOpt(
        "nodes_file",
        default="/etc/climate/nodes.toml",
        help="File with the nodes and their controllers.",
    ),
    cfg.URIOpt(
        "url",
        schemes=["http", "https"],
        help="URL of climate's API without a version. Default: from the catalog, or with noauth"
        " from [DEFAULT] host and port.",
    ),
    cfg.IntOpt(
        "workers", default=16, min=1, max=256, help="Nodes that this process prepares at once."
    ),
    cfg.FloatOpt(
        "poll_interval",
        default=2.0,
        min=0.1,
        help="Seconds between queries while tasks exist, or if climate has no room for a long"
        " poll.",
    ),
    cfg.IntOpt(
        "claim_timeout",
        default=120,
        min=3,
        max=3600,
        help="Seconds after which another provisioner reclaims the tasks of a dead one.",
    ),
    cfg.FloatOpt(
        "power_timeout",
        default=120.0,
        min=1,
        help="Seconds for a node's controller to complete an action.",
    ),
    cfg.FloatOpt(
        "shutdown_timeout",
        default=180.0,
        min=0,
        help="Seconds for a node to shut down before its power is cut; 0: no wait.",
    ),
    cfg.FloatOpt(
        "ready_timeout",
        default=3600.0,
        min=1,
        help="Seconds for a node to become ready; then its preparation has failed.",
    ),
    cfg.IntOpt(
        "group_limit",
        default=4,
        min=1,
        help="Nodes of a group (a rack, a PDU) that this process switches at once.",
    ),
    cfg.FloatOpt(
        "group_pause",
        default=1.0,
        min=0,
        help="Seconds between two nodes of a group that this process switches.",
    ),
]


CREATION: list[cfg.Opt] = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Create servers, volumes, networks and stacks with on_start create before their lease"
        " starts, so that they are ready at the start. The capacity is booked from then on.",
    ),
    cfg.FloatOpt(
        "ready_share",
        default=_CREATION.share,
        min=0.5,
        max=0.9999,
        help="Target share of leases for which everything is ready at the start.",
    ),
    cfg.FloatOpt(
        "prior",
        default=_CREATION.policy.prior,
        min=0.1,
        help="Seconds of creation assumed until climate has created something of the type.",
    ),
    cfg.FloatOpt(
        "margin",
        default=_CREATION.policy.margin,
        min=1,
        help="Safety factor on the learned duration.",
    ),
    cfg.FloatOpt(
        "shortest",
        default=_CREATION.policy.shortest,
        min=0,
        help="Minimum number of seconds from the beginning of a creation to the start.",
    ),
    cfg.FloatOpt(
        "longest",
        default=_CREATION.policy.longest,
        min=1,
        max=86400,
        help="Maximum number of seconds from the beginning of a creation to the start.",
    ),
    cfg.ListOpt(
        "check_networks",
        default=[],
        item_type=types.String(),
        help="Networks (203.0.113.0/24, 2001:db8::/64) in which managers may connect to servers to"
        " check a ready_port. Users can find open ports at every address in them, so list only"
        " networks whose addresses all belong to servers of users. Empty: climate rejects"
        " ready_port. Applies also if enabled is false. All processes need the same value.",
    ),
]


CLEANING: list[cfg.Opt] = [
    cfg.BoolOpt(
        "learned",
        default=False,
        help="Measure how long nodes of Ironic are not available after a lease, and book them for"
        " this time after each new lease. [DEFAULT] cleaning_time applies to all other resources,"
        " and to a resource class of nodes until climate has measured a cleaning. All processes"
        " need the same value.",
    ),
    cfg.FloatOpt(
        "ready_share",
        default=_CLEANING.share,
        min=0.5,
        max=0.9999,
        help="Target share of nodes that are available again at the end of the booking.",
    ),
    cfg.FloatOpt(
        "margin",
        default=_CLEANING.policy.margin,
        min=1,
        help="Safety factor on the learned duration.",
    ),
    cfg.FloatOpt(
        "longest",
        default=_CLEANING.policy.longest,
        min=1,
        max=604800,
        help="Maximum number of seconds for which a learned duration keeps a node booked.",
    ),
]


def cleaning(conf: cfg.ConfigOpts) -> CleaningRules | None:
    """Return the rules of learned cleaning times; None if climate does not learn them."""
    options = conf.cleaning
    if not options.learned:
        return None
    policy = replace(_CLEANING.policy, margin=options.margin, longest=options.longest)
    return CleaningRules(share=options.ready_share, policy=policy)


def creation(conf: cfg.ConfigOpts) -> Creation | None:
    """Return the settings of creation ahead of the start; None if it is disabled.

    Raises ValueError, with a message for the operator, if an option is invalid.
    """
    options = conf.creation
    check_networks(conf)
    if not options.enabled:
        return None
    if options.shortest > options.longest:
        raise ValueError("[creation] shortest is more than longest")
    policy = replace(
        _CREATION.policy,
        prior=options.prior,
        margin=options.margin,
        shortest=options.shortest,
        longest=options.longest,
    )
    return Creation(share=options.ready_share, policy=policy)


def check_networks(conf: cfg.ConfigOpts) -> tuple[Network, ...]:
    """Return the networks in which managers may connect to servers.

    Raises ValueError, with a message for the operator, if the option is invalid.
    """
    try:
        return tuple(ipaddress.ip_network(text.strip()) for text in conf.creation.check_networks)
    except ValueError as error:
        raise ValueError(f"[creation] check_networks: {error}") from None


def provisioning(conf: cfg.ConfigOpts, types: Types) -> Provisioning | None:
    """Return the settings of provisioning for managers; None if it is disabled.

    ``types`` are the declared types of properties, by which ``hosts`` compares values.

    Raises ValueError, with a message for the operator, if an option is invalid.
    """
    options = conf.provisioning
    if not options.enabled:
        return None
    if options.shortest > options.longest:
        raise ValueError("[provisioning] shortest is more than longest")
    try:
        hosts = typed(expression.parse(options.hosts or None), types)
    except InvalidQuery as error:
        raise ValueError(f"[provisioning] hosts: {error.message}") from None
    policy = energy.Policy(idle_time=options.idle_time, spare=options.spare)
    return Provisioning(
        hosts=hosts,
        share=options.ready_share,
        policy=lead_time.Policy(
            prior=options.prior,
            margin=options.margin,
            shortest=options.shortest,
            longest=options.longest,
        ),
        interval=options.interval,
        kept=timedelta(days=options.keep_days),
        topics=options.topics,
        energy=policy if options.power_off else None,
    )
