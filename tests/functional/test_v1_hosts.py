"""/v1/os-hosts: registering hosts, their extra capabilities, and what is refused."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.service import Story, host_reservation


class CloudOfTwins(SimulatedCloud):
    """A simulated cloud in which two hosts have the same name."""

    def hosts(self) -> list[DiscoveredResource]:
        first, *others = super().hosts()
        name = {"hypervisor_hostname": first.properties["hypervisor_hostname"]}
        twin = DiscoveredResource(external_id="twin", properties={**others[0].properties, **name})
        return [first, twin]


def paths(story: Story) -> list[str]:
    """Return the paths of sim-1, sim-2 ...: ids go on where the last test on a server ended."""
    return [f"/v1/os-hosts/{found['id']}" for found in story.ok("GET", "/v1/os-hosts")["hosts"]]


def host(story: Story, host_id: str) -> dict[str, Any]:
    """Return a host as the API shows it."""
    return story.ok("GET", f"/v1/os-hosts/{host_id}")["host"]


def refused(story: Story, status: int, method: str, path: str, body: Any = None) -> str:
    """Try a change that must be refused, and must change nothing."""
    before = story.ok("GET", "/v1/os-hosts")
    message = story.refused(status, method, path, body)
    assert story.ok("GET", "/v1/os-hosts") == before
    return message


def test_a_host_is_shown_as_clients_expect_it(story_everywhere: Story) -> None:
    story = story_everywhere
    body = {"name": "sim-8", "gpu": "True", "rack": "r 1"}
    response = story.call("POST", "/v1/os-hosts", body)
    assert response.status_code == 201
    made = response.get_json()["host"]
    assert made == {
        "id": made["id"],
        "hypervisor_hostname": "sim-8",
        "hypervisor_type": "simulated",
        "hypervisor_version": 1000,
        "vcpus": 64,
        "cpu_info": '{"arch": "x86_64", "topology": {"cores": 64}}',
        "memory_mb": 262144,
        "local_gb": 1000,
        "service_name": "sim-8",
        "availability_zone": "sim",
        "trait:HW_CPU_X86_AVX2": "True",
        "trait:CUSTOM_GPU_HOST": "True",
        "resources:CUSTOM_GPU": "2",
        "status": None,
        "reservable": True,
        "trust_id": None,
        "created_at": "2030-01-15 12:00:00",
        "updated_at": None,
        "gpu": "True",
        "rack": "r 1",
    }
    assert made["id"].isdecimal()
    assert host(story, made["id"]) == made
    assert story.ok("GET", "/v1/os-hosts")["hosts"][-1] == made


def test_a_host_can_be_named_by_its_number_which_wins_over_the_name(story: Story) -> None:
    made = story.ok("POST", "/v1/os-hosts", {"id": "7", "name": "sim-8"})["host"]
    assert made["hypervisor_hostname"] == "sim-7"
    made = story.ok("POST", "/v1/os-hosts", {"id": 9})["host"]
    assert made["hypervisor_hostname"] == "sim-9"


def test_keys_that_are_the_clouds_or_ours_are_dropped(story: Story) -> None:
    forged = {"vcpus": 1, "memory_mb": "1", "status": "x", "reservable": False, "trust_id": "x"}
    made = story.ok("POST", "/v1/os-hosts", {"name": "sim-5", **forged})["host"]
    plain = story.ok("POST", "/v1/os-hosts", {"name": "sim-6"})["host"]
    assert made == {
        **plain,
        "id": made["id"],
        "hypervisor_hostname": "sim-5",
        "service_name": "sim-5",
    }


def test_values_are_kept_as_text(story: Story) -> None:
    extra = {"text": "x", "count": 5, "ratio": 1.5, "flag": True, "empty": ""}
    made = story.ok("POST", "/v1/os-hosts", {"name": "sim-5", **extra})["host"]
    assert {key: made[key] for key in extra} == {
        "text": "x",
        "count": "5",
        "ratio": "1.5",
        "flag": "True",
        "empty": "",
    }


def test_a_host_needs_a_name(story: Story) -> None:
    for body in [{}, {"gpu": "True"}, {"name": ""}, {"name": None}, {"id": ""}]:
        assert "name" in refused(story, 400, "POST", "/v1/os-hosts", body)


def test_a_name_is_a_text(story: Story) -> None:
    for body in [{"name": 5}, {"name": ["sim-5"]}, {"id": {"x": 1}}, {"id": 1.5}]:
        assert "name" in refused(story, 400, "POST", "/v1/os-hosts", body)


def test_a_host_that_the_cloud_does_not_have_is_not_found(story: Story) -> None:
    for body in [{"name": "nosuch"}, {"id": "999"}, {"name": "SIM-5"}]:
        message = refused(story, 404, "POST", "/v1/os-hosts", body)
        assert message == f"Host '{next(iter(body.values()))}' not found!"


def test_a_host_with_servers_is_refused(story: Story) -> None:
    story.cloud.boot_server("sim-5", "vm-1")
    assert "vm-1" in refused(story, 409, "POST", "/v1/os-hosts", {"name": "sim-5"})


def test_a_host_can_be_registered_once(story_everywhere: Story) -> None:
    body = {"name": "sim-1", "gpu": "True"}
    assert "sim-1" in refused(story_everywhere, 409, "POST", "/v1/os-hosts", body)
    assert story_everywhere.ok("GET", "/v1/os-hosts/properties") == {"resource_properties": []}


def test_an_ambiguous_name_is_refused_and_the_number_decides(make_story: Any) -> None:
    story = make_story()
    plugin = story.runtime.plugins["physical:host"]
    plugin.cloud = CloudOfTwins(story.conf)
    assert "give the id" in refused(story, 409, "POST", "/v1/os-hosts", {"name": "sim-1"})
    assert story.ok("POST", "/v1/os-hosts", {"id": "2"})["host"]["service_name"] == "sim-2"


def test_a_capability_has_a_plain_value(story: Story) -> None:
    for value in [["x"], {"x": "y"}, None, "x" * 10_001]:
        for method, path in (("POST", "/v1/os-hosts"), ("PUT", "/v1/os-hosts/1")):
            body = {"gpu": value} | ({"name": "sim-5"} if method == "POST" else {})
            assert "gpu" in refused(story, 400, method, path, body)


def test_a_capability_key_has_1_to_64_characters(story_everywhere: Story) -> None:
    story = story_everywhere
    for method, path in (("POST", "/v1/os-hosts"), ("PUT", paths(story)[0])):
        body = {"name": "sim-5"} if method == "POST" else {}
        message = refused(story, 400, method, path, {**body, "x" * 65: "y"})
        assert message.startswith("Extra capability key too long")
        assert "empty" in refused(story, 400, method, path, {**body, "": "y"})
        key = "\N{SNOWMAN}" * 64
        assert story.ok(method, path, {**body, key: "y"})["host"][key] == "y"


def test_capabilities_are_added_and_changed_and_never_removed(story_everywhere: Story) -> None:
    story = story_everywhere
    first, second, *_ = paths(story)
    story.ok("PUT", first, {"gpu": "True", "rack": "r1"})
    story.clock.advance(60)
    changed = story.ok("PUT", first, {"rack": "r2", "color": "red"})["host"]
    assert (changed["gpu"], changed["rack"], changed["color"]) == ("True", "r2", "red")
    assert changed["updated_at"] == "2030-01-15 12:01:00"
    assert story.ok("GET", first)["host"] == changed
    assert "rack" not in story.ok("GET", second)["host"]


def test_an_empty_change_of_a_host_is_refused(story: Story) -> None:
    assert refused(story, 400, "PUT", "/v1/os-hosts/1", {}) == "No data to update"


def test_what_is_no_extra_capability_cannot_be_changed(story: Story) -> None:
    for key in ["name", "vcpus", "hypervisor_hostname", "id", "reservable"]:
        assert key in refused(story, 400, "PUT", "/v1/os-hosts/1", {key: "1", "rack": "r1"})


@pytest.mark.parametrize("start", [0, 60])
def test_a_capability_that_a_booking_asked_for_cannot_change(
    story_everywhere: Story, start: float
) -> None:
    story = story_everywhere
    first, second, *_ = paths(story)
    story.ok("PUT", second, {"gpu": "True", "rack": "r1"})
    wanted = host_reservation(resource_properties='["==", "$gpu", "True"]')
    lease = story.reserve(start, 120, reservations=[wanted])
    story.run()
    message = refused(story, 409, "PUT", second, {"gpu": "False", "rack": "r2"})
    assert "gpu" in message
    story.ok("PUT", second, {"gpu": "True", "rack": "r3"})
    story.ok("PUT", first, {"gpu": "False"})
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    story.run()
    story.ok("PUT", second, {"gpu": "False"})


@pytest.mark.parametrize("start", [0, 60])
def test_a_reserved_host_cannot_be_deleted(story_everywhere: Story, start: float) -> None:
    story = story_everywhere
    lease = story.reserve(start, 120)
    story.run()
    (taken,) = story.hosts_of(lease["id"])
    message = refused(story, 409, "DELETE", f"/v1/os-hosts/{taken}")
    assert message == f"Can't delete host {taken}. The host is reserved."


def test_a_host_whose_leases_are_over_can_be_deleted(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(0, 60, reservations=[host_reservation(4, 4)])
    story.run()
    story.at(60)
    before = paths(story)
    response = story.call("DELETE", before[0])
    assert (response.status_code, response.get_data()) == (204, b"")
    story.refused(404, "GET", before[0])
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    story.ok("POST", "/v1/os-hosts", {"name": "sim-1"})
    assert paths(story)[-1] not in before


def test_an_unknown_host_is_not_found(story: Story) -> None:
    for host_id in ["999", "nope", "-1", "1.0", "01x", "\u0661", "9" * 30]:
        for method, suffix, body in [
            ("GET", "", None),
            ("PUT", "", {"a": "b"}),
            ("DELETE", "", None),
            ("GET", "/allocation", None),
        ]:
            message = story.refused(404, method, f"/v1/os-hosts/{host_id}{suffix}", body)
            assert message == f"Object with {{'host_id': '{host_id}'}} not found"


def test_of_ten_that_want_the_last_host_at_once_one_gets_it(story_everywhere: Story) -> None:
    story = story_everywhere
    story.reserve(60, 120, reservations=[host_reservation(3, 3)])
    body = story.lease_body(60, 120)

    def ask(_number: int) -> int:
        client = story.http.application.test_client()
        return client.post("/v1/leases", json=body).status_code

    with ThreadPoolExecutor(10) as pool:
        answers = sorted(pool.map(ask, range(10)))
    assert answers == [201] + [409] * 9
