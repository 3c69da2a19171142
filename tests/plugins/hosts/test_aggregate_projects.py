from types import SimpleNamespace

from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.aggregate_projects import restricted


def aggregate(hosts: list[str], **metadata: str) -> SimpleNamespace:
    named = {name.replace("__", ":"): value for name, value in metadata.items()}
    return SimpleNamespace(hosts=hosts, metadata=named)


def test_a_host_is_open_to_the_projects_of_all_its_aggregates() -> None:
    hosts = [
        DiscoveredResource(external_id=name, properties={}) for name in ("a", "b", "b/node", "c")
    ]
    aggregates = [
        aggregate(["a", "b"], filter_tenant_id="p1", filter_tenant_id_2="p3, p2"),
        aggregate(["b"], climate__allowed_projects="p4,"),
        aggregate(["c"], ssd="true"),
        aggregate(["c"], climate__reservation="pool", filter_tenant_id="owner"),
    ]
    found = {
        host.external_id: host.properties.get("allowed_projects")
        for host in restricted(hosts, aggregates)
    }
    assert found == {"a": "p1,p2,p3", "b": "p1,p2,p3,p4", "b/node": "p1,p2,p3,p4", "c": None}
