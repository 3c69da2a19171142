"""Reads Heat templates, and edits copies of them. Pure.

Properties may be expressions that only Heat can evaluate. To replace the value of such a property,
climate wraps its expression in an outer expression, which maps each known value to its replacement.
The outer expression puts any other value into angle brackets. So Heat's preview of the copy shows
which values have no replacement. climate edits only the template itself and the nested templates in
the source's files.

An ``Edit`` is a function that changes one resource of a template in place. Its parameters are the
type of the resource (``kind``), the properties, and whether the template has the format of AWS
CloudFormation (``cfn``).
"""

import copy
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from climate.core.matching.quoting import cut
from climate.plugins.stacks.document import (
    InvalidTemplate,
    TooComplex,
    names_version,
    parse_template,
)

Properties = dict[str, Any]
# Changes the properties of a resource in place: (type, properties, whether the template is CFN).
Edit = Callable[[str, Properties, bool], None]

# A template without resources.
EMPTY: Mapping[str, Any] = {"heat_template_version": "2016-10-14"}
# The property with a server's flavor, by resource type.
FLAVORS: Mapping[str, str] = {
    "OS::Nova::Server": "flavor",
    "AWS::EC2::Instance": "InstanceType",
    "AWS::AutoScaling::LaunchConfiguration": "InstanceType",
}
SERVER, DISKS = "OS::Nova::Server", "block_device_mapping_v2"
VOLUME = "OS::Cinder::Volume"
FLOATINGIP = "OS::Neutron::FloatingIP"
# The metadata key for a volume's type in a preview: Heat rejects a type to which the requester has
# no access.
NOTED = "climate_volume_type"
# The first template version that can adopt existing objects.
_ADOPTING = "2016-10-14"
# The properties that connect a floating IP with a port.
_PORT = ("port_id", "fixed_ip_address")
# The parts of an environment that a stack has, beside parameters.
_ENVIRONMENT = ("resource_registry", "parameter_defaults")
# The suffix of the resources that climate adds: they connect adopted floating IPs with ports.
_AT_PORT = "_at_its_port"
# The properties of groups: the maximum size, and the sizes that climate sets to the maximum.
_SIZES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "OS::Heat::AutoScalingGroup": ("max_size", ("min_size", "desired_capacity")),
    "AWS::AutoScaling::AutoScalingGroup": ("MaxSize", ("MinSize", "DesiredCapacity")),
}
# The property with the definition of a group's members.
_INNER: Mapping[str, str] = {
    "OS::Heat::ResourceGroup": "resource_def",
    "OS::Heat::AutoScalingGroup": "resource",
}


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a stack, in the form of Heat's API. It may contain secrets."""

    template: Mapping[str, Any] = field(repr=False)
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def fingerprint(self) -> str:
        """A hash of the source, as 32 hexadecimal digits."""
        return hashlib.sha256(self._text.encode()).hexdigest()[:32]

    @property
    def template_id(self) -> str:
        """A hash of the template and its files, without parameters, as 32 hexadecimal digits."""
        text = json.dumps([self.template, self.files], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def normal(self) -> "Source":
        """The same source without empty parts, which Heat adds and leaves out."""
        kept = {name: self.environment.get(name) for name in _ENVIRONMENT}
        registry = {**(kept["resource_registry"] or {})}
        if not registry.get("resources"):
            registry.pop("resources", None)
        parts = {**kept, "resource_registry": registry}
        return replace(self, environment={name: part for name, part in parts.items() if part})

    @property
    def size(self) -> int:
        """The approximate number of bytes that climate sends to Heat."""
        return len(self._text.encode())

    @property
    def _text(self) -> str:
        parts = [self.template, self.files, self.parameters, self.environment]
        return json.dumps(parts, sort_keys=True)


def edited(source: Source, edit: Edit) -> Source:
    """Return a copy of the source in which ``edit`` has changed every resource.

    Templates among the source's files are edited, too. Raises InvalidTemplate if such a file
    exceeds the limits of the module ``document``.
    """
    template = copy.deepcopy(dict(source.template))
    called = aliases(source.environment)
    _edit(template, edit, called)
    files = {name: _edited_file(name, text, edit, called) for name, text in source.files.items()}
    return replace(source, template=template, files=files)


def at_maximum(kind: str, properties: Properties, _cfn: bool) -> None:  # noqa: FBT001 - an Edit
    """Set the minimum and desired size of a group to its maximum size.

    This function is an ``Edit``.
    """
    if kind in _SIZES:
        largest, present = _SIZES[kind]
        for name in present:
            properties[name] = copy.deepcopy(properties.get(largest))


def with_flavors(flavors: Mapping[str, str]) -> Edit:
    """Return an Edit (a function that changes a resource) that replaces the flavors of servers.

    ``flavors`` maps old flavors to new ones.
    """

    def edit(kind: str, properties: Properties, cfn: bool) -> None:  # noqa: FBT001
        name = FLAVORS.get(kind)
        if name is not None and name in properties:
            properties[name] = replaced(properties[name], flavors, cfn=cfn)

    return edit


def with_volume_types(types: Mapping[str, str], default: str | None) -> Edit:
    """Return an Edit (a function that changes a resource) that replaces the types of volumes.

    ``types`` maps old types to new ones. A volume without a type gets the type ``default``.
    """

    def edit(kind: str, properties: Properties, cfn: bool) -> None:  # noqa: FBT001
        for volume in _volumes(kind, properties):
            if volume.get("volume_type") is not None:
                volume["volume_type"] = replaced(volume["volume_type"], types, cfn=cfn)
            elif default is not None:
                volume["volume_type"] = default

    return edit


def noting_volume_types(kind: str, properties: Properties, _cfn: bool) -> None:  # noqa: FBT001
    """Move the type of a volume into the volume's metadata, from which climate reads the type.

    Heat's preview fails if the requester has no access to the type. It shows metadata without a
    check. This function is an ``Edit``.
    """
    if kind == VOLUME and properties.get("volume_type") is not None:
        properties["metadata"] = {NOTED: properties.pop("volume_type")}


def _volumes(kind: str, properties: Properties) -> Iterator[Properties]:
    """Yield the parts of a resource that can have a volume type.

    For a volume, these are its properties; for a server, its disks.
    """
    if kind == VOLUME:
        yield properties
    if kind == SERVER:
        yield from disks_of(properties)


def disks_of(properties: Mapping[str, Any]) -> Iterator[Properties]:
    """Yield the disks of a server for which Nova creates a volume; leave out malformed ones."""
    disks = properties.get(DISKS)
    for disk in disks if isinstance(disks, list) else ():
        is_new = isinstance(disk, dict) and disk.get("volume_id") is None
        if is_new and disk.get("volume_size") is not None:
            yield disk


def replaced(value: Any, by: Mapping[str, str], *, cfn: bool) -> Any:  # noqa: ANN401 - any JSON
    """Return an expression of Heat that evaluates ``value`` and replaces the result.

    ``by`` maps results to replacements. Any other result gets angle brackets, such as ``<name>``,
    so that it names no existing object. ``cfn`` selects the format of AWS CloudFormation.
    """
    exactly = {f"<{name}>": other for name, other in by.items()}
    if cfn:
        return {"Fn::Replace": [exactly, {"Fn::Replace": [{"value": value}, "<value>"]}]}
    whole = {"str_replace": {"template": "<value>", "params": {"value": value}}}
    return {"str_replace": {"template": whole, "params": exactly}}


def adopting(source: Source, floatingips: Mapping[str, str]) -> Source:
    """Return a copy of the source that adopts existing floating IPs instead of creating them.

    ``floatingips`` maps names of resources in the template to ids of existing floating IPs. Heat
    does not change the objects that it adopts, so a separate resource of the template connects the
    floating IP with its port.
    """
    if not floatingips:
        return source
    template = copy.deepcopy(dict(source.template))
    resources = template["resources"]
    for name, id_ in floatingips.items():
        resource = resources[name]
        properties = resource.pop("properties", {})
        resource["external_id"] = id_
        port = {key: properties[key] for key in _PORT if properties.get(key) is not None}
        if "port_id" in port:
            resources[f"{name}{_AT_PORT}"] = {
                "type": f"{FLOATINGIP}Association",
                "properties": {"floatingip_id": id_, **port},
            }
    return replace(source, template=template)


def restored(current: Source, original: Source, reserved_types: Collection[str]) -> Source:
    """Return what the users of a deployed stack made of its source: undo climate's own edits.

    climate has deployed an edited copy of ``original``. ``current`` is the source that the stack
    has now. Users may have replaced it, or changed a part of the copy. ``reserved_types`` are the
    volume types that climate may have put into the copy.
    """
    template = _with_original_addresses(current.template, original.template)
    plain = edited(replace(current, template=template), _without_replacements(reserved_types))
    spellings = [original.files, current.files]
    files = {name: _respelled(name, text, spellings) for name, text in plain.files.items()}
    return replace(plain, files=files).normal


def _with_original_addresses(
    template: Mapping[str, Any], original: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a copy of a template in which floating IPs are as in ``original``, not adopted."""
    resources = template.get("resources")
    if not isinstance(resources, Mapping):
        return template
    own = {
        name: original["resources"][name]
        for name in adoptable(original)
        if _is_as_adopted(name, resources, original)
    }
    added = {f"{name}{_AT_PORT}" for name in own}
    kept = {name: resource for name, resource in resources.items() if name not in added}
    return {**template, "resources": {**kept, **own}}


def _is_as_adopted(name: str, resources: Mapping[str, Any], original: Mapping[str, Any]) -> bool:
    """Return whether a floating IP and its association are as ``adopting`` makes them."""
    resource = resources.get(name)
    if not isinstance(resource, Mapping) or "external_id" not in resource:
        return False
    adopted = adopting(Source(original), {name: resource["external_id"]}).template["resources"]
    names = (name, f"{name}{_AT_PORT}")
    return all(resources.get(each) == adopted.get(each) for each in names)


def _without_replacements(reserved_types: Collection[str]) -> Edit:
    """Return an Edit that undoes ``with_flavors`` and ``with_volume_types``."""

    def edit(kind: str, properties: Properties, _cfn: bool) -> None:  # noqa: FBT001
        name = FLAVORS.get(kind)
        if name is not None and name in properties:
            properties[name] = _before_replacement(properties[name])
        for volume in _volumes(kind, properties):
            type_ = _before_replacement(volume.get("volume_type"))
            if isinstance(type_, str) and type_ in reserved_types:
                del volume["volume_type"]  # the original has none
            elif type_ is not None:
                volume["volume_type"] = type_

    return edit


def _before_replacement(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return the expression that ``replaced`` has wrapped; return any other value unchanged."""
    match value:
        case {
            "str_replace": {
                "template": {"str_replace": {"template": "<value>", "params": {"value": inner}}}
            }
        }:
            return inner
        case {"Fn::Replace": [_, {"Fn::Replace": [{"value": inner}, "<value>"]}]}:
            return inner
    return value


def _respelled(name: str, text: str, spellings: Iterable[Mapping[str, str]]) -> str:
    """Return the text of file ``name`` in ``spellings`` that is the same template as ``text``.

    The first such text counts; if there is none, the result is ``text``, which has been read and
    written by ``edited``.
    """
    for files in spellings:
        if name in files and _edited_file(name, files[name], _unchanged, {}) == text:
            return files[name]
    return text


def _unchanged(_kind: str, _properties: Properties, _cfn: bool) -> None:  # noqa: FBT001
    """Change nothing. This function is an ``Edit``."""


def adoptable(template: Mapping[str, Any]) -> list[str]:
    """Return the names of a template's floating IP resources that can adopt existing floating IPs.

    To adopt means that Heat uses an existing object and creates none.
    """
    if str(template.get("heat_template_version", "")) < _ADOPTING:
        return []
    resources = template.get("resources")
    return sorted(
        name
        for name, resource in (resources.items() if isinstance(resources, Mapping) else ())
        if isinstance(resource, Mapping)
        and resource.get("type") == FLOATINGIP
        and "external_id" not in resource
        and "condition" not in resource
    )


def aliases(environment: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the types that an environment replaces, with their replacements.

    A replacement is another type or a nested template.
    """
    registry = environment.get("resource_registry")
    items = registry.items() if isinstance(registry, Mapping) else ()
    return {name: type_ for name, type_ in items if isinstance(type_, str)}


def _edited_file(name: str, text: str, edit: Edit, aliases: Mapping[str, str]) -> str:
    """Return the edited text of a file that is a template; return any other file unchanged.

    ``aliases`` maps types of resources to their replacements. Raises InvalidTemplate if the file
    exceeds a limit, but seems to be a template.
    """
    try:
        template = parse_template(text)
    except InvalidTemplate as error:
        # Heat might read this as a template, with resources that climate did not edit.
        if isinstance(error, TooComplex) and names_version(text):
            raise InvalidTemplate(f"File {cut(name)} cannot be read: {error.message}") from None
        return text
    _edit(template, edit, aliases)
    return json.dumps(template)


def _edit(template: Mapping[str, Any], edit: Edit, aliases: Mapping[str, str]) -> None:
    for resources, kind, properties in (
        ("resources", "type", "properties"),
        ("Resources", "Type", "Properties"),
    ):
        section = template.get(resources)
        for resource in section.values() if isinstance(section, Mapping) else ():
            _edit_resource(resource, (kind, properties), edit, aliases)


def _edit_resource(
    resource: Any,  # noqa: ANN401 - a user wrote it
    keys: tuple[str, str],
    edit: Edit,
    aliases: Mapping[str, str],
) -> None:
    """Apply ``edit`` to a resource, and to resources that are defined in its properties.

    ``keys`` are the keys of the resource's type and properties, such as ``Type``, ``Properties``.
    ``aliases`` maps types to replacements: ``edit`` receives the replacement of the type.
    """
    if not isinstance(resource, dict):
        return
    kind, properties = resource.get(keys[0]), resource.get(keys[1])
    if not isinstance(kind, str) or not isinstance(properties, dict):
        return
    kind = aliases.get(kind, kind)
    edit(kind, properties, keys[0] == "Type")
    if kind in _INNER:
        _edit_resource(properties.get(_INNER[kind]), ("type", "properties"), edit, aliases)
