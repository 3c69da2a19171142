"""What Placement says about hosts: their traits, and how much they have of its resource classes.

Placement tells traits and inventories of one provider at a time, but the generations of all at
once; a generation moves with every change (also when a server comes or goes). So a look costs one
request, and one or two for each provider whose generation is new, up to a limit: what is left is
read at the next look, and until then not known to have changed. A host is a tree of providers; it
has what any of them has.

What a host with one node has of all classes is what instances can share. One with several nodes has
nothing to share: no instance is on two of them.
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
from climate.plugins.base import Found
from climate.plugins.hosts.nova_services import NODES, is_node

LOG = logging.getLogger(__name__)
# Providers that are read in one look; some milliseconds each.
MOST_READ = 1_000
# Classes that reservations make and remove, on hosts that are theirs.
_PASSING = "CUSTOM_RESERVATION_"
_TOLD = ("total", "reserved", "allocation_ratio", "max_unit")

Provider = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a tree of providers: as properties, and as what can be shared."""

    properties: Mapping[str, str] = field(default_factory=dict)
    inventories: Mapping[str, Inventory] = field(default_factory=dict)


class Providers:
    """Adds traits and resource classes to hosts; remembers them from look to look."""

    def __init__(
        self, placement: Adapter, traits: Sequence[str], resource_classes: Sequence[str]
    ) -> None:
        """Keep those traits and classes that any of these patterns matches."""
        self._placement = placement
        self._traits = traits
        self._classes = resource_classes
        self._known: dict[str, tuple[frozenset[Any], Facts]] = {}

    def describe(self, hosts: Sequence[Found], ours: Collection[str]) -> list[Found]:
        """Return the hosts, ``ours`` with what is known of them.

        Incomplete are the others, and those of which not all is known, or nothing new.
        """
        wanted = {name for host in hosts if host.external_id in ours for name in _nodes(host)}
        try:
            known = self._look(sorted(wanted))
        except ClientException as error:
            LOG.warning("Placement does not tell what hosts have: %s", error)
            known = {}
        return [_described(host, known) for host in hosts]

    def _look(self, names: Sequence[str]) -> dict[str, Facts]:
        """Return what is known of trees, by the names of their roots."""
        if not names:
            return {}
        trees, read = self._trees(names), 0
        current: dict[str, Facts] = {}
        for name in names:
            tree = trees.get(name, [])
            stamp = frozenset((one["uuid"], one["generation"]) for one in tree)
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
        found = self._list()
        name_of = {one["uuid"]: one["name"] for one in found}
        trees: dict[str, list[Provider]] = {}
        for one in found:
            trees.setdefault(name_of.get(one["root_provider_uuid"], ""), []).append(one)
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
            for name, told in self._get(f"{path}/inventories")["inventories"].items():
                if not name.startswith(_PASSING):
                    found = Inventory(**{key: told[key] for key in _TOLD})
                    inventories[name] = _sum(inventories.get(name), found)
        kept = {f"{TRAIT}{name}": PRESENT for name in traits if _is_kept(name, self._traits)}
        kept |= {
            f"{RESOURCES}{name}": str(found.total - found.reserved)
            for name, found in inventories.items()
            if _is_kept(name, self._classes)
        }
        short = {name: value for name, value in kept.items() if len(name) <= LONGEST_NAME}
        return Facts(short, inventories)

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        return dict(self._placement.get(path, params=query).json())


def _is_kept(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _nodes(host: Found) -> list[str]:
    """Return the names of a host's nodes, which are those of their providers."""
    several = host.properties.get(NODES)
    return several.split(",") if several else [host.properties["hypervisor_hostname"]]


def _described(host: Found, known: Mapping[str, Facts]) -> Found:
    """Return a host with the traits that all its nodes have; amounts add up."""
    nodes = _nodes(host)
    if any(node not in known for node in nodes):
        return replace(host, complete=False)
    told = [known[node].properties for node in nodes]
    names = {name for facts in told for name in facts}
    properties = dict(host.properties)
    for name in sorted(names):
        if name.startswith(RESOURCES):
            properties[name] = str(sum(int(facts.get(name, 0)) for facts in told))
        elif all(name in facts for facts in told):
            properties[name] = PRESENT
    is_alone = NODES not in host.properties and not is_node(host.external_id)
    shared = known[nodes[0]].inventories if is_alone else {}
    return replace(host, properties=properties, inventories=shared)


def _sum(one: Inventory | None, other: Inventory) -> Inventory:
    """Return what two providers have together; one taker is served by one of them."""
    if one is None:
        return other
    return Inventory(
        one.total + other.total,
        one.reserved + other.reserved,
        min(one.allocation_ratio, other.allocation_ratio),
        max(one.max_unit or 0, other.max_unit or 0),
    )
