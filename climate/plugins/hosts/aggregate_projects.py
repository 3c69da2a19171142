"""Which projects may reserve a host, by the metadata of the operator's host aggregates.

Source: Nova's filter AggregateMultiTenancyIsolation. It reads each metadata key that begins with
``filter_tenant_id``. A host in several such aggregates is open to the projects of all of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from climate.core.matching.property_type import ALLOWED_PROJECTS
from climate.core.matching.query import ITEM_SEPARATOR
from climate.plugins.base import DiscoveredResource

_NOVA_KEY = "filter_tenant_id"
# A key of climate, which does not open the host to servers without a reservation.
_OWN_KEY = "climate:allowed_projects"


def restricted(
    hosts: Sequence[DiscoveredResource], aggregates: Iterable[Any]
) -> list[DiscoveredResource]:
    """Return the hosts, with the property ``allowed_projects`` where aggregates restrict them.

    ``aggregates`` are host aggregates of Nova. Those that climate made do not restrict hosts.
    """
    allowed: dict[str, set[str]] = {}
    for aggregate in aggregates:
        projects = set() if _is_own(aggregate.metadata) else _projects(aggregate.metadata)
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
