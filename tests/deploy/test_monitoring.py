"""Alert rules and the dashboard use only metrics and labels that climate exports.

tests/system/test_alerts.py lets Prometheus evaluate them.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from prometheus_client.registry import Collector

from climate.manager.process.heartbeat import ManagerHeartbeat
from tests.conftest import MakeStory
from tests.deploy import monitoring

# What Prometheus itself adds.
SCRAPED = {"job", "instance", "le"}
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
# The backlog has its labels only in samples, of which a new database has none.
BACKLOG = {"climate_events_due": {"kind"}, "climate_preparations": {"state"}}


@pytest.fixture
def exported(make_story: MakeStory) -> Mapping[str, set[str]]:
    """Return the labels of everything that processes of climate export, by name."""
    runtime = make_story(provisioning__enabled=True).runtime
    ManagerHeartbeat(runtime.store, "manager-1", list).beat()
    registry = runtime.metrics.registry
    labels: dict[str, set[str]] = {}
    for collector in registry._collector_to_names:
        for family in collector.collect():
            for suffix in SUFFIXES[family.type]:
                labels[f"{family.name}{suffix}"] = labels_of(collector, family.name)
    return labels


def labels_of(collector: Collector, name: str) -> set[str]:
    return BACKLOG.get(name, set()) | set(getattr(collector, "_labelnames", ()))


def expressions() -> list[tuple[str, str]]:
    return [*monitoring.alerts().items(), *monitoring.panels()]


def test_each_metric_and_each_label_exists(exported: Mapping[str, set[str]]) -> None:
    unknown = []
    for where, expression in expressions():
        names = set(re.findall(r"\bclimate_\w+", expression))
        known = set().union(SCRAPED, *(exported.get(name, set()) for name in names))
        listed = re.findall(r"\bby \(([^)]*)\)", expression)
        matched = re.findall(r"([a-z_]+)(?:=~|!~|!=|=)\"", expression)
        labels = {label.strip() for text in listed for label in text.split(",")} | set(matched)
        unknown += [(where, name) for name in (names - exported.keys()) | (labels - known)]
    assert unknown == []
    used = {name for _, text in expressions() for name in re.findall(r"\bclimate_\w+", text)}
    assert used > {"climate_managers", "climate_http_request_duration_seconds_bucket"}


def test_each_alert_is_tested() -> None:
    tests = yaml.safe_load((Path(__file__).parent / "alerts_test.yaml").read_text(encoding="utf-8"))
    expected = {
        sample["labels"].split('"')[1]
        for group in tests["tests"]
        for test in group["promql_expr_test"]
        for sample in test["exp_samples"]
    }
    assert expected == monitoring.alerts().keys()


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = json.loads(monitoring.DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_prometheus_asks_the_services_of_the_compose_project() -> None:
    path = monitoring.FOLDER / "prometheus.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    targets = [
        target
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    ]
    assert targets == ["api:1234", "manager-1:9464", "manager-2:9464"]
    assert [(monitoring.FOLDER / name).is_file() for name in config["rule_files"]] == [True]
