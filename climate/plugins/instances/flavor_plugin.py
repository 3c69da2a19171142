"""The plug-in for ``flavor:instance``: reserved capacity for instances of an existing flavor.

When a user requests a reservation, climate reads the flavor from Nova and stores it with the
reservation. Later changes of the flavor do not affect the reservation.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from marshmallow import fields, post_load, validate

from climate.core.errors import Conflict, InvalidInput
from climate.core.matching.extra_specs import read
from climate.core.matching.requirement import RequestedFlavor, Requirement
from climate.plugins.base import Requester
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.instances.cloud import TARGETED, Flavor, Match, Size
from climate.plugins.instances.plugin import (
    MAX_INSTANCES,
    Affinity,
    InstancePlugin,
    image_of,
    with_devices,
)
from climate.plugins.instances.server_schema import LifeCycleSchema
from climate.plugins.request_fields import RequestSchema, WholeNumber, is_open, titled

_POLICY = "hw:cpu_policy"
# Extra specs that change the number of CPUs in a way that climate does not compute.
_UNSUPPORTED = {_POLICY: "mixed", "hw:emulator_threads_policy": "isolate"}
_SHAPE = ("vcpus", "ram", "disk", "ephemeral", "swap")
# The scope of extra specs that select host aggregates. climate removes these specs: reserved hosts
# are in none of the operator's aggregates.
_AGGREGATES = "aggregate_instance_extra_specs"


class FlavorSchema(LifeCycleSchema):
    """The parameters of a reservation of instances of a flavor.

    ``look_up`` sets ``vcpus``, ``memory_mb``, ``disk_gb`` and ``resource_properties`` from the
    flavor. If a request contains them, they are ignored.
    """

    flavor_id = fields.String(
        required=True,
        validate=validate.Length(1, 255),
        metadata=titled("Flavor", "Id of a flavor of your project."),
    )
    amount = WholeNumber(
        required=True, validate=validate.Range(1, MAX_INSTANCES), metadata=titled("Instances")
    )
    affinity = Affinity(
        load_default=None,
        allow_none=True,
        metadata=titled("Placement", "Only null: anywhere.", enum=[None]),
    )
    vcpus = fields.Integer(
        load_default=None, allow_none=True, metadata=titled("VCPUs", readOnly=True)
    )
    memory_mb = fields.Integer(
        load_default=None, allow_none=True, metadata=titled("Memory, MiB", readOnly=True)
    )
    disk_gb = fields.Integer(
        load_default=None, allow_none=True, metadata=titled("Disk, GiB", readOnly=True)
    )
    resource_properties = fields.String(
        load_default=None, allow_none=True, metadata=titled("Data of the flavor", readOnly=True)
    )

    @post_load
    def _no_affinity(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        if data["affinity"] is not None:
            raise Conflict("Instances of a flavor cannot be reserved with affinity: use null")
        return data


class FlavorPlugin(InstancePlugin):
    """The plug-in for instances of an existing flavor."""

    resource_type: ClassVar[str] = "flavor:instance"
    title: ClassVar[str] = "Instances of a flavor"
    description: ClassVar[str] = "Room on hosts for instances of a flavor that exists."
    schema: ClassVar[type[RequestSchema]] = FlavorSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1}
    fixed: ClassVar[frozenset[str]] = frozenset(
        {"flavor_id", "vcpus", "memory_mb", "disk_gb", "resource_properties", "match"}
    )

    def look_up(self, params: Mapping[str, Any], requester: Requester) -> Mapping[str, Any]:
        """Return ``params`` with the flavor's data, stored as JSON in ``resource_properties``."""
        flavor = self.cloud.find_flavor(params["flavor_id"], requester.project_id)
        if flavor is None:
            raise InvalidInput(f"Flavor {params['flavor_id']} could not be found")
        params = super().look_up(params, requester)
        if is_open(params):
            _check_open(flavor)
        amounts = _size(flavor).amounts
        return {
            **params,
            "vcpus": flavor.vcpus,
            "memory_mb": flavor.ram,
            "disk_gb": amounts.get("DISK_GB", 0),
            "resource_properties": json.dumps(asdict(flavor), sort_keys=True),
        }

    def match(self, params: Mapping[str, Any]) -> Match:
        """Return which servers use the reservation: with ``open``, those of the flavor. Pure."""
        return Match(is_open=True, flavor=_stored(params).name) if is_open(params) else TARGETED

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        flavor = _stored(params)
        specs = flavor.extra_specs.items()
        traits = {key: value for key, value in specs if _has_scope("trait", key)}
        query, amount = read(traits).query, params["amount"]
        amounts = with_devices(_size(flavor).amounts, flavor.extra_specs, self._counted)
        requested = RequestedFlavor(
            name=flavor.name,
            extra_specs=flavor.extra_specs,
            shape={name: getattr(flavor, name) for name in _SHAPE},
            image=image_of(params),
        )
        return Requirement(
            HostPlugin.resource_type,
            amount,
            amount,
            query,
            amounts,
            flavor=requested,
            exclusive=is_open(params),
        )

    def size(self, params: Mapping[str, Any]) -> Size:
        """Return the size of one instance of the flavor. Pure."""
        return _size(_stored(params))


def _stored(params: Mapping[str, Any]) -> Flavor:
    """Return the flavor that ``look_up`` has stored in the parameters of a reservation.

    Raises InvalidInput if there is none.
    """
    try:
        return Flavor(**json.loads(params["resource_properties"]))
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput(f"Flavor {params['flavor_id']} was not looked up") from None


def _check_open(flavor: Flavor) -> None:
    """Raise InvalidInput if Nova could not place servers of the flavor on reserved hosts only."""
    if "," in flavor.name:
        raise InvalidInput(
            f"match: open is not possible with flavor {flavor.name!r}: Nova's scheduler separates"
            " names of flavors with commas. Use match: targeted"
        )
    if specs := sorted(key for key in flavor.extra_specs if _has_scope(_AGGREGATES, key)):
        raise InvalidInput(
            f"match: open is not possible with flavor {flavor.name!r}: its extra specs"
            f" {', '.join(specs)} keep its servers off reserved hosts. Use match: targeted"
        )


def _size(flavor: Flavor) -> Size:
    """Return the size of an instance with this flavor.

    Raises InvalidInput if climate cannot compute it.
    """
    specs = flavor.extra_specs
    for key, value in _UNSUPPORTED.items():
        if specs.get(key) == value:
            raise InvalidInput(f"Flavors with {key}={value} cannot be reserved")
    cpus = "PCPU" if specs.get(_POLICY) == "dedicated" else "VCPU"
    disk = flavor.disk + flavor.ephemeral - (-flavor.swap // 1024)
    own = {cpus: flavor.vcpus, "MEMORY_MB": flavor.ram, "DISK_GB": disk}
    resources = {key: value for key, value in specs.items() if _has_scope("resources", key)}
    overridden = {key.partition(":")[2] for key in resources}
    if "PCPU" in overridden:
        overridden.add("VCPU")
    amounts = {name: amount for name, amount in own.items() if name not in overridden and amount}
    return Size(
        {**amounts, **read(resources).amounts},
        {key: value for key, value in specs.items() if not _has_scope(_AGGREGATES, key)},
        {name: getattr(flavor, name) for name in _SHAPE},
    )


def _has_scope(scope: str, key: str) -> bool:
    """Return whether the key of an extra spec has the scope ``scope``.

    A number may follow the scope: ``trait:NAME`` and ``trait1:NAME`` have the scope ``trait``.
    """
    name, scoped, _ = key.partition(":")
    return bool(scoped) and name.startswith(scope)
