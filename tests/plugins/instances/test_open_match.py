"""Reservations with ``match: open`` on the simulated cloud, and their aggregates on Nova."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from climate.plugins.instances import simulated
from climate.plugins.instances.cloud import Match
from climate.plugins.instances.nova import aggregate_metadata
from climate.plugins.openstack.aggregates import FIRST
from tests.conftest import MakeStory
from tests.support.bodies import copy_hosts, instances, status_of_request
from tests.support.service import Story, host_reservation

PLUGINS = ["physical.host.plugin", "virtual.instance.plugin", "flavor.instance.plugin"]
FLAVOR = {"resource_type": "flavor:instance", "amount": 2, "match": "open"}


@pytest.fixture
def story(make_story: MakeStory, hosts_template: Path, tmp_path: Path) -> Story:
    """Return a service with three hosts of 16 VCPU and one of 64."""
    copy_hosts(hosts_template, tmp_path)
    return make_story(manager__plugins=PLUGINS)


def refused(story: Story, **fields: Any) -> str:
    """Return the message of a request that is rejected with status 400."""
    reservation = {**instances(1), **fields}
    answer = story.call("POST", "/v1/leases", story.lease_body(reservations=[reservation]))
    assert answer.status_code == 400
    return str(answer.get_json()["error_message"])


def test_no_other_reservation_is_on_the_hosts_of_an_open_one(story: Story) -> None:
    on_sim_1 = '["==", "$hypervisor_hostname", "sim-1"]'
    alone = instances(1, match="open", resource_properties=on_sim_1)
    shared = instances(1, resource_properties=on_sim_1)
    for request, status in ((alone, 201), (alone, 409), (shared, 409)):
        assert status_of_request(story, request) == status
    for request, status in ((shared, 201), (alone, 409), (shared, 201)):
        assert status_of_request(story, request, start=300, end=360) == status


def test_the_cloud_learns_which_servers_use_the_reservation(story: Story) -> None:
    of_size = {**instances(2, match="open"), "vcpus": 2, "memory_mb": 1024, "disk_gb": 0}
    story.reserve(0, 60, reservations=[of_size, {**FLAVOR, "flavor_id": "small"}])
    story.run()
    opened = [each for each in story.cloud.effects() if each["effect"] == "open_slots"]
    assert [each["flavors"] for each in opened] == ["any", "m1.small"]
    rooms = [each["room"] for each in story.cloud.effects() if each["effect"] == "set_slots"]
    assert rooms == ["MEMORY_MB=2048 VCPU=4", "DISK_GB=40 MEMORY_MB=4096 VCPU=2"]


def test_servers_use_open_hosts_first(story: Story) -> None:
    story.reserve(0, 60, reservations=[host_reservation(1, 1, match="open"), host_reservation()])
    story.run()
    pools = [each for each in story.cloud.effects() if each["effect"] == "ensure_pool"]
    assert [each.get("first") for each in pools] == ["true", None]


def test_rejects_other_values_and_changes(story: Story) -> None:
    assert "match" in refused(story, match="opne")
    targeted, host = instances(1), host_reservation()
    lease = story.reserve(60, 120, reservations=[targeted, host])
    for reservation in lease["reservations"]:
        change = {"reservations": [{"id": reservation["id"], "match": "open"}]}
        answer = story.call("PUT", f"/v1/leases/{lease['id']}", change)
        assert answer.status_code == 409
        assert "match of reservation" in answer.get_json()["error_message"]


def test_a_reservation_of_an_older_release_is_targeted(story: Story) -> None:
    lease = story.reserve(60, 120, reservations=[instances(1)])
    [reservation] = lease["reservations"]
    sql = "UPDATE reservations SET params = json_remove(params, '$.match')"
    with story.runtime.database.engine.begin() as connection:
        connection.exec_driver_sql(sql)
    for change, status in (({"match": "open"}, 409), ({"amount": 2}, 200)):
        body = {"reservations": [{"id": reservation["id"], **change}]}
        assert story.call("PUT", f"/v1/leases/{lease['id']}", body).status_code == status


def test_rejects_open_reservations_that_nova_cannot_match(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = simulated.FLAVORS["small"]
    specs = {"aggregate_instance_extra_specs:ssd": "true"}
    strange = {
        "comma": replace(small, id="comma", name="m1,small"),
        "specs": replace(small, id="specs", extra_specs=specs),
    }
    monkeypatch.setattr(simulated, "FLAVORS", {**simulated.FLAVORS, **strange})
    assert "commas" in refused(story, **FLAVOR, flavor_id="comma")
    assert "aggregate_instance_extra_specs:ssd" in refused(story, **FLAVOR, flavor_id="specs")
    targeted = {**FLAVOR, "match": "targeted", "flavor_id": "specs"}
    assert status_of_request(story, targeted) == 201


def test_rejects_open_reservations_without_tenancy(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    for plugin in story.runtime.plugins.values():
        monkeypatch.setattr(type(plugin.cloud), "matches_openly", False)  # type: ignore[attr-defined]
    for fields in ({"match": "open"}, {**FLAVOR, "flavor_id": "small"}):
        assert "isolation = tenancy" in refused(story, **fields)
    assert "isolation = tenancy" in refused(story, **host_reservation(match="open"))


def test_the_aggregate_admits_the_matching_flavors_and_its_hosts_come_first() -> None:
    targeted, any_flavor, one_flavor = (
        aggregate_metadata("r1", "lab", match)
        for match in (Match(), Match(is_open=True), Match(is_open=True, flavor="m1.small"))
    )
    assert targeted["instance_type"] == "reservation:r1"
    assert "instance_type" not in any_flavor
    assert one_flavor["instance_type"] == "reservation:r1,m1.small"
    assert FIRST.items() <= any_flavor.items() & one_flavor.items()
    assert not FIRST.keys() & targeted.keys()
