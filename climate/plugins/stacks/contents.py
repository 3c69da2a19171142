"""The maximum contents of a stack, which climate counts in Heat's preview of the stack. Pure.

climate edits a copy of the template, and requests Heat's preview of the copy. In the copy,

- all groups have their maximum size;
- the flavor of each server has its other spelling: the id instead of the name, or the reverse;
- a flavor that the requester cannot use is in angle brackets.

climate rejects a server if its flavor in the preview is neither the id nor the name of a flavor of
the requester. climate cannot edit some servers, such as those in a nested template that only Heat
can read. In the preview, their flavors have the original spelling, which climate also accepts. So
climate does not notice that it will not be able to replace these flavors with reserved ones.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from climate.core.errors import InvalidInput
from climate.core.matching.quoting import cut
from climate.plugins.stacks import template
from climate.plugins.stacks.template import FLOATINGIP, NOTED, SERVER, VOLUME, Source

# The members of an AWS instance group, whose flavor is in the launch configuration.
_SCALED = "OS::Heat::ScaledResource"
_SERVERS: Mapping[str, str] = {
    SERVER: "flavor",
    _SCALED: "InstanceType",
    "AWS::EC2::Instance": "InstanceType",
}
# Types that create servers, volumes or addresses which the preview does not show completely.
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
# Types that connect existing objects and create nothing.
_HARMLESS = frozenset({"AWS::EC2::EIPAssociation", "OS::Nova::FloatingIPAssociation"})


@dataclass(frozen=True, slots=True)
class Flavors:
    """The flavors that the requester can use; ``ids`` contains their ids by name."""

    ids: Mapping[str, str]

    @property
    def respelled(self) -> Mapping[str, str]:
        """A dict that maps each flavor's id to its name, and each name to its id."""
        return {**{id_: name for name, id_ in self.ids.items()}, **self.ids}

    def id_of(self, spelling: str) -> str | None:
        """Return the id of the flavor with this id or name; None if there is none."""
        return spelling if spelling in self.ids.values() else self.ids.get(spelling)


@dataclass(frozen=True, slots=True)
class Volumes:
    """The number of volumes of one type, and the sum of their sizes in GiB."""

    amount: int
    gigabytes: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a stack.

    - ``servers``: the number of servers by flavor id.
    - ``volumes``: the volumes by type. The type is a name or id, as in the template; None stands
      for volumes to which the template gives no type.
    - ``floatingips``: the names of the floating IP resources in the template, by network. The
      network is a name or id, as in the template.
    """

    servers: Mapping[str, int] = field(default_factory=dict)
    volumes: Mapping[str | None, Volumes] = field(default_factory=dict)
    floatingips: Mapping[str, Sequence[str]] = field(default_factory=dict)


def count_contents(preview: Sequence[Any], source: Source, flavors: Flavors) -> Contents:
    """Return the contents of a stack. Raises InvalidInput if a resource cannot be counted.

    ``preview`` is Heat's preview of the edited copy of the template: nested lists of resources.
    ``source`` is the original source of the stack.
    """
    aliases = template.aliases(source.environment)
    resources = [
        {
            **resource,
            "resource_type": aliases.get(resource["resource_type"], resource["resource_type"]),
        }
        for resource in flatten(preview)
    ]
    for resource in resources:
        kind = resource["resource_type"]
        if kind.startswith(_OPAQUE) and kind not in _HARMLESS:
            raise InvalidInput(
                f"Resource {_name(resource)} of the stack has type {kind}: climate cannot know"
                " which resources it takes, so remove it from the stack"
            )
    return Contents(
        servers=Counter(
            _flavor(each, flavors) for each in resources if each["resource_type"] in _SERVERS
        ),
        volumes=_volumes(resources),
        floatingips=_floatingips(resources, template.adoptable(source.template)),
    )


def flatten(preview: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - lists of lists
    """Yield the resources in a preview, including those of nested stacks (nested lists)."""
    if isinstance(preview, Mapping):
        yield preview
        return
    for part in preview:
        yield from flatten(part)


def _flavor(resource: Mapping[str, Any], flavors: Flavors) -> str:
    """Return the id of the flavor of a server in a preview.

    Raises InvalidInput if the preview shows no flavor, or a flavor that the requester cannot use.
    """
    shown = str(resource["properties"].get(_SERVERS[resource["resource_type"]]) or "<>")
    if shown == "<>":
        raise InvalidInput(
            f"The flavor of resource {_name(resource)} is an attribute of another resource, which"
            " is unknown before the start: name the flavor, or make it a parameter"
        )
    id_ = flavors.id_of(shown)
    if id_ is None:
        raise InvalidInput(
            f"Resource {_name(resource)} of the stack has flavor {shown.strip('<>')}, which climate"
            " cannot find, or cannot replace with a reserved one: name the flavor, or make it a"
            " parameter"
        )
    return id_


def _volumes(resources: Collection[Mapping[str, Any]]) -> Mapping[str | None, Volumes]:
    volumes: dict[str | None, Volumes] = {}
    for resource in resources:
        for type_, size in _disks(resource):
            before = volumes.get(type_, Volumes(0, 0))
            volumes[type_] = Volumes(before.amount + 1, before.gigabytes + size)
    return volumes


def _disks(resource: Mapping[str, Any]) -> Iterator[tuple[str | None, int]]:
    """Yield type and size (GiB) of each volume that a resource creates.

    Raises InvalidInput if a size is missing or not a number, or a type is not a name.
    """
    properties = resource["properties"]
    if resource["resource_type"] == VOLUME:
        size = properties.get("size")
        if size is None:
            raise InvalidInput(f"Volume {_name(resource)} of the stack has no size: set its size")
        metadata = properties.get("metadata")
        noted = metadata.get(NOTED) if isinstance(metadata, dict) else None
        yield _type_name(noted, resource), _gigabytes(size, resource)
    if resource["resource_type"] == SERVER:
        for disk in template.disks_of(properties):
            type_ = _type_name(disk.get("volume_type"), resource)
            yield type_, _gigabytes(disk["volume_size"], resource)


def _type_name(type_: Any, resource: Mapping[str, Any]) -> str | None:  # noqa: ANN401 - a user wrote it
    if isinstance(type_, list | dict):
        raise InvalidInput(
            f"A volume of resource {_name(resource)} of the stack has volume type"
            f" {cut(str(type_))}: set it to the name of a volume type"
        )
    return None if type_ is None else str(type_)


def _gigabytes(size: Any, resource: Mapping[str, Any]) -> int:  # noqa: ANN401 - a user wrote it
    try:
        return int(size)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(
            f"A volume of resource {_name(resource)} of the stack has size {cut(str(size))}: set"
            " it to a whole number of GiB"
        ) from None


def _floatingips(
    resources: Collection[Mapping[str, Any]], adoptable: Collection[str]
) -> Mapping[str, Sequence[str]]:
    by_network: dict[str, list[str]] = {}
    for resource in resources:
        if resource["resource_type"] != FLOATINGIP:
            continue
        name = resource["resource_name"]
        if resource.get("parent_resource") or name not in adoptable:
            raise InvalidInput(
                f"Floating IP {_name(resource)} cannot be reserved: it must be in the template"
                " itself, not in a group, without a condition, and the template must have"
                " heat_template_version 2016-10-14 or later"
            )
        properties = resource["properties"]
        network = properties.get("floating_network") or properties.get("floating_network_id")
        by_network.setdefault(str(network), []).append(name)
    return {network: sorted(names) for network, names in by_network.items()}


def _name(resource: Mapping[str, Any]) -> str:
    """Return the name of a resource in a stack, with the name of its parent if it has one."""
    parent = resource.get("parent_resource")
    return f"{resource['resource_name']} in {parent}" if parent else str(resource["resource_name"])
