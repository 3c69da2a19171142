"""Nova's compute services and nodes as hosts that can be reserved; disabling and enabling them.

A host is a compute service and has its name. Most services have one node. A service with several
nodes (bare metal, clusters) is a host as a whole, and each of its nodes is a host named
``service/node``.

climate disables the service of a host that it powers off, and records that as the reason. A
service that an operator disabled stays disabled, and a service that climate disabled does not
count as failed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from keystoneauth1.exceptions import ConnectTimeout

from climate.core.errors import Conflict
from climate.plugins.base import Found
from climate.plugins.openstack.servers import Occupants
from climate.plugins.openstack.session import answers

_TOLD = ("hypervisor_hostname", "hypervisor_type", "hypervisor_version", "cpu_info")
_AMOUNTS = ("vcpus", "memory_mb", "local_gb")

# The pieces of cpu_info that are properties, too, named like nested capabilities of a flavor.
CPU_INFO = (
    *("cpu_info:arch", "cpu_info:vendor", "cpu_info:model", "cpu_info:features"),
    *(f"cpu_info:topology:{name}" for name in ("cells", "sockets", "cores", "threads")),
)
# Why climate disables a compute service.
REST = "climate: nobody needs the host, it is without power"
# The property that names the nodes of a service that has several.
NODES = "nodes"

Node = Mapping[str, Any]

_NEVER = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Service:
    """What is known of a compute service besides its nodes: its zone, and when it was heard of.

    Nova says that a service is up for a minute (``service_down_time``) after it was heard of last.
    """

    zone: str = ""
    heard_at: datetime | None = None


def known_services(listed: Iterable[Any], zone: Callable[[str], str]) -> dict[str, Service]:
    """Return what Nova's list says of each service; ``zone`` is what its zone means to us."""
    return {one.host: Service(zone(one.zone), _reported(one.updated_at)) for one in listed}


def _reported(updated_at: str | None) -> datetime:
    """Return when a service reported last, which Nova says in UTC; one that never did: long ago.

    Nova says that this one is up, too, as it was just made.
    """
    return datetime.fromisoformat(updated_at).replace(tzinfo=UTC) if updated_at else _NEVER


def is_node(host: str) -> bool:
    """Tell whether a host is a single node of a service that has several."""
    return "/" in host


def find_hosts(
    nodes: Iterable[Node],
    services: Mapping[str, Service],
    capabilities: Mapping[str, Mapping[str, str]],
    *,
    alone: bool,
) -> Iterator[Found]:
    """Return a host for each service in Nova's list of hypervisors, by name.

    ``services`` is what is known of each service, ``capabilities`` what the configuration says of a
    node. The nodes of a service that has several follow it; unless they can be had
    ``alone``, each with the reason.
    """
    by_service: dict[str, list[Node]] = {}
    for node in nodes:
        by_service.setdefault(node["service"]["host"], []).append(node)
    for service, found in sorted(by_service.items()):
        known = services.get(service, Service())
        zone = {"availability_zone": known.zone}
        described = [_node(one, capabilities) | zone for one in found]
        usable = all(_works(one) for one in found)
        whole = described[0] if len(found) == 1 else _summed(service, described)
        lost = any(one["state"] != "up" for one in found)
        yield Found(
            external_id=service,
            properties=whole,
            usable=usable,
            lost=lost,
            disabled=any(map(_is_disabled, found)),
            heard_at=known.heard_at,
        )
        if len(found) > 1:
            for node, properties in zip(found, described, strict=True):
                reason = None if alone else _reason(service, len(found), node)
                yield replace(_part(service, node, properties, reason), heard_at=known.heard_at)


def parse_capabilities(lines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the properties of each node in lines like ``domain-c7: ha=True, drs=False``.

    Raises ValueError with the line that is not of this form.
    """
    found: dict[str, dict[str, str]] = {}
    for line in filter(None, lines):
        node, _, rest = (part.strip() for part in line.partition(":"))
        pairs = [pair.partition("=") for pair in rest.split(",")]
        if not node or not all(name.strip() and equals for name, equals, _ in pairs):
            raise ValueError(f"{line!r} is not of the form NODE: NAME=VALUE, NAME=VALUE")
        mine = found.setdefault(node, {})
        mine.update({name.strip(): value.strip() for name, _, value in pairs})
    return found


def _node(node: Node, capabilities: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    told = {name: _text(node.get(name)) for name in (*_TOLD, *_AMOUNTS)}
    ours = {"id": _text(node["id"]), "service_name": node["service"]["host"]}
    pieces = {name: _text(value) for name in CPU_INFO if (value := _piece(node, name)) is not None}
    return {**told, **pieces, **ours, **capabilities.get(node["hypervisor_hostname"], {})}


def _piece(node: Node, name: str) -> Any:  # noqa: ANN401 - JSON
    """Return what is at the end of ``a:b:c``, None if it is not there."""
    found: Any = node
    for key in name.split(":"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _summed(service: str, nodes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the service as one host: amounts add up, what differs between nodes is left out."""
    shared = {
        name: value
        for name, value in nodes[0].items()
        if all(node.get(name) == value for node in nodes)
    }
    promised = {**dict.fromkeys(_TOLD, ""), "hypervisor_version": "0"}
    amounts = {name: str(sum(int(node[name] or 0) for node in nodes)) for name in _AMOUNTS}
    names = ",".join(sorted(node["hypervisor_hostname"] for node in nodes))
    return {
        **promised,
        **shared,
        **amounts,
        "id": service,
        "hypervisor_hostname": service,
        NODES: names,
    }


def _part(service: str, node: Node, properties: Mapping[str, str], refusal: str | None) -> Found:
    return Found(
        external_id=f"{service}/{node['hypervisor_hostname']}",
        properties=properties,
        usable=_works(node),
        lost=node["state"] != "up",
        disabled=_is_disabled(node),
        refusal=refusal,
    )


def _reason(service: str, count: int, node: Node) -> str:
    return (
        f"{node['hypervisor_hostname']} is one of {count} nodes of the compute service {service},"
        " and Nova's host aggregates can only keep others off all of them at once: register"
        f" {service}"
    )


def _works(node: Node) -> bool:
    return bool(node["state"] == "up" and not _is_disabled(node))


def _is_disabled(node: Node) -> bool:
    """Tell whether an operator disabled the service; what climate did is no obstacle."""
    return bool(node["status"] != "enabled" and node["service"].get("disabled_reason") != REST)


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


_COMPUTE = "nova-compute"
# Nova stores it at once, and answers when it has told the host: if that is off, and Nova has not
# noticed, after a minute (rpc_response_timeout). The host will know when it starts.
_PATIENCE = 5.0


class Resting:
    """Takes services out of service and back. Raises BackendUnavailable."""

    def __init__(self, nova: Any, occupants: Occupants) -> None:  # noqa: ANN401 - novaclient's
        """Work with these ways into the cloud."""
        self._nova = nova
        self._occupants = occupants

    def services(self, **where: str) -> list[Any]:
        """Return all compute services, or that of one ``host``. Raises what the client raises."""
        return list(self._nova.services.list(binary=_COMPUTE, **where))

    @answers()
    def rest(self, host: str, *, is_free: bool) -> None:
        """Disable the service of a free host, and then look who is there; raises Conflict.

        One that rests already may be a lease's by now; it is to go off all the same.
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
        if others := self._occupants.on(host):
            raise Conflict(f"servers {', '.join(others)} are on {host}")

    @answers()
    def rouse(self, host: str) -> None:
        """Enable a service that we disabled; fine if it is not there or was not."""
        service = self._service(host)
        if service and service.status == "disabled" and service.disabled_reason == REST:
            self._store(service, status="enabled")

    def _store(self, service: Any, **wanted: str) -> None:  # noqa: ANN401 - novaclient's
        """Have Nova store what a service is to be, whether or not its host can be told."""
        try:
            self._nova.client.put(f"/os-services/{service.id}", body=wanted, timeout=_PATIENCE)
        except ConnectTimeout:
            found = self._service(service.host)
            if found is not None and found.status != wanted["status"]:
                raise

    def _service(self, host: str) -> Any | None:  # noqa: ANN401 - novaclient's
        return next(iter(self.services(host=host)), None)
