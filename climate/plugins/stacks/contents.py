"""What a stack consists of at most, counted in Heat's preview of a copy of its template. Pure.

The copy has groups at their maximum, and names every flavor as its template does not: by its id
instead of its name, or the other way round. A server that the preview shows as the template has it
was not rewritten, so it could not be had on reserved room either, and is refused.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from climate.core.errors import InvalidInput
from climate.plugins.stacks import template
from climate.plugins.stacks.template import DISKS, FLOATINGIP, NOTED, SERVER, VOLUME, Source

# Those of a group of instances; the flavor is in the launch configuration of all.
_SCALED = "OS::Heat::ScaledResource"
_SERVERS: Mapping[str, str] = {
    SERVER: "flavor",
    _SCALED: "InstanceType",
    "AWS::EC2::Instance": "InstanceType",
}
# What makes servers, volumes or addresses of which the preview does not tell, or not what kind.
_OPAQUE = (
    "AWS::EC2::EIP",
    "AWS::EC2::Volume",
    "AWS::RDS::",
    "OS::Heat::Stack",
    "OS::Magnum::",
    "OS::Nova::FloatingIP",
    "OS::Sahara::",
    "OS::Senlin::",
    "OS::Trove::",
)
# They put what there is somewhere, and make nothing.
_HARMLESS = frozenset({"AWS::EC2::EIPAssociation", "OS::Nova::FloatingIPAssociation"})


@dataclass(frozen=True, slots=True)
class Flavors:
    """The flavors that the asker may use: their ids, by name."""

    ids: Mapping[str, str]

    @property
    def respelled(self) -> Mapping[str, str]:
        """Return for each spelling of a flavor the other one."""
        return {**{id_: name for name, id_ in self.ids.items()}, **self.ids}

    def id_of(self, spelling: str) -> str | None:
        """Return the id of a flavor; None if there is none such."""
        return spelling if spelling in self.ids.values() else self.ids.get(spelling)


@dataclass(frozen=True, slots=True)
class Volumes:
    """So many volumes of a type, and how much they have together: GiB."""

    amount: int
    gigabytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What must be reserved: servers by flavor id, volumes by type, floating IPs by network.

    Types (None: the template names none) and networks are called as the template does; floating
    IPs are the names of their resources.
    """

    servers: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str | None, Volumes] = field(default_factory=dict)
    floatingips: Mapping[str, Sequence[str]] = field(default_factory=dict)


def counted(preview: Sequence[Any], source: Source, flavors: Flavors) -> Contents:
    """Return what a stack consists of; raises InvalidInput with the name of what nobody can know.

    ``preview`` is the list of resources that Heat shows of the rewritten copy, nested as there.
    """
    called = template.aliases(source.environment)
    resources = [
        {**one, "resource_type": called.get(one["resource_type"], one["resource_type"])}
        for one in _flat(preview)
    ]
    for one in resources:
        kind = one["resource_type"]
        if kind.startswith(_OPAQUE) and kind not in _HARMLESS:
            raise InvalidInput(
                f"Resource {_name(one)} of the stack is of type {kind}: climate cannot know what it"
                " takes, so a stack with it cannot be leased"
            )
    return Contents(
        servers=Counter(_flavor(one, flavors) for one in resources if _is_server(one)),
        volumes=_volumes(resources),
        floatingips=_floatingips(resources, template.adoptable(source.template)),
    )


def _flat(found: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - lists of lists
    if isinstance(found, Mapping):
        yield found
        return
    for one in found:
        yield from _flat(one)


def _is_server(resource: Mapping[str, Any]) -> bool:
    return resource["resource_type"] in _SERVERS


def _flavor(resource: Mapping[str, Any], flavors: Flavors) -> str:
    """Return the id of the flavor of a server; raises InvalidInput if nobody knows it yet."""
    shown = str(resource["properties"].get(_SERVERS[resource["resource_type"]]) or "<>")
    if shown == "<>":
        raise InvalidInput(
            f"The flavor of resource {_name(resource)} is an attribute of another resource and not"
            " known before that is there: name it, or make it a parameter"
        )
    id_ = flavors.id_of(shown)
    if id_ is None:
        raise InvalidInput(
            f"Resource {_name(resource)} of the stack has flavor {shown.strip('<>')}, which climate"
            " cannot find, or cannot replace by a reserved one: name the flavor, or make it a"
            " parameter"
        )
    return id_


def _volumes(resources: Collection[Mapping[str, Any]]) -> Mapping[str | None, Volumes]:
    found: dict[str | None, Volumes] = {}
    for resource in resources:
        for type_, size in _disks(resource):
            before = found.get(type_, Volumes(0, 0))
            found[type_] = Volumes(before.amount + 1, before.gigabytes + size)
    return found


def _disks(resource: Mapping[str, Any]) -> Iterator[tuple[str | None, int]]:
    """Yield the type and GiB of each volume that comes with a resource; raises InvalidInput."""
    properties = resource["properties"]
    if resource["resource_type"] == VOLUME:
        size = properties.get("size")
        if size is None:
            raise InvalidInput(f"Volume {_name(resource)} of the stack has no size: give it one")
        yield (properties.get("metadata") or {}).get(NOTED), int(size)
    if resource["resource_type"] == SERVER:
        for disk in properties.get(DISKS) or ():
            if template.makes_volume(disk):
                yield disk.get("volume_type"), int(disk["volume_size"])


def _floatingips(
    resources: Collection[Mapping[str, Any]], adoptable: Collection[str]
) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for one in resources:
        if one["resource_type"] != FLOATINGIP:
            continue
        name = one["resource_name"]
        if one.get("parent_resource") or name not in adoptable:
            raise InvalidInput(
                f"Floating IP {_name(one)} cannot be reserved: that must stand in the template"
                " itself, in no group and without a condition, and the template must be of"
                " heat_template_version 2016-10-14 or later"
            )
        properties = one["properties"]
        network = properties.get("floating_network") or properties.get("floating_network_id")
        found.setdefault(str(network), []).append(name)
    return {network: sorted(names) for network, names in found.items()}


def _name(resource: Mapping[str, Any]) -> str:
    """Return what a resource is called, and in what it is nested."""
    parent = resource.get("parent_resource")
    return f"{resource['resource_name']} in {parent}" if parent else str(resource["resource_name"])
