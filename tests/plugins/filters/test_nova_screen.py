"""Filters of Nova's scheduler select among climate's hosts; the package nova is a stand-in."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climate.config.registry import Misconfigured
from climate.manager.resources.inventory_sync import synchronise
from tests.conftest import MakeStory
from tests.support import nova_interface
from tests.support.bodies import HOSTS_AND_INSTANCES, copy_hosts, instances
from tests.support.nova_interface import BaseHostFilter
from tests.support.service import Story, host_reservation, hosts
from tests.support.waiting import rules, settle, wait_for

Filtering = Callable[..., Story]


class GoldFilter(BaseHostFilter):
    """Accepts hosts in an aggregate with the metadata tier=gold."""

    def host_passes(self, host: Any, spec: Any) -> bool:
        return any(each.metadata.get("tier") == "gold" for each in host.aggregates)


class OncePerProjectFilter(BaseHostFilter):
    """Accepts requests of a project only until another project has sent one."""

    def __init__(self) -> None:
        self.first = ""

    def host_passes(self, host: Any, spec: Any) -> bool:
        self.first = self.first or spec.project_id
        return self.first == str(spec.project_id)


class TopTwoFilter(BaseHostFilter):
    """Accepts the two hosts with the highest names, of all hosts that it receives."""

    def filter_all(self, hosts: list[Any], spec: Any) -> Any:
        return sorted(hosts, key=lambda host: str(host.host))[-2:]


class OwnerFilter(BaseHostFilter):
    """Accepts hosts that have no owner, or whose owner is the project."""

    def host_passes(self, host: Any, spec: Any) -> bool:
        return host.stats.get("owner") in (None, spec.project_id)


class FragileFilter(BaseHostFilter):
    """Fails for a project once a host is fragile."""

    def host_passes(self, host: Any, spec: Any) -> bool:
        if spec.project_id == "fragile" and "fragile" in host.stats:
            raise RuntimeError("broken")
        return True


class DeviceFilter(BaseHostFilter):
    """Accepts hosts whose property ``devices`` has the device profile of the flavor."""

    def host_passes(self, host: Any, spec: Any) -> bool:
        wanted = spec.flavor.extra_specs["accel:device_profile"]
        return bool(host.stats.get("devices") == wanted)


class BrokenFilter(BaseHostFilter):
    """Fails."""

    def host_passes(self, host: Any, spec: Any) -> bool:
        raise KeyError("secret of the operator")


@pytest.fixture
def filtering(
    make_story: MakeStory,
    hosts_template: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Filtering:
    """Return a maker of services with hosts sim-1 .. sim-4 and filters of Nova."""
    publish = nova_interface.install(monkeypatch)

    def make(*filters: type, **options: Any) -> Story:
        copy_hosts(hosts_template, tmp_path)
        names = publish(*filters)
        return make_story(
            manager__plugins=HOSTS_AND_INSTANCES, selection__nova_filters=names, **options
        )

    return make


def set_tier(story: Story, *ids: int) -> None:
    for id_ in ids:
        story.ok("PUT", f"/v1/os-hosts/{id_}", {"tier": "gold"})


def test_books_only_hosts_that_pass(filtering: Filtering) -> None:
    story = filtering(GoldFilter)
    set_tier(story, 2, 3)
    lease = story.reserve(reservations=[host_reservation(1, 4)])
    assert sorted(story.hosts_of(lease["id"])) == ["2", "3"]
    body = story.lease_body(reservations=[host_reservation(1, 1)])
    assert story.refused(409, "POST", "/v1/leases", body)


def test_availability_and_searches_leave_out_what_a_filter_rejects(
    filtering: Filtering,
) -> None:
    story = filtering(GoldFilter)
    set_tier(story, 2, 3)
    story.reserve(0, 60, reservations=[host_reservation(1, 1)])
    two = {"reservations": [hosts(2, 2)], "duration": 3600, "end_by": story.moment(240)}
    windows = story.ok("POST", "/v2/availability/search", two)["windows"]
    assert [window["start"] for window in windows] == [story.moment(60)]
    for resource_type, free in (("physical:host", 2), ("virtual:instance", 32)):
        query = f"resource_type={resource_type}&end={story.moment(120)}"
        assert story.ok("GET", f"/v2/availability?{query}")["steps"][-1]["free"] == free
        assert story.ok("GET", f"/v2/availability?{query}&resolution=3600")["units"] == free


def test_a_filter_keeps_its_state_between_requests(filtering: Filtering) -> None:
    story = filtering(OncePerProjectFilter)
    body = {"name": "a", "start": "now", "end": story.moment(60), "reservations": [hosts(1, 1)]}
    story.ok("POST", "/v2/leases", body, token="u:first")
    assert story.call("POST", "/v2/leases", body, token="u:second").status_code == 409
    story.ok("POST", "/v2/leases", body, token="u:first")


def test_filter_all_receives_all_free_hosts(filtering: Filtering) -> None:
    story = filtering(TopTwoFilter)
    for expected in ({"3", "4"}, {"1", "2"}):
        lease = story.reserve(reservations=[host_reservation(2, 2)])
        assert set(story.hosts_of(lease["id"])) == expected


def test_a_filter_that_fails_refuses_the_request_by_name(filtering: Filtering) -> None:
    story = filtering(GoldFilter, BrokenFilter)
    set_tier(story, 1)
    body = {"name": "a", "start": "now", "end": story.moment(60), "reservations": [hosts(1, 1)]}
    response = story.call("POST", "/v2/leases", body)
    problem = response.get_json()
    assert (response.status_code, problem["code"]) == (503, "selection_filter_failed")
    assert "BrokenFilter failed" in problem["detail"]
    assert "secret" not in response.get_data(as_text=True)
    assert story.ok("GET", "/v2/leases")["leases"] == []


def test_filters_select_hosts_of_instances(filtering: Filtering) -> None:
    story = filtering(GoldFilter)
    set_tier(story, 4)
    lease = story.reserve(reservations=[instances(3)])
    assert set(story.hosts_of(lease["id"])) == {"4"}


def change(story: Story, lease: dict[str, Any], **params: Any) -> Any:
    path = f"/v2/leases/{lease['id']}"
    reservation = {"id": story.ok("GET", path)["reservations"][0]["id"], "params": params}
    return story.call("PATCH", path, {"reservations": [reservation]})


def test_a_change_exchanges_hosts_that_do_not_pass_before_the_start_only(
    filtering: Filtering,
) -> None:
    story = filtering(GoldFilter)
    set_tier(story, 1)
    pending = story.reserve(60, 120, reservations=[host_reservation(1, 1)])
    running = story.reserve(0, 30, reservations=[host_reservation(1, 1)])
    story.at(1)
    story.ok("PUT", "/v1/os-hosts/1", {"tier": "silver"})
    set_tier(story, 2, 3)
    assert change(story, pending, min=1, max=2).status_code == 200
    assert set(story.hosts_of(pending["id"])) == {"2", "3"}
    assert change(story, running, min=1, max=2).status_code == 200
    assert "1" in story.hosts_of(running["id"])


def test_healing_replaces_hosts_by_hosts_that_pass(filtering: Filtering) -> None:
    story = filtering(GoldFilter)
    set_tier(story, 1, 4)
    lease = story.reserve(10, 120, reservations=[host_reservation(1, 1)])
    (first,) = story.hosts_of(lease["id"])
    (second,) = {"1", "4"} - {first}
    for failing in (first, second):
        story.cloud.fail_host(f"sim-{failing}")
        synchronise(story.runtime, synchronise(story.runtime))
        assert story.hosts_of(lease["id"]) == [second]
    assert story.lease(lease["id"])["degraded"]


def test_a_waiting_lease_takes_a_host_that_an_earlier_one_may_not_take(
    filtering: Filtering,
) -> None:
    story = filtering(OwnerFilter)
    story.ok("PUT", "/v1/os-hosts/1", {"owner": "lab"})
    rules(story, promises=0)
    running = [wait_for(story, 1, 120, token="u:lab") for _ in range(4)]
    others, own = (wait_for(story, 1, 60, token=token) for token in ("u:other", "u:lab"))
    (first,) = (id_ for id_ in running if story.hosts_of(id_) == ["1"])
    story.call("DELETE", f"/v2/leases/{first}", token="u:lab")
    settle(story)
    states = [story.ok("GET", f"/v2/leases/{id_}")["status"] for id_ in (others, own)]
    assert states == ["WAITING", "ACTIVE"]


def test_a_filter_that_fails_for_one_waiting_lease_does_not_stop_others(
    filtering: Filtering,
) -> None:
    story = filtering(FragileFilter)
    rules(story, promises=0)
    running = wait_for(story, 4, 120, token="u:lab")
    tokens = ("u:fragile", "u:fragile", "u:lab")
    *broken, sound = (wait_for(story, 1, 60, token=token) for token in tokens)
    story.ok("PUT", "/v1/os-hosts/1", {"fragile": "yes"})
    story.call("DELETE", f"/v2/leases/{running}", token="u:lab")
    settle(story)
    states = [story.ok("GET", f"/v2/leases/{id_}")["status"] for id_ in (*broken, sound)]
    assert (states[0], states[-1]) == ("WAITING", "ACTIVE")


def test_specs_of_devices_need_a_filter_that_checks_them(
    filtering: Filtering, story: Story
) -> None:
    specs = {"accel:device_profile": "gpu"}
    request = host_reservation(1, 1, resource_properties=specs)
    body = story.lease_body(reservations=[request])
    refusal = story.refused(400, "POST", "/v1/leases", body)
    assert 'hosts cannot be chosen by their devices in "accel:device_profile"' in refusal
    filtered = filtering(DeviceFilter)
    filtered.ok("PUT", "/v1/os-hosts/3", {"devices": "gpu"})
    lease = filtered.reserve(reservations=[request])
    assert filtered.hosts_of(lease["id"]) == ["3"]


def test_a_lease_keeps_its_devices_when_the_operator_removes_the_filters(
    filtering: Filtering, make_story: MakeStory
) -> None:
    filtered = filtering(DeviceFilter)
    filtered.ok("PUT", "/v1/os-hosts/3", {"devices": "gpu"})
    specs = {"accel:device_profile": "gpu"}
    request = host_reservation(1, 1, resource_properties=specs)
    lease = filtered.reserve(10, 60, reservations=[request])
    unfiltered = make_story(manager__plugins=HOSTS_AND_INSTANCES)
    assert change(unfiltered, lease, min=1, max=2).status_code == 200
    more = {**specs, "pci_passthrough:alias": "gpu:1"}
    assert change(unfiltered, lease, resource_properties=json.dumps(more)).status_code == 400


def test_a_class_that_cannot_be_loaded_prevents_the_start(
    filtering: Filtering, make_story: MakeStory
) -> None:
    filtering(GoldFilter)
    for name, reason in (
        ("site_filters.Missing", "cannot be imported"),
        ("no_such_module.Filter", "cannot be imported"),
        ("GoldFilter", "cannot be imported"),
        ("tests.support.nova_interface.Bag", "is not a class derived from"),
    ):
        with pytest.raises(Misconfigured, match=f"nova_filters: {name} {reason}"):
            make_story(selection__nova_filters=[name])


def test_a_missing_package_nova_prevents_the_start(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nova", None)
    monkeypatch.delitem(sys.modules, "nova.scheduler.filters", raising=False)
    with pytest.raises(Misconfigured, match="needs the package nova"):
        make_story(selection__nova_filters=["site_filters.GoldFilter"])
