"""What Placement says about hosts: their traits, and how much they have of its resource classes.

Placement tells traits and inventories of one provider at a time, but the generations of all at
once; a generation moves with every change (also when a server comes or goes). So a look costs one
request, and one or two for each provider whose generation is new, up to a limit: what is left is
read at the next look, and until then not known to have changed. A host is a tree of providers; it
has what any of them has.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from keystoneauth1.adapter import Adapter
from keystoneauth1.exceptions import ClientException

from climate.core.extra_specs import LONGEST_NAME, PRESENT, RESOURCES, TRAIT
from climate.plugins.base import Found
from climate.plugins.compute_host import NODES

LOG = logging.getLogger(__name__)
# Providers that are read in one look; some milliseconds each.
MOST_READ = 1_000
# Classes that reservations make and remove, on hosts that are theirs.
_PASSING = "CUSTOM_RESERVATION_"

Provider = Mapping[str, Any]
Facts = dict[str, str]


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
        if not names or not (self._traits or self._classes):
            return {name: {} for name in names}
        trees, read = self._trees(names), 0
        current: dict[str, Facts] = {}
        for name in names:
            tree = trees.get(name, [])
            stamp = frozenset((one["uuid"], one["generation"]) for one in tree)
            seen, facts = self._known.get(name, (None, {}))
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
        totals: dict[str, int] = {}
        for provider in tree:
            path = f"/resource_providers/{provider['uuid']}"
            if self._traits:
                traits.update(self._get(f"{path}/traits")["traits"])
            if self._classes:
                for name, found in self._get(f"{path}/inventories")["inventories"].items():
                    totals[name] = totals.get(name, 0) + found["total"] - found["reserved"]
        kept = {f"{TRAIT}{name}": PRESENT for name in traits if _is_kept(name, self._traits)}
        kept |= {
            f"{RESOURCES}{name}": str(total)
            for name, total in totals.items()
            if _is_kept(name, self._classes) and not name.startswith(_PASSING)
        }
        return {name: value for name, value in kept.items() if len(name) <= LONGEST_NAME}

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
    told = [known[node] for node in nodes]
    names = {name for facts in told for name in facts}
    properties = dict(host.properties)
    for name in sorted(names):
        if name.startswith(RESOURCES):
            properties[name] = str(sum(int(facts.get(name, 0)) for facts in told))
        elif all(name in facts for facts in told):
            properties[name] = PRESENT
    return replace(host, properties=properties)
