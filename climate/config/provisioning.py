"""The options of provisioning: what managers request, and how climate-provisioner works."""

from datetime import timedelta

from oslo_config import cfg

from climate.core.errors import InvalidQuery
from climate.core.matching import expression
from climate.core.provisioning import energy, lead_time
from climate.core.settings import Provisioning

_POLICY = lead_time.Policy()
_ENERGY = energy.Policy()
PROVISIONING: list[cfg.Opt] = [
    cfg.BoolOpt(
        "enabled",
        default=False,
        help="Ask for hosts to be got ready before their leases start, and count one that has no"
        " power as working while no lease has it.",
    ),
    cfg.StrOpt(
        "hosts",
        default="",
        help="Which hosts: a property expression such as"
        ' ["==", "$provisioned", "true"]; empty: all.',
    ),
    cfg.FloatOpt(
        "ready_share",
        default=0.99,
        min=0.5,
        max=0.9999,
        help="The share of leases of which all hosts shall be ready at the start.",
    ),
    cfg.FloatOpt(
        "prior",
        default=_POLICY.prior,
        min=1,
        help="Seconds that a host of a class of which nothing is known is thought to need.",
    ),
    cfg.FloatOpt(
        "margin", default=_POLICY.margin, min=1, help="Factor on the time that was learned."
    ),
    cfg.FloatOpt(
        "shortest",
        default=_POLICY.shortest,
        min=1,
        help="Seconds before the start at which a host is asked for at the latest.",
    ),
    cfg.FloatOpt(
        "longest",
        default=_POLICY.longest,
        min=1,
        help="Seconds before the start at which a host is asked for at the earliest.",
    ),
    cfg.FloatOpt(
        "interval",
        default=5.0,
        min=0.1,
        help="Seconds between a manager's looks at what is to be got ready.",
    ),
    cfg.IntOpt(
        "keep_days", default=90, min=1, help="Days that it is known what came of preparations."
    ),
    cfg.BoolOpt(
        "topics",
        default=False,
        help="Publish what concerns a host on a topic of its own, too: climate.node.NAME. The"
        " broker keeps what nobody reads there: see docs/provisioning.md before.",
    ),
    cfg.BoolOpt(
        "power_off",
        default=False,
        help="Switch hosts off that nobody needs for longer than they take to come back.",
    ),
    cfg.FloatOpt(
        "idle_time",
        default=_ENERGY.idle_time,
        min=1,
        help="Seconds that nobody has had a host before it is switched off, and that it can then"
        " stay off before it is asked for again.",
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
        help="The nodes that can be got ready, and how each is reached.",
    ),
    cfg.URIOpt(
        "url",
        schemes=["http", "https"],
        help="Address of climate's API, without a version; without it, it is that of the catalog,"
        " or with noauth the one that [DEFAULT] host and port say.",
    ),
    cfg.IntOpt("workers", default=16, min=1, max=256, help="Nodes got ready at once."),
    cfg.FloatOpt(
        "poll_interval",
        default=2.0,
        min=0.1,
        help="Seconds between looks at what is wanted, if something is there already or climate has"
        " no place to wait.",
    ),
    cfg.IntOpt(
        "claim_timeout",
        default=120,
        min=3,
        max=3600,
        help="Seconds after which another provisioner takes over from one that has died.",
    ),
    cfg.FloatOpt(
        "power_timeout",
        default=120.0,
        min=1,
        help="Seconds that a node's controller may take to do what it was asked.",
    ),
    cfg.FloatOpt(
        "shutdown_timeout",
        default=180.0,
        min=0,
        help="Seconds that a node may take to shut down by itself before its power is cut; 0: it is"
        " cut at once.",
    ),
    cfg.FloatOpt(
        "ready_timeout",
        default=3600.0,
        min=1,
        help="Seconds after which a node that cannot be used yet has failed.",
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


def provisioning(conf: cfg.ConfigOpts) -> Provisioning | None:
    """Return the settings of managers for provisioning; None if it is disabled.

    Raises ValueError, with a message for the operator.
    """
    options = conf.provisioning
    if not options.enabled:
        return None
    if options.shortest > options.longest:
        raise ValueError("[provisioning] shortest is more than longest")
    try:
        hosts = expression.parse(options.hosts or None)
    except InvalidQuery as error:
        raise ValueError(f"[provisioning] hosts: {error.message}") from None
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
        energy=_energy(options) if options.power_off else None,
    )


def _energy(options: cfg.ConfigOpts) -> energy.Policy:
    return energy.Policy(idle_time=options.idle_time, spare=options.spare)
