"""``virtual:instance``: room for instances on hosts that others use, too.

An instance takes VCPU, MEMORY_MB (MiB) and DISK_GB (GiB) of a host for as long as the lease
lasts; hosts that somebody has as a whole meanwhile are out of the question. Parameters and their
odd spellings are those of Blazar's plugin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from marshmallow import ValidationError, fields, post_load, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict
from climate.core.lease.model import Granted, Lease, Reservation
from climate.core.matching.extra_specs import read
from climate.core.matching.requirement import Layout, Requirement
from climate.plugins.base import (
    Asker,
    Difference,
    Expected,
    Found,
    Holding,
    RequestSchema,
    ResourcePlugin,
    Turn,
    do_all,
)
from climate.plugins.hosts.plugin import Expression, HostPlugin, WholeNumber
from climate.plugins.instances.audit import differences
from climate.plugins.instances.cloud import Boot, InstanceCloud, Size
from climate.plugins.instances.server_schema import CREATE, SNAPSHOT, LifeCycleSchema
from climate.plugins.loader import load_cloud

# Bounds one request: units are placed one by one.
MAX_INSTANCES = 10_000
_MOST = 2**31 - 1
_LAYOUTS: Mapping[bool | None, Layout] = {
    None: Layout.ANYWHERE,
    True: Layout.TOGETHER,
    False: Layout.APART,
}


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


class InstanceSchema(LifeCycleSchema):
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
        """Load the driver for instances in the cloud of the hosts."""
        self.cloud: InstanceCloud = load_cloud("virtual:instance", conf, turn=turn)

    def look_up(self, params: Mapping[str, Any], asker: Asker) -> Mapping[str, Any]:
        """Return ``params``; raises InvalidInput if servers cannot be booted from their image."""
        if params.get("on_start") == CREATE:
            self.cloud.check_image(params["server"]["imageRef"], asker)
        return params

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

    def foretold(self, reservation_id: str) -> Mapping[str, Any]:
        """Tell the flavor's id, though nobody can use it yet."""
        return {"flavor_id": reservation_id, "server_group_id": None, "aggregate_id": None}

    def size(self, params: Mapping[str, Any]) -> Size:
        """Return what one instance is. Pure."""
        return Size(self.requirement(params).amounts)

    def acts_as_user(self, params: Mapping[str, Any]) -> bool:
        """Servers are booted as the user, where there is one."""
        return self.cloud.acts_as_user and params.get("on_start") == CREATE

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Have the slots on these hosts; one that fails gets them when it works.

        Servers are booted when there is room for them, and that stays open if they cannot be.
        """
        id_, held = reservation.id, {one.external_id for one in resources}
        told = {
            **self.foretold(id_),
            **self.cloud.open_slots(id_, lease.project_id, self.size(reservation.params)),
        }
        wanted = self._counts(reservation, resources)
        unwanted = [host for host in self.cloud.slot_hosts(id_) if host not in held]
        do_all(
            *(partial(self.cloud.set_slots, id_, host, count) for host, count in wanted.items()),
            *(partial(self.cloud.clear_host, id_, host) for host in unwanted),
        )
        return {**told, **self._booted(lease, reservation)}

    def _booted(self, lease: Lease, reservation: Reservation) -> dict[str, Any]:
        """Boot what servers are asked for and were not booted before; return all that were."""
        params, known = reservation.params, reservation.details.get("servers", [])
        if params.get("on_start") != CREATE:
            return {"servers": known} if known else {}
        boot = Boot(
            reservation_id=reservation.id,
            name=lease.name,
            amount=params["amount"],
            known=len(known),
            server=params["server"],
        )
        return {"servers": [*known, *self.cloud.boot(lease.trust_id, boot)]}

    def end(self, _lease: Lease, reservation: Reservation, resources: Sequence[Granted]) -> None:
        """Delete the instances, and let nobody boot them any more."""
        id_ = reservation.id
        self.cloud.close_slots(id_)
        if reservation.params.get("on_end") == SNAPSHOT:
            self.cloud.keep_images(id_)
        hosts = {*self.cloud.slot_hosts(id_), *(one.external_id for one in resources)}
        do_all(*(partial(self.cloud.clear_host, id_, host) for host in sorted(hosts)))
        self.cloud.delete_slots(id_)

    def _counts(self, reservation: Reservation, resources: Sequence[Granted]) -> dict[str, int]:
        """Return how many instances a reservation has room for on each host that works."""
        needs = self.requirement(reservation.params)
        return {one.external_id: needs.units(one.amounts) for one in resources if one.reservable}

    def audit(self, expected: Callable[[], Expected]) -> Iterable[Difference]:
        """Compare slots with what leases have."""

        def counts(holding: Holding) -> Mapping[str, int]:
            return self._counts(holding.reservation, holding.resources)

        return differences(self.cloud, expected, counts)

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Refuse: instances are reserved on hosts, which are registered as such."""
        raise Conflict(f"{name or external_number}: register hosts, not {self.resource_type}")

    def inventory(self) -> Iterable[Found]:
        """Return nothing: there is nothing of this type to register."""
        return ()
