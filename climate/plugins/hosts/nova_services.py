"""Converts Nova's compute services and nodes to hosts; disables and enables compute services.

Each compute service is a host with the service's name. Most services have one node (hypervisor). If
a service has several nodes (bare metal, clusters), the service is one host, and in addition each of
its nodes is a host with the name ``service/node``.

Before climate powers a host off, climate disables the host's service and stores a special reason in
Nova. By this reason, climate can tell its own changes from those of operators: it enables only
services that have this reason. ``DiscoveredResource.disabled`` is true only if an operator has
disabled the service.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from keystoneauth1.exceptions import ConnectTimeout

from climate.core.errors import Conflict
from climate.core.provisioning.cleaning import RESOURCE_CLASS
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.ironic_nodes import MAINTENANCE, PROVISION
from climate.plugins.openstack.servers import HostServers
from climate.plugins.openstack.session import answers

_IDENTITY = ("hypervisor_hostname", "hypervisor_type", "hypervisor_version", "cpu_info")
_AMOUNTS = ("vcpus", "memory_mb", "local_gb")

# The parts of cpu_info that are properties too, named like nested capabilities of a flavor.
CPU_INFO = (
    *("cpu_info:arch", "cpu_info:vendor", "cpu_info:model", "cpu_info:features"),
    *(f"cpu_info:topology:{name}" for name in ("cells", "sockets", "cores", "threads")),
)
# The reason that climate stores in Nova when it disables a compute service.
REST = "climate: nobody needs the host, it is without power"
# The property of a service with several nodes: the names of the nodes, separated by commas.
NODES = "nodes"

Node = Mapping[str, Any]

_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Service:
    """A compute service: its availability zone, and the time of its last report to Nova.

    ``zone`` is empty if climate created the zone for a reservation. Nova reports the state "up"
    until ``service_down_time`` (one minute by default) after ``heard_at``.
    """

    zone: str = ""
    heard_at: datetime | None = None


def known_services(listed: Iterable[Any], zone: Callable[[str], str]) -> dict[str, Service]:
    """Convert novaclient's compute services to Service objects; return these by host name.

    ``zone`` is a function that receives the name of a zone. It returns an empty string if climate
    created the zone for a reservation, and otherwise the same name.
    """
    return {
        service.host: Service(zone(service.zone), _reported(service.updated_at))
        for service in listed
    }


def _reported(updated_at: str | None) -> datetime:
    """Convert the time of a service's last report, in UTC without time zone, to an aware time.

    None means that the service has not reported yet, and becomes 1970-01-01.
    """
    return datetime.fromisoformat(updated_at).replace(tzinfo=UTC) if updated_at else _NEVER


def is_node(host: str) -> bool:
    """Return whether a host name is that of a single node of a service: ``service/node``."""
    return "/" in host


def find_hosts(
    nodes: Iterable[Node],
    services: Mapping[str, Service],
    capabilities: Mapping[str, Mapping[str, str]],
) -> Iterator[DiscoveredResource]:
    """Yield a host for each compute service of ``nodes``, in the order of service names.

    If a service has several nodes, also yield a host for each of these nodes. ``services`` is keyed
    by service name. ``capabilities`` maps node names to additional properties from the
    configuration.
    """
    by_service: dict[str, list[Node]] = {}
    for node in nodes:
        by_service.setdefault(node["service"]["host"], []).append(node)
    for service, members in sorted(by_service.items()):
        known = services.get(service, Service())
        zone = {"availability_zone": known.zone}
        described = [_node(node, capabilities) | zone for node in members]
        whole = described[0] if len(members) == 1 else _summed(service, described)
        yield _host(service, members, whole, known.heard_at)
        if len(members) > 1:
            for node, properties in zip(members, described, strict=True):
                name = f"{service}/{node['hypervisor_hostname']}"
                yield _host(name, [node], properties, known.heard_at)


def parse_capabilities(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Parse lines such as ``domain-c7: ha=True, drs=False``; return properties by node name.

    Raises ValueError if a line does not have this form.
    """
    properties: dict[str, dict[str, str]] = {}
    for line in filter(None, lines):
        node, _, rest = (part.strip() for part in line.partition(":"))
        pairs = [pair.partition("=") for pair in rest.split(",")]
        if not node or not all(name.strip() and equals for name, equals, _ in pairs):
            raise ValueError(f"{line!r} does not have the form NODE: NAME=VALUE, NAME=VALUE")
        properties.setdefault(node, {}).update(
            {name.strip(): value.strip() for name, _, value in pairs}
        )
    return properties


def _node(node: Node, capabilities: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    reported = {name: _text(node.get(name)) for name in (*_IDENTITY, *_AMOUNTS)}
    identity = {"id": _text(node["id"]), "service_name": node["service"]["host"]}
    parts = {
        name: _text(value) for name in CPU_INFO if (value := _value_at(node, name)) is not None
    }
    if node.get(RESOURCE_CLASS):
        parts[RESOURCE_CLASS] = _text(node[RESOURCE_CLASS])
    return {**reported, **parts, **identity, **capabilities.get(node["hypervisor_hostname"], {})}


def _value_at(node: Node, name: str) -> Any:  # noqa: ANN401 - JSON
    """Return the value at the path ``name``, such as ``a:b:c``, in a node's nested data.

    Returns None if the path does not exist.
    """
    value: Any = node
    for key in name.split(":"):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _summed(service: str, nodes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the properties of a service with several nodes.

    ``service`` is the name of the service, and ``nodes`` contains the properties of each node. The
    amounts of the service are the sums of the nodes' amounts. The service has another property only
    if all nodes have the same value. If the values of a required property differ, the service has a
    default value, such as an empty text.
    """
    shared = {
        name: value
        for name, value in nodes[0].items()
        if all(node.get(name) == value for node in nodes)
    }
    required = {**dict.fromkeys(_IDENTITY, ""), "hypervisor_version": "0"}
    amounts = {name: str(sum(int(node[name] or 0) for node in nodes)) for name in _AMOUNTS}
    names = ",".join(sorted(node["hypervisor_hostname"] for node in nodes))
    return {
        **required,
        **shared,
        **amounts,
        "id": service,
        "hypervisor_hostname": service,
        NODES: names,
    }


def _host(
    name: str,
    nodes: Sequence[Node],
    properties: Mapping[str, str],
    heard_at: datetime | None,
) -> DiscoveredResource:
    lost = any(node["state"] != "up" for node in nodes)
    disabled = any(map(_is_disabled, nodes))
    is_maintained = all(node.get(MAINTENANCE) for node in nodes)
    return DiscoveredResource(
        external_id=name,
        properties=properties,
        usable=not (lost or disabled or is_maintained),
        lost=lost,
        disabled=disabled,
        heard_at=heard_at,
        provision=nodes[0].get(PROVISION) if len(nodes) == 1 else None,
    )


def _is_disabled(node: Node) -> bool:
    """Return whether an operator, and not climate, has disabled the service of a node."""
    return bool(node["status"] != "enabled" and node["service"].get("disabled_reason") != REST)


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


_COMPUTE = "nova-compute"
# Timeout in seconds of a request that enables or disables a service. Nova stores the status at
# once, but answers only after it has informed the host. If the host is off and Nova does not know
# it, the answer comes after a minute (rpc_response_timeout). The host reads its status when it
# starts.
_PATIENCE = 5.0


class ComputeServices:
    """Disables and enables Nova's compute services.

    ``disable`` and ``enable`` raise BackendUnavailable if Nova does not answer or reports an error.
    """

    def __init__(self, nova: Any, occupants: HostServers) -> None:  # noqa: ANN401 - novaclient's
        self._nova = nova
        self._host_servers = occupants

    def find_all(self, **where: str) -> list[Any]:
        """Return all compute services that match ``where``, such as ``host="name"``.

        Raises novaclient's errors.
        """
        return list(self._nova.services.list(binary=_COMPUTE, **where))

    @answers()
    def disable(self, host: str, *, is_free: bool) -> None:
        """Disable the service of a free host, before climate powers the host off.

        ``is_free`` says whether the host is in the free pool. The method ignores this argument if
        climate has disabled the service already. Raises Conflict

        - if the service does not exist,
        - if an operator has disabled it,
        - if it is enabled and the host is not free,
        - if servers are on the host after the service is disabled.
        """
        service = self._service(host)
        if service is None:
            raise Conflict(f"Nova has no compute service {host}")
        if service.status == "enabled":
            if not is_free:
                raise Conflict(f"{host} is not in the free pool")
            self._store(service, status="disabled", disabled_reason=REST)
        elif service.disabled_reason != REST:
            raise Conflict(f"{host} is disabled in Nova: {service.disabled_reason or 'no reason'}")
        if others := self._host_servers.on(host):
            raise Conflict(f"servers {', '.join(others)} are on {host}")

    @answers()
    def enable(self, host: str) -> None:
        """Enable a service if it is climate that has disabled it; otherwise do nothing."""
        service = self._service(host)
        if service and service.status == "disabled" and service.disabled_reason == REST:
            self._store(service, status="enabled")

    def _store(self, service: Any, **values: str) -> None:  # noqa: ANN401 - novaclient's
        """Set values of a service in Nova. Succeeds even if Nova cannot inform the host."""
        try:
            self._nova.client.put(f"/os-services/{service.id}", body=values, timeout=_PATIENCE)
        except ConnectTimeout:
            stored = self._service(service.host)
            if stored is not None and stored.status != values["status"]:
                raise

    def _service(self, host: str) -> Any | None:  # noqa: ANN401 - novaclient's
        return next(iter(self.find_all(host=host)), None)
