"""Templates of Heat as data: what is read in them and what is written into copies. Pure.

Properties may be expressions that only Heat can resolve. So nothing is evaluated here: where
another value is wanted, the expression is wrapped in one that replaces its outcome. What comes of
it is looked at in Heat's preview, which is the proof that nothing was overlooked.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heatclient.common import environment_format, template_format

Properties = dict[str, Any]
# Changes the properties of a resource of a type in place; the last one tells whether it is CFN.
Edit = Callable[[str, Properties, bool], None]

# The properties that say of which flavor a server is.
FLAVORS: Mapping[str, str] = {
    "OS::Nova::Server": "flavor",
    "AWS::EC2::Instance": "InstanceType",
    "AWS::AutoScaling::LaunchConfiguration": "InstanceType",
}
SERVER, DISKS = "OS::Nova::Server", "block_device_mapping_v2"
VOLUME = "OS::Cinder::Volume"
FLOATINGIP = "OS::Neutron::FloatingIP"
# Where the type of a volume is put in a preview, which would refuse one that nobody may use yet.
NOTED = "climate_volume_type"
# From then on a template can adopt what is there.
_ADOPTING = "2016-10-14"
# Where a floating IP is to be.
_AT = ("port_id", "fixed_ip_address")
# (largest, present) sizes of groups.
_SIZES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "OS::Heat::AutoScalingGroup": ("max_size", ("min_size", "desired_capacity")),
    "AWS::AutoScaling::AutoScalingGroup": ("MaxSize", ("MinSize", "DesiredCapacity")),
}
# The properties in which a resource defines others.
_INNER: Mapping[str, str] = {
    "OS::Heat::ResourceGroup": "resource_def",
    "OS::Heat::AutoScalingGroup": "resource",
}


class Unreadable(ValueError):
    """A text is no template."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a stack is made from; it may hold secrets."""

    template: Mapping[str, Any] = field(repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def fingerprint(self) -> str:
        """Tell it from others by a few characters."""
        parts = [self.template, self.files, self.parameters, self.environment]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def size(self) -> int:
        """Return how much is sent to Heat, about: bytes."""
        parts = [self.template, self.files, self.parameters, self.environment]
        return len(json.dumps(parts).encode())


def parse(text: str) -> dict[str, Any]:
    """Return a template; raises Unreadable."""
    return _parsed(template_format.parse, text)


def parse_environment(text: str) -> dict[str, Any]:
    """Return an environment; raises Unreadable."""
    return _parsed(environment_format.parse, text)


def _parsed(parse: Callable[[str], Any], text: str) -> dict[str, Any]:
    try:
        found = dict(parse(text))
        json.dumps(found)
    except (ValueError, TypeError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    return found


def edited(source: Source, edit: Edit) -> Source:
    """Return a copy in which every resource is edited, those of nested templates too."""
    template = copy.deepcopy(dict(source.template))
    called = aliases(source.environment)
    _edit(template, edit, called)
    files = {name: _edited_file(text, edit, called) for name, text in source.files.items()}
    return replace(source, template=template, files=files)


def at_maximum(kind: str, properties: Properties, _cfn: bool) -> None:  # noqa: FBT001 - an Edit
    """Make a group as large as it may ever be."""
    if kind in _SIZES:
        largest, present = _SIZES[kind]
        for name in present:
            properties[name] = copy.deepcopy(properties.get(largest))


def with_flavors(flavors: Mapping[str, str]) -> Edit:
    """Return an edit after which servers are of other flavors: what for each that they have.

    One that has none of these is of a flavor that there is not.
    """

    def edit(kind: str, properties: Properties, cfn: bool) -> None:  # noqa: FBT001
        name = FLAVORS.get(kind)
        if name is not None and name in properties:
            properties[name] = replaced(properties[name], flavors, cfn=cfn)

    return edit


def with_volume_types(types: Mapping[str, str], default: str | None) -> Edit:
    """Return an edit after which volumes are of other types; ``default`` if they name none."""

    def edit(kind: str, properties: Properties, cfn: bool) -> None:  # noqa: FBT001
        for volume in _volumes(kind, properties):
            if volume.get("volume_type") is not None:
                volume["volume_type"] = replaced(volume["volume_type"], types, cfn=cfn)
            elif default is not None:
                volume["volume_type"] = default

    return edit


def noting_volume_types(kind: str, properties: Properties, _cfn: bool) -> None:  # noqa: FBT001
    """Move the types of volumes to where a preview shows and does not check them."""
    if kind == VOLUME and properties.get("volume_type") is not None:
        properties["metadata"] = {NOTED: properties.pop("volume_type")}


def _volumes(kind: str, properties: Properties) -> Iterator[Properties]:
    """Yield what says of which type a volume is: its own properties, or a server's disk."""
    if kind == VOLUME:
        yield properties
    disks = properties.get(DISKS) if kind == SERVER else None
    for disk in disks if isinstance(disks, list) else ():
        if isinstance(disk, dict) and makes_volume(disk):
            yield disk


def makes_volume(disk: Mapping[str, Any]) -> bool:
    """Tell whether a volume is made for a disk of a server."""
    return disk.get("volume_size") is not None and disk.get("volume_id") is None


def replaced(value: Any, by: Mapping[str, str], *, cfn: bool) -> Any:  # noqa: ANN401 - any JSON
    """Return an expression of which the outcome is what ``by`` has for that of ``value``.

    An outcome that ``by`` has not stands in angle brackets, so that it is none of anything.
    """
    exactly = {f"<{name}>": other for name, other in by.items()}
    if cfn:
        return {"Fn::Replace": [exactly, {"Fn::Replace": [{"value": value}, "<value>"]}]}
    whole = {"str_replace": {"template": "<value>", "params": {"value": value}}}
    return {"str_replace": {"template": whole, "params": exactly}}


def adopting(source: Source, floatingips: Mapping[str, str]) -> Source:
    """Return a copy that adopts floating IPs, by the names of resources, instead of making them.

    Heat does nothing to what it adopts, so what puts it to a port is a resource of its own.
    """
    if not floatingips:
        return source
    template = copy.deepcopy(dict(source.template))
    resources = template["resources"]
    for name, id_ in floatingips.items():
        resource = resources[name]
        properties = resource.pop("properties", {})
        resource["external_id"] = id_
        at = {key: properties[key] for key in _AT if properties.get(key) is not None}
        if "port_id" in at:
            resources[f"{name}_at_its_port"] = {
                "type": f"{FLOATINGIP}Association",
                "properties": {"floatingip_id": id_, **at},
            }
    return replace(source, template=template)


def adoptable(template: Mapping[str, Any]) -> list[str]:
    """Return the names of the floating IPs that a template itself has, and that can be adopted."""
    if str(template.get("heat_template_version", "")) < _ADOPTING:
        return []
    resources = template.get("resources") or {}
    return sorted(
        name
        for name, one in resources.items()
        if isinstance(one, Mapping)
        and one.get("type") == FLOATINGIP
        and "external_id" not in one
        and "condition" not in one
    )


def aliases(environment: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what an environment calls types that are no templates."""
    registry = environment.get("resource_registry") or {}
    return {name: one for name, one in registry.items() if isinstance(one, str)}


def _edited_file(text: str, edit: Edit, aliases: Mapping[str, str]) -> str:
    """Return a nested template edited, and any other file as it is."""
    try:
        template = parse(text)
    except Unreadable:
        return text
    _edit(template, edit, aliases)
    return json.dumps(template)


def _edit(template: Mapping[str, Any], edit: Edit, aliases: Mapping[str, str]) -> None:
    for resources, kind, properties in (
        ("resources", "type", "properties"),
        ("Resources", "Type", "Properties"),
    ):
        found = template.get(resources)
        for resource in found.values() if isinstance(found, Mapping) else ():
            _edit_one(resource, (kind, properties), edit, aliases)


def _edit_one(
    resource: Any,  # noqa: ANN401 - whatever somebody wrote
    keys: tuple[str, str],
    edit: Edit,
    aliases: Mapping[str, str],
) -> None:
    """Edit a resource, and those that it defines within."""
    if not isinstance(resource, dict):
        return
    kind, properties = resource.get(keys[0]), resource.get(keys[1])
    if not isinstance(kind, str) or not isinstance(properties, dict):
        return
    kind = aliases.get(kind, kind)
    edit(kind, properties, keys[0] == "Type")
    if kind in _INNER:
        _edit_one(properties.get(_INNER[kind]), ("type", "properties"), edit, aliases)
