"""``flavor:instance``: room for instances of a flavor of the cloud's.

The flavor is looked up when it is asked for, and kept with the reservation as it was then: what is
reserved stays the same, whatever becomes of the flavor.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from marshmallow import fields, post_load, validate

from climate.core.errors import Conflict, InvalidInput
from climate.core.matching.extra_specs import read
from climate.core.matching.requirement import Requirement
from climate.plugins.base import Asker, RequestSchema
from climate.plugins.hosts.plugin import HostPlugin, WholeNumber
from climate.plugins.instances.cloud import Flavor, Size
from climate.plugins.instances.plugin import MAX_INSTANCES, Affinity, InstancePlugin
from climate.plugins.instances.server_schema import LifeCycleSchema

_POLICY = "hw:cpu_policy"
# Those take CPUs in a way of their own.
_BEYOND = {_POLICY: "mixed", "hw:emulator_threads_policy": "isolate"}
_SHAPE = ("vcpus", "ram", "disk", "ephemeral", "swap")
# They choose among aggregates of the cloud's, in which no reserved host is.
_AGGREGATES = "aggregate_instance_extra_specs"


class FlavorSchema(LifeCycleSchema):
    """The part of a reservation request that is about instances of a flavor.

    The last four are told by the flavor, whatever is asked for.
    """

    flavor_id = fields.String(required=True, validate=validate.Length(1, 255))
    amount = WholeNumber(required=True, validate=validate.Range(1, MAX_INSTANCES))
    affinity = Affinity(load_default=None, allow_none=True)
    vcpus = fields.Integer(load_default=None, allow_none=True)
    memory_mb = fields.Integer(load_default=None, allow_none=True)
    disk_gb = fields.Integer(load_default=None, allow_none=True)
    resource_properties = fields.String(load_default=None, allow_none=True)

    @post_load
    def _no_affinity(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        if data["affinity"] is not None:
            raise Conflict("Instances of a flavor can be reserved without affinity only")
        return data


class FlavorPlugin(InstancePlugin):
    """Room for instances of a flavor on hosts."""

    resource_type: ClassVar[str] = "flavor:instance"
    schema: ClassVar[type[RequestSchema]] = FlavorSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1}
    fixed: ClassVar[frozenset[str]] = frozenset(
        {"flavor_id", "vcpus", "memory_mb", "disk_gb", "resource_properties"}
    )

    def look_up(self, params: Mapping[str, Any], asker: Asker) -> Mapping[str, Any]:
        """Return ``params`` with the flavor as it is now; raises InvalidInput."""
        flavor = self.cloud.find_flavor(params["flavor_id"], asker.project_id)
        if flavor is None:
            raise InvalidInput(f"Flavor {params['flavor_id']} could not be found")
        params = super().look_up(params, asker)
        amounts = _size(flavor).amounts
        return {
            **params,
            "vcpus": flavor.vcpus,
            "memory_mb": flavor.ram,
            "disk_gb": amounts.get("DISK_GB", 0),
            "resource_properties": json.dumps(asdict(flavor), sort_keys=True),
        }

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Shares of hosts that have the flavor's traits."""
        flavor = _kept(params)
        traits = {key: value for key, value in flavor.extra_specs.items() if _is_of("trait", key)}
        query, amount = read(traits).query, params["amount"]
        size = _size(flavor)
        return Requirement(HostPlugin.resource_type, amount, amount, query, size.amounts)

    def size(self, params: Mapping[str, Any]) -> Size:
        """Return what one instance of the flavor is."""
        return _size(_kept(params))


def _kept(params: Mapping[str, Any]) -> Flavor:
    """Return the flavor as it was looked up; raises InvalidInput if it was not."""
    try:
        return Flavor(**json.loads(params["resource_properties"]))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(f"Flavor {params['flavor_id']} was not looked up") from None


def _size(flavor: Flavor) -> Size:
    """Return what an instance takes, as Nova counts it; raises InvalidInput if we cannot."""
    specs = flavor.extra_specs
    for key, value in _BEYOND.items():
        if specs.get(key) == value:
            raise InvalidInput(f"Flavors with {key}={value} cannot be reserved")
    cpus = "PCPU" if specs.get(_POLICY) == "dedicated" else "VCPU"
    disk = flavor.disk + flavor.ephemeral - (-flavor.swap // 1024)
    own = {cpus: flavor.vcpus, "MEMORY_MB": flavor.ram, "DISK_GB": disk}
    resources = {key: value for key, value in specs.items() if _is_of("resources", key)}
    said = {key.partition(":")[2] for key in resources}
    if "PCPU" in said:
        said.add("VCPU")
    taken = {name: amount for name, amount in own.items() if name not in said and amount}
    return Size(
        {**taken, **read(resources).amounts},
        {key: value for key, value in specs.items() if not _is_of(_AGGREGATES, key)},
        {name: getattr(flavor, name) for name in _SHAPE},
    )


def _is_of(scope: str, key: str) -> bool:
    """Tell whether an extra spec is of a scope, which may have a number: ``trait1:NAME``."""
    name, scoped, _ = key.partition(":")
    return bool(scoped) and name.startswith(scope)
