"""``virtual:instance``: room for instances on hosts that others use, too.

An instance takes VCPU, MEMORY_MB (MiB) and DISK_GB (GiB) of a host for as long as the lease
lasts; hosts that somebody has as a whole meanwhile are out of the question. Parameters and their
odd spellings are those of Blazar's plugin.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from marshmallow import ValidationError, fields, post_load, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.core.extra_specs import read
from climate.core.lease import Lease, Reservation, Resource
from climate.core.requirement import Layout, Requirement
from climate.plugins.base import Found, RequestSchema, ResourcePlugin, Turn
from climate.plugins.host import Expression, HostPlugin, WholeNumber
from climate.plugins.loader import load_instance_cloud

# Bounds one request: units are placed one by one.
MAX_INSTANCES = 10_000
_MOST = 2**31 - 1
_LAYOUTS: Mapping[bool | None, Layout] = {
    None: Layout.ANYWHERE,
    True: Layout.TOGETHER,
    False: Layout.APART,
}


class InstanceCloud(Protocol):
    """What must be done about reserved instances, however a cloud does it; all idempotent."""

    def ensure_slots(
        self, reservation: Reservation, project_id: str, hosts: Sequence[str]
    ) -> Mapping[str, Any]:
        """Let the project boot what is reserved, on these hosts; return what users must know."""

    def delete_slots(self, reservation: Reservation) -> None:
        """Delete what was booted and let nobody boot it any more; raises NotYet meanwhile."""


class Affinity(fields.Field[bool]):
    """Whether instances stay together (true) or apart (false); nothing if they may be anywhere."""

    _WORDS: ClassVar[Mapping[str, bool | None]] = {
        **dict.fromkeys(("", "none"), None),
        **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
        **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
    }

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> Any:  # noqa: ANN401
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in self._WORDS:
            return self._WORDS[value.strip().lower()]
        raise ValidationError("Malformed parameter affinity: use true, false or none")


class InstanceSchema(RequestSchema):
    """The part of a reservation request that is about instances."""

    amount = WholeNumber(required=True)
    vcpus = WholeNumber(required=True)
    memory_mb = WholeNumber(required=True)
    disk_gb = WholeNumber(required=True)
    affinity = Affinity(required=True, allow_none=True)
    resource_properties = Expression(required=True, allow_none=True)

    @validates_schema
    def _sizes(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if not 1 <= data["amount"] <= MAX_INSTANCES:
            raise ValidationError(f"Must be from 1 to {MAX_INSTANCES}", "amount")
        for name in ("vcpus", "memory_mb", "disk_gb"):
            if not 0 <= data[name] <= _MOST:
                raise ValidationError(f"Must be from 0 to {_MOST}", name)
        if not any(data[name] for name in ("vcpus", "memory_mb", "disk_gb")):
            raise ValidationError("An instance needs vcpus, memory_mb or disk_gb")

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        data["resource_properties"] = data.get("resource_properties") or ""
        return data


class InstancePlugin(ResourcePlugin):
    """Room for instances on hosts."""

    resource_type: ClassVar[str] = "virtual:instance"
    schema: ClassVar[type[RequestSchema]] = InstanceSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1, "vcpus": 1, "memory_mb": 0, "disk_gb": 0}
    resizes: ClassVar[bool] = False
    native_properties: frozenset[str] = frozenset()

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        """Load the cloud that ``conf`` names for hosts."""
        self.cloud: InstanceCloud = load_instance_cloud(conf, turn)

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Shares of hosts that match; what extra specs ask of resource classes counts."""
        selector = read(params["resource_properties"])
        sizes = {
            "VCPU": params["vcpus"],
            "MEMORY_MB": params["memory_mb"],
            "DISK_GB": params["disk_gb"],
        }
        return Requirement(
            HostPlugin.resource_type,
            params["amount"],
            params["amount"],
            selector.query,
            {name: n for name, n in {**sizes, **selector.amounts}.items() if n},
            _LAYOUTS[params["affinity"]],
        )

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Let the project boot its instances."""
        hosts = [resource.external_id for resource in resources if resource.reservable]
        return self.cloud.ensure_slots(reservation, lease.project_id, hosts)

    def end(self, _lease: Lease, reservation: Reservation, _resources: Sequence[Resource]) -> None:
        """Delete them, and let nobody boot them any more."""
        self.cloud.delete_slots(reservation)

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Refuse: instances are reserved on hosts, which are registered as such."""
        raise Conflict(f"{name or external_number}: register hosts, not {self.resource_type}")

    def inventory(self) -> Iterable[Found]:
        """Return nothing: there is nothing of this type to register."""
        return ()
