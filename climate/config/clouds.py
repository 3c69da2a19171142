"""The options of resources and clouds: hosts, networks, volumes, stacks, Nova, the simulation."""

import re
from collections.abc import Mapping

from oslo_config import cfg, types

from climate.core.matching import extra_specs
from climate.core.matching.extra_specs import MOST_DEVICES, CountedDevices
from climate.core.matching.requirement import SIZES

_LONGEST_CLASS = extra_specs.LONGEST_NAME - len(extra_specs.RESOURCES)
_CLASS = re.compile(rf"[A-Z0-9_]{{1,{_LONGEST_CLASS}}}")


class DeviceClass(types.String):
    """The resource class of devices, such as ``PGPU``, as a value of a dict."""

    def __call__(self, value: object) -> str:
        """Return the class; raises ValueError if it cannot be one of devices."""
        return _device_class(_own_text(value))


class DeviceAmounts(types.ConfigType):
    """Resource classes of devices with numbers, such as ``FPGA PGPU=2``, as a value of a dict."""

    def __init__(self) -> None:
        super().__init__(type_name="resource classes")

    def __call__(self, value: object) -> dict[str, int]:
        """Return the number of devices by class; raises ValueError for the first mistake."""
        amounts: dict[str, int] = {}
        for item in _own_text(value).split() or [""]:
            name, is_counted, count = item.partition("=")
            if _device_class(name) in amounts:
                raise ValueError(f"{name} is listed twice: write {name}= and the sum of both")
            amounts[name] = _device_count(item, count) if is_counted else 1
        return amounts

    def _formatter(self, value: Mapping[str, int]) -> str:
        return " ".join(f"{name}={count}" for name, count in value.items())


class ByName(types.Dict):
    """A dict such as ``gpu:PGPU, fpga:FPGA``, whose keys are names without a comma."""

    def __call__(self, value: object) -> dict[str, object]:
        """Return the dict; raises ValueError if an item has no value."""
        found: dict[str, object] = super().__call__(value)
        for name in found:
            # oslo.config joins an item without a colon and the next one.
            first, is_joined, _ = name.partition(",")
            if is_joined:
                raise ValueError(f"{first!r} has no resource class: write {first}:CLASS")
        return found


def _own_text(value: object) -> str:
    """Return a value of a dict without other items, which oslo.config appends if it is invalid."""
    return str(value).partition(",")[0].strip()


def _device_class(name: str) -> str:
    if not _CLASS.fullmatch(name) or name in SIZES:
        raise ValueError(
            f"{name!r} is not a resource class of devices: use up to {_LONGEST_CLASS} of A-Z, 0-9"
            f" and _, and not {', '.join(sorted(SIZES))}"
        )
    return name


def _device_count(item: str, count: str) -> int:
    if not (re.fullmatch(r"[0-9]{1,6}", count) and 1 <= int(count) <= MOST_DEVICES):
        raise ValueError(f"{item!r} needs a whole number from 1 to {MOST_DEVICES} after =")
    return int(count)


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
    cfg.StrOpt(
        "notification_transport_url",
        secret=True,
        help="Broker URL of Heat's notifications, such as rabbit://user:password@host:5672/."
        " Managers then follow a change in Heat at once. Unset: only at each [manager]"
        " sync_interval.",
    ),
    cfg.ListOpt(
        "notification_topics",
        default=["notifications"],
        help="Topics of Heat's notifications, as in heat.conf.",
    ),
    cfg.StrOpt(
        "notification_exchange",
        default="heat",
        help="Exchange of Heat's notifications: control_exchange in heat.conf.",
    ),
    cfg.StrOpt(
        "notification_pool",
        default="climate-stacks",
        help="Queue for climate's copy of Heat's notifications, which all managers share. Each"
        " installation of climate needs its own.",
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
        default=["CUSTOM_*", "FPGA", "PCPU", "PGPU", "VGPU"],
        help="Resource classes in Placement whose totals become properties of hosts,"
        " resources:NAME. Empty: none.",
    ),
    cfg.Opt(
        "pci_aliases",
        type=ByName(DeviceClass()),
        default={},
        help="Devices that climate counts: aliases of nova.conf, '[pci] alias', with the resource"
        " classes of their devices, such as 'gpu:CUSTOM_GPU, nic:CUSTOM_NIC'. Aliases of the same"
        " devices need the same class. See docs/operator/devices.md.",
    ),
    cfg.Opt(
        "device_profiles",
        type=ByName(DeviceAmounts()),
        default={},
        help="Devices that climate counts: device profiles of Cyborg, with the resource classes of"
        " an instance's devices, and their numbers if not 1, such as 'fpga-small:FPGA,"
        " two-gpus:PGPU=2, both:FPGA PGPU'. See docs/operator/devices.md.",
    ),
    cfg.MultiStrOpt(
        "node_capabilities",
        default=[],
        help="Properties of a node that Nova does not report: 'domain-c7: ha=True, drs=False'. One"
        " line per node.",
    ),
    cfg.ListOpt(
        "aggregate_properties",
        default=[],
        help="Metadata keys of the operator's host aggregates that become properties of the hosts"
        " in them, such as 'ha, drs'. Empty: none.",
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


def counted_devices(conf: cfg.ConfigOpts) -> CountedDevices:
    """Return the devices that the options in ``[nova]`` list."""
    return CountedDevices(conf.nova.pci_aliases, conf.nova.device_profiles)
