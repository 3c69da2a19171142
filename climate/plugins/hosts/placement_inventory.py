"""Reads traits and inventories of hosts from Placement, and caches them.

Placement increases the generation of a resource provider at every change, also when a server starts
on it. One request returns the generations of all providers, but traits and inventories require one
or two requests per provider. Therefore climate reads only providers whose generation has changed,
up to a limit per call; later calls read the others.

A node has a tree of providers. The data of the node are the sum over this tree. Users can reserve
instances only on hosts with inventories. A service with several nodes gets no inventories, because
an instance cannot run on two nodes. The nodes of such a service get none either.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException

from climate.core.lease.model import Inventory
from climate.core.matching.extra_specs import LONGEST_NAME, PRESENT, RESOURCES, TRAIT
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.nova_nodes import NODE_CLASS
from climate.plugins.hosts.nova_services import NODES, is_node

LOG = logging.getLogger(__name__)
# Limits the providers that one call reads. Reading a provider takes some milliseconds.
MOST_READ = 1_000
# Prefix of the temporary classes of reservations, which are not properties of hosts.
_RESERVATION = "CUSTOM_RESERVATION_"
_FIELDS = ("total", "reserved", "allocation_ratio", "max_unit")

Provider = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """Placement's data about a node: properties, and inventories by resource class.

    The data come from all resource providers in the node's tree.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    inventories: Mapping[str, Inventory] = field(default_factory=dict)


class ProviderInventory:
    """Adds traits and inventories from Placement to hosts; caches these data between calls."""

    def __init__(
        self,
        placement: Adapter,
        traits: Sequence[str],
        resource_classes: Sequence[str],
        devices: Collection[str] = (),
    ) -> None:
        """Set which traits and resource classes become properties of hosts.

        ``traits`` and ``resource_classes`` are patterns such as ``HW_CPU_*``. ``devices`` are the
        classes of devices: Nova requests each PCI device, and each group of a device profile,
        separately, so a server can have devices of several providers.
        """
        self._placement = placement
        self._traits = traits
        self._classes = resource_classes
        self._devices = frozenset(devices)
        self._known: dict[str, tuple[frozenset[Any], Facts]] = {}

    def describe(
        self, hosts: Sequence[DiscoveredResource], names: Collection[str]
    ) -> list[DiscoveredResource]:
        """Return all ``hosts``; add traits and inventories from Placement to those in ``names``.

        Hosts without these data have ``complete=False``: the hosts that are not in ``names``, the
        hosts beyond the limit of one call, and all hosts if Placement does not answer.
        """
        nodes = {node for host in hosts if host.external_id in names for node in _nodes(host)}
        try:
            known = self._read(sorted(nodes))
        except ClientException as error:
            LOG.warning("cannot read the traits and inventories of hosts from Placement: %s", error)
            known = {}
        return [_with_facts(host, known) for host in hosts]

    def _read(self, names: Sequence[str]) -> dict[str, Facts]:
        """Return Placement's data about the nodes ``names``, by node name.

        One call reads a limited number of resource providers. A node beyond this limit is missing
        in the result, except if the cache contains up-to-date data about the node.
        """
        if not names:
            return {}
        trees, read = self._trees(names), 0
        current: dict[str, Facts] = {}
        for name in names:
            tree = trees.get(name, [])
            stamp = frozenset((provider["uuid"], provider["generation"]) for provider in tree)
            seen, facts = self._known.get(name, (None, Facts()))
            if seen != stamp and read < MOST_READ:
                read += len(tree)
                seen, facts = self._known[name] = stamp, self._facts(tree)
            if seen == stamp:
                current[name] = facts
        return current

    def _trees(self, names: Sequence[str]) -> dict[str, list[Provider]]:
        if len(names) == 1:
            roots = self._list(name=names[0])
            return {names[0]: self._list(in_tree=roots[0]["uuid"]) if roots else []}
        providers = self._list()
        name_of = {provider["uuid"]: provider["name"] for provider in providers}
        trees: dict[str, list[Provider]] = {}
        for provider in providers:
            root = name_of.get(provider["root_provider_uuid"], "")
            trees.setdefault(root, []).append(provider)
        return trees

    def _list(self, **query: str) -> list[Provider]:
        return list(self._get("/resource_providers", **query)["resource_providers"])

    def _facts(self, tree: Iterable[Provider]) -> Facts:
        traits: set[str] = set()
        inventories: dict[str, Inventory] = {}
        for provider in tree:
            path = f"/resource_providers/{provider['uuid']}"
            if self._traits:
                traits.update(self._get(f"{path}/traits")["traits"])
            for name, record in self._get(f"{path}/inventories")["inventories"].items():
                if name != NODE_CLASS and not name.startswith(_RESERVATION):
                    inventory = Inventory(**{key: record[key] for key in _FIELDS})
                    if name in self._devices:
                        inventory = replace(inventory, max_unit=None)
                    inventories[name] = _sum(inventories.get(name), inventory)
        properties = {f"{TRAIT}{name}": PRESENT for name in traits if _matches(name, self._traits)}
        properties |= {
            f"{RESOURCES}{name}": str(amount)
            for name, amount in _amounts(inventories).items()
            if _matches(name, self._classes)
        }
        storable = {name: value for name, value in properties.items() if len(name) <= LONGEST_NAME}
        return Facts(storable, inventories)

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        return dict(self._placement.get(path, params=query).json())


def _amounts(inventories: Mapping[str, Inventory]) -> dict[str, int]:
    """Return how much of each class a node offers to the leases of all times.

    That is its total minus the reserved amount. But a node of Ironic has only the class of its
    hardware, and Nova reserves this class while the node has a server or is being cleaned. So such
    a node offers the total: a lease can book it for a later time.
    """
    is_bare_metal = not {"VCPU", "MEMORY_MB"} & inventories.keys()
    return {
        name: inventory.total - (0 if is_bare_metal else inventory.reserved)
        for name, inventory in inventories.items()
    }


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _nodes(host: DiscoveredResource) -> list[str]:
    """Return the names of a host's nodes. Their resource providers have the same names."""
    names = host.properties.get(NODES)
    return names.split(",") if names else [host.properties["hypervisor_hostname"]]


def _with_facts(host: DiscoveredResource, known: Mapping[str, Facts]) -> DiscoveredResource:
    """Return ``host`` with the traits that all its nodes have, and the sums of the nodes' amounts.

    ``known`` contains the data of nodes by name. If it lacks a node of the host, return the host
    with ``complete=False`` and without these data.
    """
    nodes = _nodes(host)
    if any(node not in known for node in nodes):
        return replace(host, complete=False)
    facts_by_node = [known[node].properties for node in nodes]
    names = {name for facts in facts_by_node for name in facts}
    properties = dict(host.properties)
    for name in sorted(names):
        if name.startswith(RESOURCES):
            properties[name] = str(sum(int(facts.get(name, 0)) for facts in facts_by_node))
        elif all(name in facts for facts in facts_by_node):
            properties[name] = PRESENT
    is_single = NODES not in host.properties and not is_node(host.external_id)
    shared = known[nodes[0]].inventories if is_single else {}
    return replace(host, properties=properties, inventories=shared)


def _sum(first: Inventory | None, second: Inventory) -> Inventory:
    """Return the sum of two inventories, with the smaller allocation ratio.

    ``max_unit`` is the larger of both, because an allocation cannot be split between two providers.
    It is None if both have no limit. If ``first`` is None, return ``second``.
    """
    if first is None:
        return second
    limits = [each.max_unit for each in (first, second) if each.max_unit is not None]
    return Inventory(
        first.total + second.total,
        first.reserved + second.reserved,
        min(first.allocation_ratio, second.allocation_ratio),
        max(limits, default=None),
    )
