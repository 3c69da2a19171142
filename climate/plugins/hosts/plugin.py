"""``physical:host``: whole hosts, which a lease's project gets in a pool of its own.

The plug-in decides which steps happen in which order. A HostCloud (Nova, or the simulated one)
carries them out. A pool is named after its reservation. Every step checks the cloud first, so a
call that was interrupted can be repeated.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, ClassVar, Protocol

from marshmallow import ValidationError, fields, post_load, validate, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, NotFound
from climate.core.lease.model import HOST, Lease, Reservation, Resource
from climate.core.matching.extra_specs import RESOURCES, read
from climate.core.matching.query import And, Compare, Everything, Operand, Query, both
from climate.core.matching.requirement import Requirement
from climate.plugins.base import (
    DiscoveredResource,
    Drift,
    ExpectedState,
    Expression,
    RequestSchema,
    ResourcePlugin,
    Turn,
    WholeNumber,
    run_all,
)
from climate.plugins.hosts.audit import AuditedCloud, find_drifts
from climate.plugins.loader import load_cloud

# Limits one request: climate locks, stores and reports each host separately.
MAX_HOSTS = 10_000
BEFORE_END = ("", "default", "snapshot")
# The property with a host's amount of each resource class.
_TOTALS = {"VCPU": "vcpus", "MEMORY_MB": "memory_mb", "DISK_GB": "local_gb"}


class HostCloud(AuditedCloud, Protocol):
    """A cloud whose hosts climate reserves. Hosts are named by their external id.

    All methods that change something are idempotent. ``properties`` are the names of the
    properties that some hosts have in addition to those of HostPlugin.
    """

    properties: frozenset[str]

    def hosts(self) -> Iterable[DiscoveredResource]:
        """Return all hosts of the cloud."""

    def load_properties(self, hosts: Sequence[DiscoveredResource]) -> Sequence[DiscoveredResource]:
        """Return these hosts with the properties that take longer to read than ``hosts``."""

    def enroll(self, host: str) -> None:
        """Put a host into the free pool, closed to all projects, unless it is in another pool."""

    def withdraw(self, host: str) -> None:
        """Remove a host from the free pool, and so open it to all projects."""

    def disable_service(self, host: str) -> None:
        """Disable the service of a free host. Raises Conflict.

        It raises Conflict if the host is not free, or if servers are on it after its service is
        disabled.
        """

    def enable_service(self, host: str) -> None:
        """Enable the service of a host, if climate disabled it."""

    def ensure_pool(self, pool: str, project_id: str) -> None:
        """Create the pool, open to this project only."""

    def close_pool(self, pool: str) -> None:
        """Prevent new servers on the pool's hosts; succeeds if the pool is gone."""

    def pool_hosts(self, pool: str) -> Sequence[str]:
        """Return the hosts in the pool; none if the pool does not exist."""

    def add_host(self, pool: str, host: str) -> None:
        """Move a free host into the pool."""

    def remove_host(self, pool: str, host: str) -> None:
        """Move a host back into the free pool."""

    def delete_pool(self, pool: str) -> None:
        """Delete the pool; succeeds if it is gone."""

    def delete_servers(self, pool: str, host: str) -> None:
        """Delete all servers on a host of the pool; raises NotYet while some remain."""

    def snapshot_servers(self, host: str, occasion: str) -> None:
        """Save an image of every server on the host, once per ``occasion``."""


class HostSchema(RequestSchema):
    """The parameters of a reservation of hosts."""

    min = WholeNumber(required=True)
    max = WholeNumber(required=True)
    hypervisor_properties = Expression(required=True, allow_none=True)
    resource_properties = Expression(required=True, allow_none=True)
    before_end = fields.String(
        load_default="default", allow_none=True, validate=validate.OneOf(BEFORE_END)
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
                "Invalid values for min/max of hosts. Max must be equal to or larger than min."
            )

    @post_load
    def _defaults(self, data: dict[str, Any], **_kwargs: Any) -> dict[str, Any]:
        """Replace null with the default: Heat sends null for omitted properties."""
        if data.get("before_end") is None:
            data["before_end"] = "default"
        for name in ("hypervisor_properties", "resource_properties"):
            if name in data:
                data[name] = data[name] or ""
        return data


class HostPlugin(ResourcePlugin):
    """Whole physical hosts."""

    resource_type: ClassVar[str] = HOST
    schema: ClassVar[type[RequestSchema]] = HostSchema
    unit: ClassVar[Mapping[str, Any]] = {"min": 1, "max": 1}
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
        """Load the host cloud that ``conf`` names. Raises BrokenPlugin."""
        settings = conf[HOST]
        self.cloud: HostCloud = load_cloud(HOST, conf, turn=turn)
        self.native_properties = self.properties | self.cloud.properties
        self._before_end: str = settings.before_end

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Return ``min`` to ``max`` hosts that match both expressions.

        Either expression can use any property.
        """
        sources = (params["hypervisor_properties"], params["resource_properties"])
        everything: Query = Everything()
        query = reduce(both, (_query(source) for source in sources if source), everything)
        return Requirement(self.resource_type, params["min"], params["max"], query)

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Move these hosts into the reservation's pool, and all others out of it.

        A host that is down joins when it is up again.
        """
        pool, reserved = reservation.id, [resource.external_id for resource in resources]
        working = [resource.external_id for resource in resources if resource.reservable]
        self.cloud.ensure_pool(pool, lease.project_id)
        removed = [host for host in self.cloud.pool_hosts(pool) if host not in reserved]
        run_all(
            *(partial(self.cloud.add_host, pool, host) for host in working),
            *(partial(self._reclaim, pool, host) for host in removed),
        )
        return {}

    def before_end(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> None:
        """Save images of the servers, if ``before_end`` is ``snapshot``."""
        action = reservation.params["before_end"]
        if (self._before_end if action == "default" else action) == "snapshot":
            for resource in resources:
                occasion = f"{reservation.id} {lease.window.end.isoformat()}"
                self.cloud.snapshot_servers(resource.external_id, occasion)

    def end(self, _lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        """Delete the servers on the pool's hosts, free the hosts, and delete the pool.

        The hosts of the pool count, not those of the lease: only they were handed over. An
        operator may have removed a host from the pool, which opens it to all projects. ``enroll``
        closes it again.
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

    def _reclaim(self, pool: str, host: str) -> None:
        self.cloud.delete_servers(pool, host)
        self.cloud.remove_host(pool, host)

    def enroll(self, external_id: str) -> None:
        """Close an unreserved host to all projects."""
        self.cloud.enroll(external_id)

    def withdraw(self, external_id: str) -> None:
        """Open a host to all projects."""
        self.cloud.withdraw(external_id)

    def disable_service(self, external_id: str) -> None:
        """Disable the service of a free host that is about to be powered off."""
        self.cloud.disable_service(external_id)

    def enable_service(self, external_id: str) -> None:
        """Enable the service of a host that was powered off."""
        self.cloud.enable_service(external_id)

    def find(
        self, *, name: str | None = None, external_number: str | None = None
    ) -> DiscoveredResource:
        """Return the host with this hypervisor id or name. It must have no servers.

        Raises NotFound, Conflict.
        """
        value, key = (external_number, "id") if external_number else (name, "hypervisor_hostname")
        hosts = [host for host in self.cloud.hosts() if host.properties.get(key) == value]
        if not hosts:
            raise NotFound(f"Host '{value}' not found!")
        if hosts[0].refusal:
            raise Conflict(hosts[0].refusal)
        if len(hosts) > 1:
            raise Conflict(f"Multiple hosts are named '{value}': give the id of the host instead")
        servers = self.cloud.servers(hosts[0].external_id)
        if servers:
            raise Conflict(f"Servers {list(servers)} found for host {value}")
        return self.cloud.load_properties(hosts)[0]

    def audit(self, expected: Callable[[], ExpectedState]) -> Iterable[Drift]:
        """Compare pools and free hosts with the leases."""
        return find_drifts(self.cloud, expected)

    def inventory(self) -> Iterable[DiscoveredResource]:
        """Return all hosts of the cloud that can be reserved."""
        return self.cloud.load_properties([host for host in self.cloud.hosts() if not host.refusal])


def _query(source: str) -> Query:
    """Parse an expression or extra specs; an amount becomes a lower bound of the host's total."""
    selector = read(source)
    totals = (_at_least(name, amount) for name, amount in selector.amounts.items())
    return And((selector.query, *totals)) if selector.amounts else selector.query


def _at_least(resource_class: str, amount: int) -> Query:
    key = f"{RESOURCES}{resource_class}"
    name = _TOTALS.get(resource_class, key)
    return Compare(">=", name, Operand(str(amount)), "number", f'in "{key}"')
