from types import SimpleNamespace

import pytest

from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.aggregate_metadata import AggregateMetadata


def aggregate(hosts: list[str], **metadata: str) -> SimpleNamespace:
    named = {name.replace("__", ":"): value for name, value in metadata.items()}
    return SimpleNamespace(hosts=hosts, metadata=named)


def host(name: str, **properties: str) -> DiscoveredResource:
    return DiscoveredResource(external_id=name, properties=properties)


def test_a_host_is_open_to_the_projects_of_all_its_aggregates() -> None:
    aggregates = [
        aggregate(["a", "b"], filter_tenant_id="p1", filter_tenant_id_2="p3, p2"),
        aggregate(["b"], climate__allowed_projects="p4,"),
        aggregate(["c"], ssd="true"),
        aggregate(["c"], climate__reservation="pool", filter_tenant_id="owner"),
    ]
    hosts = [host(name) for name in ("a", "b", "b/node", "c")]
    found = {
        each.external_id: each.properties.get("allowed_projects")
        for each in AggregateMetadata(restricts=True).complete(hosts, aggregates)
    }
    assert found == {"a": "p1,p2,p3", "b": "p1,p2,p3,p4", "b/node": "p1,p2,p3,p4", "c": None}


def test_listed_metadata_of_aggregates_become_properties(caplog: pytest.LogCaptureFixture) -> None:
    aggregates = [
        aggregate(["a", "b"], ha="true", drs="true", rack="r1"),
        aggregate(["b"], ha="true", drs="false"),
        aggregate(["c"], climate__reservation="pool", ha="true"),
    ]
    hosts = [host("a", vcpus="8", drs="False"), host("b"), host("b/node"), host("c")]
    metadata = AggregateMetadata(frozenset({"ha", "drs", "vcpus"}))
    found = [each.properties for each in metadata.complete(hosts, aggregates)]
    # What the configuration says about a node counts more, and a contradiction gives no property.
    first = {"vcpus": "8", "ha": "true", "drs": "False"}
    assert found == [first, {"ha": "true"}, {"ha": "true"}, {}]
    assert caplog.messages == ["host aggregates of b have different values of drs"]
