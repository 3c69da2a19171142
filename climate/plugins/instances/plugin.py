"""The plug-in for ``virtual:instance``: capacity for instances on hosts that reservations share.

An instance takes amounts of VCPU, MEMORY_MB (MiB) and DISK_GB (GiB) of a host for the time of the
lease. A host cannot be reserved as a whole and for instances at the same time. The parameters and
their accepted values are those of Blazar's plug-in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from marshmallow import ValidationError, fields, post_load, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.config.clouds import counted_devices
from climate.config.provisioning import check_networks
from climate.core.errors import Conflict, InvalidInput
from climate.core.lease.lifecycle import ReservationStatus
from climate.core.lease.model import Granted, Lease, Reservation
from climate.core.lease.on_start import creates
from climate.core.matching.extra_specs import RESOURCES, CountedDevices, Selector, read
from climate.core.matching.requirement import Layout, RequestedFlavor, Requirement
from climate.plugins.base import (
    DiscoveredResource,
    Drift,
    ExpectedState,
    Requester,
    ResourcePlugin,
    Turn,
    run_all,
)
from climate.plugins.hosts.plugin import HostPlugin
from climate.plugins.instances.audit import find_drifts
from climate.plugins.instances.cloud import Boot, InstanceCloud, Match, Size
from climate.plugins.instances.server_schema import SNAPSHOT, LifeCycleSchema
from climate.plugins.loader import load_cloud
from climate.plugins.request_fields import (
    Expression,
    RequestSchema,
    WholeNumber,
    is_open,
    titled,
)

# Limits one request: climate chooses a host for each instance separately.
MAX_INSTANCES = 10_000
_MOST = 2**31 - 1
_LAYOUTS: Mapping[bool | None, Layout] = {
    None: Layout.ANYWHERE,
    True: Layout.TOGETHER,
    False: Layout.APART,
}


class Affinity(fields.Field[bool]):
    """A field that says where instances must be.

    True: all on one host. False: each on a different host. None: anywhere.
    """

    def __init__(self, **kwargs: Any) -> None:
        form = titled(
            "Placement",
            "true: all on one host; false: each on another host; null: anywhere.",
            type="boolean",
            enum=[True, False, None],
        )
        super().__init__(**{**kwargs, "metadata": {**form, **kwargs.get("metadata", {})}})

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
    """The parameters of a reservation of instances."""

    amount = WholeNumber(
        required=True, metadata=titled("Instances", minimum=1, maximum=MAX_INSTANCES)
    )
    vcpus = WholeNumber(
        required=True, metadata=titled("VCPUs of an instance", minimum=0, maximum=_MOST)
    )
    memory_mb = WholeNumber(
        required=True, metadata=titled("Memory of an instance, MiB", minimum=0, maximum=_MOST)
    )
    disk_gb = WholeNumber(
        required=True, metadata=titled("Disk of an instance, GiB", minimum=0, maximum=_MOST)
    )
    affinity = Affinity(required=True, allow_none=True)
    resource_properties = Expression(
        required=True,
        allow_none=True,
        metadata=titled("Hosts", "Property expression that the hosts of the instances match."),
    )

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
    """The plug-in for instances of a size that the user chooses."""

    resource_type: ClassVar[str] = "virtual:instance"
    title: ClassVar[str] = "Instances"
    description: ClassVar[str] = "Room on hosts for instances of a size that you choose."
    booked_type: ClassVar[str | None] = HostPlugin.resource_type
    schema: ClassVar[type[RequestSchema]] = InstanceSchema
    unit: ClassVar[Mapping[str, Any]] = {"amount": 1, "vcpus": 1, "memory_mb": 0, "disk_gb": 0}
    resources_type: ClassVar[str | None] = HostPlugin.resource_type
    resizes: ClassVar[bool] = False
    fixed: ClassVar[frozenset[str]] = frozenset({"match"})
    native_properties: frozenset[str] = frozenset()

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        self.cloud: InstanceCloud = load_cloud("virtual:instance", conf, turn=turn)
        self._counted = counted_devices(conf)
        self._checks_ports = bool(check_networks(conf))

    def look_up(self, params: Mapping[str, Any], requester: Requester) -> Mapping[str, Any]:
        if creates(params):
            self.cloud.check_image(params["server"]["imageRef"], requester)
        if is_open(params) and not self.cloud.matches_openly:
            raise InvalidInput(
                "match: open is not possible in this cloud: it requires [nova] isolation = tenancy."
                " Use match: targeted, and boot servers with the flavor of the reservation"
            )
        self._check_port(params)
        return params

    def check_change(
        self, before: Mapping[str, Any], after: Mapping[str, Any], requester: Requester
    ) -> None:
        if (image := image_of(after)) and image != image_of(before):
            self.cloud.check_image(image, requester)
        if after.get("ready_port") != before.get("ready_port"):
            self._check_port(after)

    def _check_port(self, params: Mapping[str, Any]) -> None:
        if params.get("ready_port") and not self._checks_ports:
            raise InvalidInput(
                "ready_port is not possible in this cloud: its operator lists no network in"
                " [creation] check_networks. Use ready_text, or leave out ready_port"
            )

    def match(self, params: Mapping[str, Any]) -> Match:
        """Return which servers use the reservation. Pure."""
        return Match(is_open(params))

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Return a requirement for ``amount`` instances on hosts that match the properties.

        The parameter ``resource_properties`` is a property expression, or extra specs. Amounts in
        extra specs take precedence over ``vcpus``, ``memory_mb`` and ``disk_gb``.
        """
        selector = read(params["resource_properties"])
        return Requirement(
            HostPlugin.resource_type,
            params["amount"],
            params["amount"],
            selector.query,
            with_devices(_amounts(params, selector), selector.specs, self._counted),
            _LAYOUTS[params["affinity"]],
            flavor=self._flavor(params, selector),
            exclusive=is_open(params),
        )

    def _flavor(self, params: Mapping[str, Any], selector: Selector) -> RequestedFlavor:
        shape = {"vcpus": params["vcpus"], "ram": params["memory_mb"], "disk": params["disk_gb"]}
        return RequestedFlavor(
            extra_specs=selector.specs,
            shape=shape,
            image=image_of(params),
            devices=self._unchecked_devices(params, selector),
        )

    def _unchecked_devices(self, params: Mapping[str, Any], selector: Selector) -> tuple[str, ...]:
        """Return the keys of the extra specs about devices that climate refuses, if no filter does.

        The reservation's own flavor has no devices. So with ``match: targeted`` the servers could
        not use devices that climate counts. With ``match: open`` they have the operator's flavors.
        """
        if is_open(params):
            return self._counted.requested(selector.specs).uncounted
        counted = selector.amounts.keys() & self._counted.classes
        return (*selector.devices, *(f"{RESOURCES}{name}" for name in sorted(counted)))

    def preview_details(self, reservation_id: str) -> Mapping[str, Any]:
        """Return the id of the reservation's flavor, which ``start`` will create."""
        return {"flavor_id": reservation_id, "server_group_id": None, "aggregate_id": None}

    def size(self, params: Mapping[str, Any]) -> Size:
        """Return the size of one instance. It has no devices: only operators grant these. Pure."""
        amounts = _amounts(params, read(params["resource_properties"]))
        devices = self._counted.classes
        return Size({name: n for name, n in amounts.items() if name not in devices})

    def source_of(self, params: Mapping[str, Any]) -> str:
        return image_of(params)[:64]

    def acts_as_user(self, params: Mapping[str, Any]) -> bool:
        return self.cloud.acts_as_user and creates(params)

    def prepares(self, params: Mapping[str, Any]) -> bool:
        """Return whether the reservation gets a server group."""
        return self.cloud.makes_groups and params["affinity"] is not None

    def prepare(
        self, _lease: Lease, reservation: Reservation, requester: Requester
    ) -> Mapping[str, Any]:
        """Create the server group of the reservation, if there is to be one; return its id."""
        if not self.prepares(reservation.params):
            return {}
        apart = reservation.params["affinity"] is False
        group = self.cloud.make_group(requester, reservation.id, apart=apart)
        return {"server_group_id": group}

    def discard(self, _lease: Lease, reservation: Reservation) -> None:
        """Delete the server group."""
        if self.prepares(reservation.params):
            self.cloud.delete_group(reservation.id)

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Granted]
    ) -> Mapping[str, Any]:
        """Put the slots on ``resources``, then start the servers that the user requested.

        A slot is reserved capacity on a host for one instance. Slots and servers on other hosts are
        deleted. If a server cannot be started, the slots stay usable.
        """
        id_, reserved = reservation.id, {resource.external_id for resource in resources}
        size, match = self.size(reservation.params), self.match(reservation.params)
        details = {
            **self.preview_details(id_),
            **self.cloud.open_slots(id_, lease.project_id, size, match),
        }
        counts = self._counts(reservation, resources)
        removed = [host for host in self.cloud.slot_hosts(id_) if host not in reserved]
        run_all(
            *(
                partial(self.cloud.set_slots, id_, host, count, _room(size, match, count))
                for host, count in counts.items()
            ),
            *(partial(self.cloud.clear_host, id_, host) for host in removed),
        )
        group = {"server_group_id": reservation.details.get("server_group_id")}
        return {**details, **group, **self._boot(lease, reservation)}

    def _boot(self, lease: Lease, reservation: Reservation) -> dict[str, Any]:
        """Start the requested servers that do not exist yet; return ``{"servers": ids}``.

        The result contains the ids of all requested servers. If there are none, it is empty. Before
        the lease has started, servers that were started are checked, and started again if they do
        not exist any more: their host may have failed.
        """
        params, started = reservation.params, reservation.details.get("servers", [])
        if not creates(params):
            return {"servers": started} if started else {}
        known = started if reservation.status is ReservationStatus.ACTIVE else []
        boot = Boot(
            reservation_id=reservation.id,
            name=lease.name,
            amount=params["amount"],
            known=len(known),
            server=params["server"],
            ready_text=params.get("ready_text") or "",
            ready_port=params.get("ready_port"),
            booted=frozenset(started),
        )
        return {"servers": [*known, *self.cloud.boot(lease.trust_id, boot)]}

    def end(self, _lease: Lease, reservation: Reservation, resources: Sequence[Granted]) -> None:
        id_ = reservation.id
        self.cloud.close_slots(id_)
        if reservation.params.get("on_end") == SNAPSHOT:
            self.cloud.keep_images(id_)
        hosts = {*self.cloud.slot_hosts(id_), *(resource.external_id for resource in resources)}
        run_all(*(partial(self.cloud.clear_host, id_, host) for host in sorted(hosts)))
        self.cloud.delete_slots(id_)

    def _counts(self, reservation: Reservation, resources: Sequence[Granted]) -> dict[str, int]:
        """Return the number of a reservation's slots by host.

        A slot is reserved capacity for one instance. Hosts that are not reservable are left out.
        """
        needs = self.requirement(reservation.params)
        return {
            resource.external_id: needs.units(resource.amounts)
            for resource in resources
            if resource.reservable
        }

    def audit(self, expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        return find_drifts(
            self.cloud, expected, lambda held: self._counts(held.reservation, held.resources)
        )

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        raise Conflict(f"{name or external_number}: register hosts, not {self.resource_type}")

    def inventory(self) -> Iterable[DiscoveredResource]:
        return ()


def _room(size: Size, match: Match, count: int) -> dict[str, int] | None:
    """Return the room of ``count`` slots on a host, if ordinary flavors can use it; else None."""
    return {name: n * count for name, n in size.amounts.items()} if match.is_open else None


def image_of(params: Mapping[str, Any]) -> str:
    """Return the id of the image of the servers that climate starts; empty if it starts none."""
    return str((params.get("server") or {}).get("imageRef") or "")


def with_devices(
    amounts: Mapping[str, int], specs: Mapping[str, str], counted: CountedDevices
) -> dict[str, int]:
    """Return the amounts of one instance together with the devices in its extra specs. Pure."""
    devices = counted.requested(specs).amounts
    return {
        name: amounts.get(name, 0) + devices.get(name, 0) for name in sorted({*amounts, *devices})
    }


def _amounts(params: Mapping[str, Any], selector: Selector) -> dict[str, int]:
    sizes = {
        "VCPU": params["vcpus"],
        "MEMORY_MB": params["memory_mb"],
        "DISK_GB": params["disk_gb"],
    }
    return {name: n for name, n in {**sizes, **selector.amounts}.items() if n}
