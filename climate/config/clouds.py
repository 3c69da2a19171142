"""The options of resources and clouds: hosts, networks, volumes, stacks, Nova, the simulation."""

from oslo_config import cfg

RESOURCES: list[cfg.Opt] = [
    cfg.ListOpt(
        "property_types",
        default=[],
        help="Types of properties, such as 'ram_gib = number GiB, firmware = version, healthy ="
        " boolean, serial = text, cpu_flags = set'. Values that do not fit are rejected, and"
        " expressions compare by the type. Other properties compare as numbers if both values are"
        " numbers, else as text. All processes need the same value.",
    ),
    cfg.BoolOpt(
        "project_restrictions",
        default=False,
        help="Let operators restrict resources to projects, with the property allowed_projects or"
        " the metadata of host aggregates. All processes need the same value.",
    ),
]
HOST: list[cfg.Opt] = [
    cfg.StrOpt(
        "cloud",
        default="simulated",
        help="Driver for the hosts: simulated, nova, or one that a package brings.",
    ),
    cfg.StrOpt(
        "before_end",
        default="",
        choices=[("", "None."), ("snapshot", "Create an image of each server.")],
        help="Action before the end of reservations with before_end 'default'.",
    ),
    cfg.IntOpt(
        "healing_interval",
        default=60,
        min=0,
        help="Minutes before its start from which a lease gets others for failed hosts; 0: always.",
    ),
    cfg.ListOpt(
        "register",
        default=[],
        help="Names of hosts that managers register themselves as soon as the cloud reports them"
        " without servers, for example the clusters of vCenter: 'cluster-1, gpu-*'. * stands for"
        " any characters, ? for one. A host that an operator removes comes back while it is"
        " listed.",
    ),
]
FLOATINGIP: list[cfg.Opt] = [
    cfg.StrOpt(
        "cloud", default="simulated", help="Driver for the floating IPs: simulated or neutron."
    )
]
NETWORK: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver for the networks: simulated or neutron.")
]
STACK: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver for the stacks: simulated or heat."),
    cfg.FloatOpt(
        "end_patience",
        default=600.0,
        min=0,
        help="Seconds after the end of a lease for which a stack that cannot be deleted or"
        " suspended keeps its resources. Then climate takes them back, servers included; the"
        " reservation shows the error, and the audit names the stack.",
    ),
]
VOLUME: list[cfg.Opt] = [
    cfg.StrOpt("cloud", default="simulated", help="Driver for the volumes: simulated or cinder."),
    cfg.FloatOpt(
        "stuck_after",
        default=300.0,
        min=1,
        help="Seconds without progress after which a volume's deletion, creation or detachment is"
        " reset and the volume deleted again.",
    ),
]
NOVA: list[cfg.Opt] = [
    cfg.StrOpt(
        "isolation",
        default="blazar",
        choices=[
            ("blazar", "The scheduler filter of the package blazar-nova; needs a hint to boot."),
            ("tenancy", "Nova's AggregateMultiTenancyIsolation; needs no hint."),
        ],
        help="Keeps other servers off reserved and free hosts; see docs/operator/openstack.md. Do"
        " not change it while leases run.",
    ),
    cfg.StrOpt(
        "aggregate_freepool_name",
        default="freepool",
        help="Host aggregate of the hosts without a current lease; created if absent. With"
        " isolation = blazar, nova.conf must have the same name.",
    ),
    cfg.StrOpt(
        "blazar_az_prefix",
        default="blazar_",
        help="Prefix of the availability zones of reservations (isolation = blazar), as in"
        " nova.conf.",
    ),
    cfg.FloatOpt(
        "server_delete_wait",
        default=0.0,
        min=0,
        help="Seconds that an end waits for the deletion of servers before a retry a second later.",
    ),
    cfg.BoolOpt(
        "server_groups",
        default=False,
        help="Create a server group, as Blazar does, for each reservation of virtual:instance with"
        " an affinity, with the token of the request. Such a lease cannot wait for free capacity."
        " The affinity itself needs no group."
        " Do not switch it off while such leases run.",
    ),
    cfg.ListOpt(
        "traits",
        default=["CUSTOM_*", "HW_*"],
        help="Traits in Placement that become properties of hosts, trait:NAME; * matches any text."
        " Empty: none.",
    ),
    cfg.ListOpt(
        "resource_classes",
        default=["CUSTOM_*", "PCPU", "PGPU", "VGPU"],
        help="Resource classes in Placement whose totals become properties of hosts,"
        " resources:NAME. Empty: none.",
    ),
    cfg.MultiStrOpt(
        "node_capabilities",
        default=[],
        help="Properties of a node that Nova does not report: 'domain-c7: ha=True, drs=False'. One"
        " line per node.",
    ),
]
TRUSTS: list[cfg.Opt] = [
    cfg.IntOpt(
        "check_ahead",
        default=24,
        min=0,
        help="Hours before the start from which managers check the trust of a lease.",
    ),
    cfg.FloatOpt(
        "check_interval",
        default=300.0,
        min=0.1,
        help="Seconds between these checks; each costs Keystone one token per lease.",
    ),
]
SIMULATED = [
    cfg.IntOpt("hosts", default=16, min=0, help="Number of simulated hosts, sim-1 and so on."),
    cfg.IntOpt(
        "seed", default=1, help="Seed of the simulated failures: the same seed, the same failures."
    ),
    cfg.FloatOpt("delay", default=0.0, min=0, help="Seconds that each simulated action takes."),
    cfg.FloatOpt("failure_rate", default=0.0, min=0, max=1, help="Share of actions that fail."),
    cfg.StrOpt(
        "journal",
        help="File with the simulated cloud's state. Several processes need the same file; without"
        " it, the state is in the memory of one process. climate-standalone puts it beside an"
        " SQLite database.",
    ),
]
