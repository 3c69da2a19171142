"""The options of clouds: hosts, networks, volumes and stacks, Nova, trusts, and the simulation."""

from oslo_config import cfg

HOST: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver that reaches the hosts."),
    cfg.StrOpt(
        "before_end",
        default="",
        choices=[("", "Nothing."), ("snapshot", "Images of all servers are kept.")],
        help="What happens before the end of reservations that say 'default'.",
    ),
    cfg.IntOpt(
        "healing_interval",
        default=60,
        min=0,
        help="Leases that start within so many minutes get others for hosts that fail; 0: all.",
    ),
]
FLOATINGIP: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver that reaches the floating IPs."),
]
NETWORK: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver that reaches the networks."),
]
STACK: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver that reaches the stacks."),
    cfg.FloatOpt(
        "end_patience",
        default=600.0,
        min=0,
        help="Seconds that the room of a stack is left to it when its lease is over (or a manager"
        " finds that it is) and it can be neither deleted nor suspended; then it is taken back, and"
        " the stack given up.",
    ),
]
VOLUME: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver that reaches the volumes."),
    cfg.FloatOpt(
        "stuck_after",
        default=300.0,
        min=1,
        help="Seconds in which nothing happens to a volume that is being deleted, made or detached"
        " after which it is set back and deleted again.",
    ),
]
NOVA: list[cfg.Opt] = [
    cfg.StrOpt(
        "isolation",
        default="blazar",
        choices=[
            ("blazar", "The scheduler filter of the package blazar-nova; needs a hint to boot."),
            ("tenancy", "Nova's own AggregateMultiTenancyIsolation; users just boot."),
        ],
        help="What keeps others off reserved and free hosts; docs/openstack.md compares them.",
    ),
    cfg.StrOpt(
        "aggregate_freepool_name",
        default="freepool",
        help="Host aggregate of the hosts that nobody has reserved now; made if it is absent.",
    ),
    cfg.StrOpt(
        "blazar_az_prefix",
        default="blazar_",
        help="What the availability zones of reservations begin with, in mode blazar.",
    ),
    cfg.FloatOpt(
        "server_delete_wait",
        default=0.0,
        min=0,
        help="Seconds to wait for servers to be gone before looking again a second later.",
    ),
    cfg.ListOpt(
        "traits",
        default=["CUSTOM_*", "HW_*"],
        help="Traits in Placement that become properties of hosts, so that reservations can ask"
        " for them; * is any text. Nothing: none is read.",
    ),
    cfg.ListOpt(
        "resource_classes",
        default=["CUSTOM_*", "PCPU", "PGPU", "VGPU"],
        help="Resource classes in Placement of which hosts have their total as a property.",
    ),
    cfg.MultiStrOpt(
        "node_capabilities",
        default=[],
        help="Properties of a node that Nova does not tell, such as those of a cluster:"
        " 'domain-c7: ha=True, drs=False'. One line per node.",
    ),
]
TRUSTS: list[cfg.Opt] = [
    cfg.IntOpt(
        "check_ahead",
        default=24,
        min=0,
        help="Hours before the start of a lease from which on managers look whether its user still"
        " lets climate act in its name.",
    ),
    cfg.FloatOpt(
        "check_interval",
        default=300.0,
        min=0.1,
        help="Seconds between these looks, each of which costs Keystone a token per lease.",
    ),
]
SIMULATED = [
    cfg.IntOpt("hosts", default=16, min=0, help="Number of made-up hosts."),
    cfg.IntOpt("seed", default=1, help="Seed of the made-up failures."),
    cfg.FloatOpt("delay", default=0.0, min=0, help="Seconds that each effect takes."),
    cfg.FloatOpt("failure_rate", default=0.0, min=0, max=1, help="Share of effects that fail."),
    cfg.StrOpt("journal", help="File that keeps the effects, to be shared by processes."),
]
