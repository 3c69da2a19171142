"""What the metadata of the operator's host aggregates say about hosts: properties and projects.

The keys that ``[nova] aggregate_properties`` lists become properties, for example ``ha`` and
``drs`` of clusters. Other metadata restrict hosts to projects, as Nova's filter
AggregateMultiTenancyIsolation does: it reads each key that begins with ``filter_tenant_id``. A host
in several such aggregates is open to the projects of all of them.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from climate.core.matching.property_type import ALLOWED_PROJECTS
from climate.core.matching.query import ITEM_SEPARATOR
from climate.plugins.base import DiscoveredResource

LOG = logging.getLogger(__name__)
_NOVA_KEY = "filter_tenant_id"
# A key of climate, which does not open the host to servers without a reservation.
_OWN_KEY = "climate:allowed_projects"


@dataclass(frozen=True, slots=True)
class AggregateMetadata:
    """Which metadata of host aggregates apply to hosts.

    ``properties`` are the keys that become properties. ``restricts`` states whether metadata
    restrict hosts to projects.
    """

    properties: frozenset[str] = frozenset()
    restricts: bool = False

    @property
    def applies(self) -> bool:
        """Whether any metadata apply to hosts."""
        return self.restricts or bool(self.properties)

    def complete(
        self, hosts: Sequence[DiscoveredResource], aggregates: Iterable[Any]
    ) -> list[DiscoveredResource]:
        """Return the hosts with the properties that their host aggregates give them.

        ``aggregates`` are host aggregates of Nova. Those that climate made have no effect.
        """
        found = [each for each in aggregates if not _is_own(each.metadata)]
        described = list(hosts)
        if self.properties:
            described = with_properties(described, found, self.properties)
        return restricted(described, found) if self.restricts else described


def with_properties(
    hosts: Sequence[DiscoveredResource], aggregates: Iterable[Any], names: Collection[str]
) -> list[DiscoveredResource]:
    """Return the hosts with those metadata of their aggregates whose keys are in ``names``.

    A property that the host already has stays. If the aggregates of a host have different values,
    the host does not get the property: users must be able to rely on it.
    """
    values: dict[str, dict[str, set[str]]] = {}
    for aggregate in aggregates:
        for name in aggregate.metadata.keys() & names:
            for service in aggregate.hosts:
                by_name = values.setdefault(service, {})
                by_name.setdefault(name, set()).add(aggregate.metadata[name])
    for service, by_name in sorted(values.items()):
        for name in sorted(name for name, found in by_name.items() if len(found) > 1):
            LOG.warning("host aggregates of %s have different values of %s", service, name)
    agreed = {
        service: {name: value for name, (value, *others) in by_name.items() if not others}
        for service, by_name in values.items()
    }
    return [
        replace(host, properties={**agreed.get(_service(host), {}), **host.properties})
        for host in hosts
    ]


def restricted(
    hosts: Sequence[DiscoveredResource], aggregates: Iterable[Any]
) -> list[DiscoveredResource]:
    """Return the hosts, with the property ``allowed_projects`` where aggregates restrict them."""
    allowed: dict[str, set[str]] = {}
    for aggregate in aggregates:
        projects = _projects(aggregate.metadata)
        for service in aggregate.hosts if projects else ():
            allowed.setdefault(service, set()).update(projects)
    return [_with_projects(host, allowed.get(_service(host), set())) for host in hosts]


def _is_own(metadata: Mapping[str, str]) -> bool:
    return any(key.startswith("climate:") and key != _OWN_KEY for key in metadata)


def _projects(metadata: Mapping[str, str]) -> set[str]:
    values = [
        value for key, value in metadata.items() if key.startswith(_NOVA_KEY) or key == _OWN_KEY
    ]
    return {each.strip() for value in values for each in value.split(",")} - {""}


def _service(host: DiscoveredResource) -> str:
    return host.external_id.partition("/")[0]


def _with_projects(host: DiscoveredResource, projects: set[str]) -> DiscoveredResource:
    if not projects:
        return host
    text = ITEM_SEPARATOR.join(sorted(projects))
    return replace(host, properties={**host.properties, ALLOWED_PROJECTS: text})
