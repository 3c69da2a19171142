"""The plug-in for ``physical:host``: whole hosts, reserved for the project of a lease.

A pool is a set of hosts in the cloud. Each running reservation has a pool of its own, named by the
reservation's id. Free registered hosts are in the free pool, which is closed to all projects. The
plug-in decides which steps happen in which order. A HostCloud (of Nova, or simulated) carries out
the steps. Every step checks the cloud first, so an interrupted call can be repeated.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any, ClassVar, Protocol

from marshmallow import ValidationError, fields, post_load, validate, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.config.clouds import counted_devices
from climate.core.errors import Conflict, InvalidInput, NotFound
from climate.core.lease.model import HOST, Granted, Inventory, Lease, Reservation, Resource
from climate.core.matching.extra_specs import MOST_DEVICES, RESOURCES, Selector, read
from climate.core.matching.query import And, Compare, Everything, Operand, Query, both
from climate.core.matching.requirement import RequestedFlavor, Requirement
from climate.plugins.base import (
    DiscoveredResource,
    Drift,
    ExpectedState,
    Requester,
    ResourcePlugin,
    Turn,
    run_all,
)
from climate.plugins.hosts.audit import AuditedCloud, find_drifts
from climate.plugins.loader import load_cloud
from climate.plugins.request_fields import (
    TARGETED,
    Expression,
    RequestSchema,
    WholeNumber,
    is_open,
    match_field,
    titled,
)

LOG = logging.getLogger(__name__)
# Limits one request: climate locks, stores and reports each host separately.
MAX_HOSTS = 10_000
BEFORE_END = ("", "default", "snapshot")
# The property with a host's total amount of a resource class.
_TOTALS = {"VCPU": "vcpus", "MEMORY_MB": "memory_mb", "DISK_GB": "local_gb"}


class HostCloud(AuditedCloud, Protocol):
    """Interface of a driver for a cloud whose hosts climate reserves.

    More methods are in AuditedCloud. ``host`` is the external id of a host. A pool is the set of
    hosts of one reservation; ``pool`` is this reservation's id. All methods that change the cloud
    are idempotent.
    """

    #: The names of the properties that hosts can have in addition to ``HostPlugin.properties``.
    properties: frozenset[str]

    def hosts(self) -> Iterable[DiscoveredResource]:
        """Return all hosts of the cloud, even those that cannot be used or registered now."""

    def load_properties(self, hosts: Sequence[DiscoveredResource]) -> Sequence[DiscoveredResource]:
        """Return these hosts, completed with data that take longer to read.

        ``hosts`` is a result of the method ``hosts``, or a part of it. A driver may return some
        hosts incomplete, with ``complete=False``.
        """

    def withdraw(self, host: str) -> None:
        """Open a host to all projects: remove it from the free pool, and enable its service."""

    def disable_service(self, host: str) -> None:
        """Disable the service of a free host, so that no server can start on it.

        Raises Conflict if the host is not free. Also raises Conflict if servers are still on the
        host after the method has disabled the service.
        """

    def enable_service(self, host: str) -> None:
        """Enable the service of a host, if climate has disabled it."""

    def ensure_pool(self, pool: str, project_id: str, *, is_first: bool = False) -> None:
        """Create a pool if it is missing, and let only the project ``project_id`` use its hosts.

        If ``is_first`` is set, the project's servers use these hosts before all others.
        """

    @property
    def matches_openly(self) -> bool:
        """Whether servers use the hosts of a pool although their user does not name it."""

    def close_pool(self, pool: str) -> None:
        """Prevent new servers on the hosts in the pool; do nothing if there is no such pool."""

    def pool_hosts(self, pool: str) -> Sequence[str]:
        """Return the hosts in the pool; none if the pool does not exist."""

    def add_host(self, pool: str, host: str) -> None:
        """Move a free host into the pool of a reservation."""

    def delete_servers(self, pool: str, host: str) -> None:
        """If the host is in the pool, delete its servers; raise NotYet while servers remain."""

    def snapshot_servers(self, host: str, occasion: str) -> None:
        """Create an image of every server on the host.

        ``occasion`` is a text that identifies the reason for the images, such as the end of a
        lease. If the call is repeated with the same text, it creates only the images that are
        missing.
        """


class HostSchema(RequestSchema):
    """The parameters of a reservation of hosts."""

    min = WholeNumber(
        required=True,
        metadata=titled("Hosts, at least", minimum=1, maximum=MAX_HOSTS),
    )
    max = WholeNumber(
        required=True,
        metadata=titled("Hosts, at most", minimum=1, maximum=MAX_HOSTS),
    )
    hypervisor_properties = Expression(
        required=True,
        allow_none=True,
        metadata=titled("Hardware", "Property expression that every host must match."),
    )
    resource_properties = Expression(
        required=True,
        allow_none=True,
        metadata=titled("Other properties", "A second expression that every host must match."),
    )
    before_end = fields.String(
        load_default="default",
        allow_none=True,
        validate=validate.OneOf(BEFORE_END),
        metadata=titled(
            "Before the end",
            "snapshot: save an image of each server; default: what the operator configured.",
        ),
    )

    match = match_field(
        "open: your servers use the reserved hosts first, and then others; targeted: Nova chooses"
        " among all hosts on which your servers can run."
    )

    @validates_schema
    def _min_and_max(self, data: dict[str, Any], **_kwargs: Any) -> None:
        if not (data["min"] >= 1 and 1 <= data["max"] <= MAX_HOSTS):
            raise ValidationError(
                "Malformed parameter min and max (must be greater than or equal to 1,"
                f" and at most {MAX_HOSTS})"
            )
        if data["min"] > data["max"]:
            raise ValidationError(
                f"Invalid values for min/max of hosts: min {data['min']} is larger than max"
                f" {data['max']}. Max must be equal to or larger than min."
            )

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Replace null with the default: Heat sends null for omitted properties."""
        if data.get("before_end") is None:
            data["before_end"] = "default"
        data["match"] = data["match"] or TARGETED
        for name in ("hypervisor_properties", "resource_properties"):
            if name in data:
                data[name] = data[name] or ""
        return data


class HostPlugin(ResourcePlugin):
    """The plug-in for whole physical hosts."""

    resource_type: ClassVar[str] = HOST
    title: ClassVar[str] = "Hosts"
    description: ClassVar[str] = "Whole physical hosts for your project alone."
    schema: ClassVar[type[RequestSchema]] = HostSchema
    unit: ClassVar[Mapping[str, Any]] = {"min": 1, "max": 1}
    gives_back: ClassVar[bool] = True
    fixed: ClassVar[frozenset[str]] = frozenset({"match"})
    #: The properties of every host; a HostCloud can add others.
    properties: ClassVar[frozenset[str]] = frozenset(
        {
            "id",
            "hypervisor_hostname",
            "hypervisor_type",
            "hypervisor_version",
            "service_name",
            "vcpus",
            "memory_mb",
            "local_gb",
            "cpu_info",
            "availability_zone",
        }
    )

    def __init__(self, conf: ConfigOpts, turn: Turn) -> None:
        settings = conf[HOST]
        self.cloud: HostCloud = load_cloud(HOST, conf, turn=turn)
        self.native_properties = self.properties | self.cloud.properties
        self._before_end: str = settings.before_end
        self._counted = counted_devices(conf)
        self._device_classes = {f"{RESOURCES}{name}": name for name in self._counted.classes}
        self.capacity_properties = frozenset(self._device_classes)

    def look_up(self, params: Mapping[str, Any], _requester: Requester) -> Mapping[str, Any]:
        """Return ``params``. Raises InvalidInput if this cloud does not support its ``match``."""
        if is_open(params) and not self.cloud.matches_openly:
            raise InvalidInput(
                "match: open is not possible in this cloud: it requires [nova] isolation = tenancy."
                " Use match: targeted, and boot servers with the hint reservation"
            )
        return params

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Return a requirement for ``min`` to ``max`` hosts.

        The hosts must match the parameters ``hypervisor_properties`` and ``resource_properties``.
        """
        sources = (params["hypervisor_properties"], params["resource_properties"])
        everything: Query = Everything()
        selectors = [read(source) for source in sources if source]
        devices = [self._counted.requested(each.specs) for each in selectors]
        queries = (_query(each, own.amounts) for each, own in zip(selectors, devices, strict=True))
        query = reduce(both, queries, everything)
        flavor = RequestedFlavor(
            extra_specs={key: value for each in selectors for key, value in each.specs.items()},
            devices=tuple(key for each in devices for key in each.uncounted),
        )
        minimum, maximum = params["min"], params["max"]
        return Requirement(self.resource_type, minimum, maximum, query, flavor=flavor)

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Move ``resources`` into the pool of the reservation.

        If the pool has other hosts, delete their servers, and remove these hosts from the pool.
        """
        pool, reserved = reservation.id, [resource.external_id for resource in resources]
        working = [resource.external_id for resource in resources if resource.reservable]
        self.cloud.ensure_pool(pool, lease.project_id, is_first=is_open(reservation.params))
        removed = [host for host in self.cloud.pool_hosts(pool) if host not in reserved]
        run_all(
            *(partial(self.cloud.add_host, pool, host) for host in working),
            *(partial(self._reclaim, pool, host) for host in removed),
        )
        return {}

    def before_end(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> None:
        """Create images of the servers, if the requested or configured action is ``snapshot``."""
        action = reservation.params["before_end"]
        if (self._before_end if action == "default" else action) == "snapshot":
            for resource in resources:
                occasion = f"{reservation.id} {lease.window.end.isoformat()}"
                self.cloud.snapshot_servers(resource.external_id, occasion)

    def end(self, _lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        """Delete the servers on the hosts in the pool, free the hosts, and delete the pool.

        If a reserved host is missing in the pool, close the host with ``enroll``, and do not delete
        its servers. Such a host was never added to the pool, or an operator has removed it from the
        pool and so opened it to all projects. Its servers may therefore belong to other users.
        """
        pool = reservation.id
        self.cloud.close_pool(pool)
        hosts = self.cloud.pool_hosts(pool)
        reserved = [resource.external_id for resource in resources if resource.reservable]
        run_all(
            *(partial(self._reclaim, pool, host) for host in hosts),
            *(partial(self.cloud.enroll, host) for host in reserved if host not in hosts),
        )
        self.cloud.delete_pool(pool)

    def unused(self, resources: Sequence[Granted]) -> Iterable[Granted]:
        """Yield the hosts without servers."""
        return (each for each in resources if not self.cloud.servers(each.external_id))

    def _reclaim(self, pool: str, host: str) -> None:
        self.cloud.delete_servers(pool, host)
        self.cloud.remove_host(pool, host)

    def enroll(self, external_id: str) -> None:
        self.cloud.enroll(external_id)

    def withdraw(self, external_id: str) -> None:
        self.cloud.withdraw(external_id)

    def disable_service(self, external_id: str) -> None:
        self.cloud.disable_service(external_id)

    def enable_service(self, external_id: str) -> None:
        self.cloud.enable_service(external_id)

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        value, key = (external_number, "id") if external_number else (name, "hypervisor_hostname")
        hosts = [host for host in self.cloud.hosts() if host.properties.get(key) == value]
        if not hosts:
            what = "id" if external_number else "name"
            raise NotFound(f"Host '{value}' not found: the cloud has no host with this {what}")
        if len(hosts) > 1:
            raise Conflict(f"Multiple hosts are named '{value}': give the id of the host instead")
        self.check_unused(hosts[0])
        return self.cloud.load_properties(hosts)[0]

    def check_unused(self, resource: DiscoveredResource) -> None:
        if servers := self.cloud.servers(resource.external_id):
            name = resource.properties.get("hypervisor_hostname", resource.external_id)
            raise Conflict(f"Servers {list(servers)} found for host {name}")

    def audit(self, expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        return find_drifts(self.cloud, expected)

    def declared(
        self, resource: DiscoveredResource, properties: Mapping[str, str]
    ) -> DiscoveredResource:
        """Return the host with the numbers of devices that the operator's properties declare.

        Such a property is ``resources:CLASS``, with a class in ``[nova] pci_aliases`` or
        ``device_profiles``. A host on which no instances can be reserved gets none. Raises
        InvalidInput if the value is not a whole number.
        """
        declared = {
            class_: Inventory(_number_of_devices(name, properties[name]))
            for name, class_ in sorted(self._device_classes.items())
            if name in properties
        }
        if not resource.inventories:
            return resource
        return replace(resource, inventories={**resource.inventories, **declared})

    def refresh(self, registered: Sequence[Resource]) -> Iterable[DiscoveredResource]:
        """Yield all hosts of the cloud, with the devices that the operator has declared."""
        properties = {each.external_id: each.extra_properties for each in registered}
        for host in self.inventory():
            try:
                yield self.declared(host, properties.get(host.external_id, {}))
            except InvalidInput as error:
                # The value was set before an option of [nova] named the class.
                LOG.warning("%s has no devices that can be reserved: %s", host.external_id, error)
                yield host

    def inventory(self) -> Iterable[DiscoveredResource]:
        return self.cloud.load_properties(list(self.cloud.hosts()))


def _query(selector: Selector, devices: Mapping[str, int]) -> Query:
    """Return the query for a property expression, or for the extra specs of a flavor.

    Amounts in extra specs, such as ``resources:VCPU``, become minimum amounts of the whole host,
    and so do ``devices``, which maps resource classes to amounts.
    """
    amounts = (*selector.amounts.items(), *devices.items())
    totals = (_at_least(name, amount) for name, amount in amounts)
    return And((selector.query, *totals)) if amounts else selector.query


def _at_least(resource_class: str, amount: int) -> Query:
    key = f"{RESOURCES}{resource_class}"
    name = _TOTALS.get(resource_class, key)
    return Compare(">=", name, Operand(str(amount)), "number", f'in "{key}"')


def _number_of_devices(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_DEVICES))):
        raise InvalidInput(
            f"{name} must be a whole number from 0 to {MOST_DEVICES}, not {text!r}: it is the"
            " number of devices of the host"
        )
    return int(text)
