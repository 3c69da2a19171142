"""The metrics of the API and of a manager."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from climate.db.engine.database import LostRace
from climate.manager.process.heartbeat import ManagerHeartbeat
from climate.manager.process.runtime import Runtime
from tests.conftest import MakeStory
from tests.support.failing_cloud import break_cloud
from tests.support.service import Story

Samples = dict[tuple[str, tuple[str, ...]], float]


def samples(text: str) -> Samples:
    """Return values by name and the values of labels, but for the limits of buckets."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def samples_of(runtime: Runtime) -> Samples:
    return samples(runtime.metrics.exposition().decode())


@pytest.fixture
def watched(make_story: MakeStory) -> Story:
    story = make_story(api__metrics=True)
    story.register(1)
    return story


def test_requests_are_measured_by_the_template_of_their_route(watched: Story) -> None:
    lease = watched.reserve()
    for lease_id in (lease["id"], "unknown"):
        watched.call("GET", f"/v1/leases/{lease_id}")
    watched.call("GET", "/nowhere/at/all")
    watched.http.open("/v1/leases", method="BREW")
    found = samples(watched.call("GET", "/metrics").get_data(as_text=True))
    count = "climate_http_request_duration_seconds_count"
    assert found[count, ("GET", "/v1/leases/<lease_id>", "200")] == 1
    assert found[count, ("GET", "/v1/leases/<lease_id>", "404")] == 1
    assert found[count, ("GET", "none", "404")] == 1
    assert found[count, ("other", "none", "405")] == 1
    assert lease["id"] not in watched.call("GET", "/metrics").get_data(as_text=True)


def test_metrics_are_shown_only_if_enabled(story: Story) -> None:
    assert "[api] metrics" in story.refused(404, "GET", "/metrics")


def test_admissions_are_counted_by_their_error_code(watched: Story) -> None:
    lease = watched.reserve()
    watched.refused(409, "POST", "/v1/leases", watched.lease_body())
    watched.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "other"})
    watched.refused(400, "PUT", f"/v1/leases/{lease['id']}", {"end_date": watched.date(-5)})
    found = samples_of(watched.runtime)
    assert found["climate_admissions_total", ("admitted", "create")] == 1
    assert found["climate_admissions_total", ("not_enough_resources", "create")] == 1
    assert found["climate_admissions_total", ("admitted", "update")] == 1
    assert found["climate_admissions_total", ("invalid_date", "update")] == 1


def test_a_stale_tag_is_counted_once_and_a_repeated_comparison_is_not(watched: Story) -> None:
    created = watched.call("POST", "/v2/leases", watched.asking())
    path, tag = created.headers["Location"], created.headers["ETag"]
    for name, status in (("first", 200), ("second", 412)):
        answer = watched.call("PATCH", path, {"name": name}, headers={"If-Match": tag})
        assert answer.status_code == status
    found = samples_of(watched.runtime)
    assert found["climate_admissions_total", ("admitted", "update")] == 1
    assert found["climate_admissions_total", ("precondition_failed", "update")] == 1


def test_a_lost_race_is_counted(watched: Story) -> None:
    attempts: list[int] = []

    def work(session: object) -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise LostRace

    watched.runtime.database.write(work)
    assert samples_of(watched.runtime)["climate_transaction_conflicts_total", ("lost",)] == 2


def test_events_and_plugin_calls_are_measured(watched: Story) -> None:
    story = watched
    get = story.runtime.metrics.registry.get_sample_value
    story.reserve(0, 120, events=[{"event_type": "party", "event_date": story.date(1)}])
    break_cloud(story, "add_host")
    story.clock.advance(4)
    story.run()
    start = {"kind": "start_lease"}
    assert get("climate_events_total", {**start, "outcome": "claimed"}) == 1
    assert get("climate_events_total", {**start, "outcome": "retried"}) == 1
    assert get("climate_event_lateness_seconds_sum", start) == 4
    assert get("climate_lease_ready_lateness_seconds_count") == 0
    call = {"resource_type": "physical:host", "action": "start_lease"}
    assert get("climate_plugin_call_duration_seconds_count", {**call, "outcome": "failed"}) == 1

    break_cloud(story)
    story.clock.advance(2)
    story.run()
    assert get("climate_events_total", {**start, "outcome": "claimed"}) == 2
    assert get("climate_events_total", {**start, "outcome": "done"}) == 1
    assert get("climate_event_lateness_seconds_count", start) == 1, "the first try counts"
    assert get("climate_lease_ready_lateness_seconds_sum") == 6
    assert get("climate_plugin_call_duration_seconds_count", {**call, "outcome": "done"}) == 1
    story.at(2)
    assert get("climate_events_total", {"kind": "user", "outcome": "done"}) == 1


def test_the_backlog_is_counted_on_every_database(story_everywhere: Story) -> None:
    story = story_everywhere
    story.relay.flush()
    story.reserve(0, 120, events=[{"event_type": "party", "event_date": story.date(1)}])
    story.clock.advance(60)
    found = samples_of(story.runtime)
    assert found["climate_events_due", ("start_lease",)] == 1
    assert found["climate_events_due", ("user",)] == 1, "what users call things is no label"
    assert found["climate_outbox_lag_rows", ()] == 1
    assert found["climate_outbox_lag_seconds", ()] == 60
    assert found["climate_database_connections_most", ()] > 0
    assert found["climate_managers", ()] == 0
    assert ("climate_manager_heartbeat_age_seconds", ()) not in found
    ManagerHeartbeat(story.runtime.store, "manager-1", list).beat()
    story.clock.advance(7)
    found = samples_of(story.runtime)
    assert found["climate_managers", ()] == 1
    assert found["climate_manager_heartbeat_age_seconds", ()] == 7
    story.run()
    story.relay.flush()
    found = samples_of(story.runtime)
    assert ("climate_events_due", ("start_lease",)) not in found
    assert (found["climate_outbox_lag_rows", ()], found["climate_outbox_lag_seconds", ()]) == (0, 0)


def test_an_unreachable_database_is_a_metric_and_no_error(watched: Story, tmp_path: Path) -> None:
    watched.close()
    for path in tmp_path.glob("climate.sqlite*"):
        path.unlink()
    found = samples_of(watched.runtime)
    assert found["climate_database_up", ()] == 0
    assert ("climate_outbox_lag_rows", ()) not in found


def test_each_runtime_counts_for_itself(make_story: MakeStory) -> None:
    one, other = make_story(), make_story()
    one.call("GET", "/healthz")
    assert samples_of(one.runtime).keys() - samples_of(other.runtime).keys()
