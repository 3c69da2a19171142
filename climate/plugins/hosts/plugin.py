"""``physical:host``: whole hosts, moved into a pool of the lease's project and back.

The plugin decides what happens in which order; a HostCloud (Nova, or the simulated one) knows
how. Pools are named after the reservation. Every step looks before it acts.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, ClassVar, Protocol

from marshmallow import ValidationError, fields, post_load, validate, validates_schema
from oslo_config.cfg import ConfigOpts

from climate.core.errors import Conflict, InvalidQuery, NotFound
from climate.core.lease.model import Lease, Reservation, Resource
from climate.core.matching.extra_specs import RESOURCES, read
from climate.core.matching.query import And, Compare, Everything, Operand, Query, both
from climate.core.matching.requirement import Requirement
from climate.plugins.base import (
    Difference,
    Expected,
    Found,
    RequestSchema,
    ResourcePlugin,
    Turn,
    do_all,
)
from climate.plugins.hosts.audit import AuditedCloud, differences
from climate.plugins.loader import load_cloud

# Bounds one request: hosts are locked, stored and reported one by one.
MAX_HOSTS = 10_000
BEFORE_END = ("", "default", "snapshot")
# The properties that tell how much a host has of a resource class.
_TOTALS = {"VCPU": "vcpus", "MEMORY_MB": "memory_mb", "DISK_GB": "local_gb"}


class HostCloud(AuditedCloud, Protocol):
    """What must be known and done about hosts, however a cloud does it.

    Hosts are named by their external id. All methods are idempotent where they change anything.
    ``properties`` are those that some hosts have besides HostPlugin's.
    """

    properties: frozenset[str]

    def hosts(self) -> Iterable[Found]:
        """Return all hosts there are."""

    def described(self, hosts: Sequence[Found]) -> Sequence[Found]:
        """Return these hosts with all their properties, as far as they can be told now."""

    def enroll(self, host: str) -> None:
        """Put a host among the free ones, which nobody can use, unless a pool has it."""

    def withdraw(self, host: str) -> None:
        """Take a host from the free ones, and leave it to everybody."""

    def rest(self, host: str) -> None:
        """Keep everybody off a free host, and out of service; raises Conflict.

        It is if it is no free host, or somebody is on it after it was taken out of service.
        """

    def rouse(self, host: str) -> None:
        """Take a host back into service, if it rests."""

    def ensure_pool(self, pool: str, project_id: str) -> None:
        """Make the pool, open to the project alone."""

    def close_pool(self, pool: str) -> None:
        """Let nobody put anything on the pool's hosts any more; fine if it is gone."""

    def pool_hosts(self, pool: str) -> Sequence[str]:
        """Return the hosts in the pool; none if there is no such pool."""

    def add_host(self, pool: str, host: str) -> None:
        """Move a free host into the pool."""

    def remove_host(self, pool: str, host: str) -> None:
        """Move a host back to the free ones."""

    def delete_pool(self, pool: str) -> None:
        """Remove the pool; fine if it is gone."""

    def delete_servers(self, pool: str, host: str) -> None:
        """Delete all servers on a host of the pool; raises NotYet while some are still there."""

    def snapshot_servers(self, host: str, occasion: str) -> None:
        """Keep an image of every server on the host, one for each ``occasion``."""


class WholeNumber(fields.Integer):
    """An integer, or text that is one: command lines send ``"1"``, but never ``1.5``."""

    def _validated(self, value: Any) -> int:  # noqa: ANN401 - marshmallow's signature
        if isinstance(value, bool | float):
            raise self.make_error("invalid", input=value)
        if isinstance(value, str) and not value.strip().isdecimal():
            raise self.make_error("invalid", input=value)
        return super()._validated(value)


class Expression(fields.Field[str]):
    """A property expression or extra specs, as text or JSON; kept as the text it was sent as."""

    def _deserialize(self, value: Any, *_args: Any, **_kwargs: Any) -> str:  # noqa: ANN401
        try:
            read(value)
        except InvalidQuery as error:
            raise InvalidQuery(f"{error.message} (in {self.name})") from None
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value)


class HostSchema(RequestSchema):
    """The part of a reservation request that is about hosts."""

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
        """Read null (Heat sends it for what was not given) as the default."""
        if data.get("before_end") is None:
            data["before_end"] = "default"
        for name in ("hypervisor_properties", "resource_properties"):
            if name in data:
                data[name] = data[name] or ""
        return data


class HostPlugin(ResourcePlugin):
    """Whole physical hosts."""

    resource_type: ClassVar[str] = "physical:host"
    schema: ClassVar[type[RequestSchema]] = HostSchema
    unit: ClassVar[Mapping[str, Any]] = {"min": 1, "max": 1}
    #: Those that every host has; a cloud may tell others.
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
        """Load the configured cloud driver."""
        settings = conf["physical:host"]
        self.cloud: HostCloud = load_cloud("physical:host", conf, turn=turn)
        self.native_properties = self.properties | self.cloud.properties
        self._before_end: str = settings.before_end

    def requirement(self, params: Mapping[str, Any]) -> Requirement:
        """Hosts that match both expressions; either may ask about either kind of property."""
        sources = (params["hypervisor_properties"], params["resource_properties"])
        everything: Query = Everything()
        query = reduce(both, (_query(source) for source in sources if source), everything)
        return Requirement(self.resource_type, params["min"], params["max"], query)

    def start(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> Mapping[str, Any]:
        """Have these hosts in the reservation's pool; one that fails joins when it works."""
        pool, wanted = reservation.id, [resource.external_id for resource in resources]
        working = [resource.external_id for resource in resources if resource.reservable]
        self.cloud.ensure_pool(pool, lease.project_id)
        unwanted = [host for host in self.cloud.pool_hosts(pool) if host not in wanted]
        do_all(
            *(partial(self.cloud.add_host, pool, host) for host in working),
            *(partial(self._take_back, pool, host) for host in unwanted),
        )
        return {}

    def before_end(
        self, lease: Lease, reservation: Reservation, resources: Sequence[Resource]
    ) -> None:
        """Keep images of the servers, if that was asked for."""
        wanted = reservation.params["before_end"]
        if (self._before_end if wanted == "default" else wanted) == "snapshot":
            for resource in resources:
                occasion = f"{reservation.id} {lease.window.end.isoformat()}"
                self.cloud.snapshot_servers(resource.external_id, occasion)

    def end(self, _lease: Lease, reservation: Reservation, resources: Sequence[Resource]) -> None:
        """Clear the pool's hosts and give them back, then remove the pool.

        What is in the pool counts, not what the lease holds: only those were handed over. What
        an operator took out of it meanwhile may be open to everybody, and is closed again.
        """
        pool = reservation.id
        self.cloud.close_pool(pool)
        hosts = self.cloud.pool_hosts(pool)
        lost = [one.external_id for one in resources if one.reservable]
        do_all(
            *(partial(self._take_back, pool, host) for host in hosts),
            *(partial(self.cloud.enroll, host) for host in lost if host not in hosts),
        )
        self.cloud.delete_pool(pool)

    def _take_back(self, pool: str, host: str) -> None:
        self.cloud.delete_servers(pool, host)
        self.cloud.remove_host(pool, host)

    def enroll(self, external_id: str) -> None:
        """Keep everybody off a host that no reservation has."""
        self.cloud.enroll(external_id)

    def withdraw(self, external_id: str) -> None:
        """Leave a host to everybody."""
        self.cloud.withdraw(external_id)

    def rest(self, external_id: str) -> None:
        """Keep everybody off a free host that is to be without power."""
        self.cloud.rest(external_id)

    def rouse(self, external_id: str) -> None:
        """Take a host back into service."""
        self.cloud.rouse(external_id)

    def find(self, *, name: str | None = None, external_number: str | None = None) -> Found:
        """Return the one host of that hypervisor number or name that has no servers on it."""
        wanted, key = (external_number, "id") if external_number else (name, "hypervisor_hostname")
        found = [host for host in self.cloud.hosts() if host.properties.get(key) == wanted]
        if not found:
            raise NotFound(f"Host '{wanted}' not found!")
        if found[0].refusal:
            raise Conflict(found[0].refusal)
        if len(found) > 1:
            raise Conflict(f"Multiple hosts are named '{wanted}': name one by its id")
        servers = self.cloud.servers(found[0].external_id)
        if servers:
            raise Conflict(f"Servers {list(servers)} found for host {wanted}")
        return self.cloud.described(found)[0]

    def audit(self, expected: Callable[[], Expected]) -> Iterable[Difference]:
        """Compare pools and free hosts with what leases have."""
        return differences(self.cloud, expected)

    def inventory(self) -> Iterable[Found]:
        """Return all hosts of the cloud that can be reserved."""
        return self.cloud.described([host for host in self.cloud.hosts() if not host.refusal])


def _query(source: str) -> Query:
    """Read an expression or extra specs: a host is taken whole, so amounts are what it has."""
    selector = read(source)
    enough = (_at_least(name, amount) for name, amount in selector.amounts.items())
    return And((selector.query, *enough)) if selector.amounts else selector.query


def _at_least(resource_class: str, amount: int) -> Query:
    key = f"{RESOURCES}{resource_class}"
    name = _TOTALS.get(resource_class, key)
    return Compare(">=", name, Operand(str(amount)), "number", f'in "{key}"')
