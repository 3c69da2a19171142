"""/v1/os-hosts with capabilities, properties and allocations: exact answers and rejections."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from climate.cmd import bootstrap
from climate.plugins.base import DiscoveredResource
from climate.plugins.hosts.simulated import SimulatedCloud
from tests.conftest import MakeStory
from tests.support.service import Story, host_reservation

HOSTS, PROPERTIES = "/v1/os-hosts", "/v1/os-hosts/properties"
ALLOCATIONS = "/v1/os-hosts/allocations"


class CloudOfTwins(SimulatedCloud):
    """A simulated cloud in which two hosts have the same name."""

    def hosts(self) -> list[DiscoveredResource]:
        first, *others = super().hosts()
        name = {"hypervisor_hostname": first.properties["hypervisor_hostname"]}
        twin = DiscoveredResource(external_id="twin", properties={**others[0].properties, **name})
        return [first, twin]


def paths(story: Story) -> list[str]:
    """Return the paths of sim-1, sim-2 ...: on servers, ids continue from the last test."""
    return [f"{HOSTS}/{host['id']}" for host in story.ok("GET", HOSTS)["hosts"]]


def rejected(story: Story, status: int, method: str, path: str, body: Any = None) -> str:
    """Send a change that must be rejected and must change nothing; return the message."""
    before = story.ok("GET", HOSTS)
    message = story.refused(status, method, path, body)
    assert story.ok("GET", HOSTS) == before
    return message


def test_a_registered_host_is_shown_as_clients_expect_it(story: Story) -> None:
    response = story.call("POST", HOSTS, {"name": "sim-8", "gpu": "True", "rack": "r 1"})
    assert response.status_code == 201
    host = response.get_json()["host"]
    assert host == {
        "id": host["id"],
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
    assert host["id"].isdecimal()
    assert story.ok("GET", f"{HOSTS}/{host['id']}")["host"] == host
    assert story.ok("GET", HOSTS)["hosts"][-1] == host


def test_the_id_selects_the_host_and_reserved_keys_are_dropped(story: Story) -> None:
    def register(**body: Any) -> dict[str, Any]:
        return dict(story.ok("POST", HOSTS, body)["host"])

    assert register(id="7", name="sim-8")["hypervisor_hostname"] == "sim-7"
    assert register(id=9)["hypervisor_hostname"] == "sim-9"
    forged = {"vcpus": 1, "memory_mb": "1", "status": "x", "reservable": False, "trust_id": "x"}
    extra = {"text": "x", "count": 5, "ratio": 1.5, "flag": True, "empty": ""}
    host, plain = register(name="sim-5", **forged, **extra), register(name="sim-6")
    assert host == {
        **plain,
        "id": host["id"],
        "hypervisor_hostname": "sim-5",
        "service_name": "sim-5",
        "text": "x",
        "count": "5",
        "ratio": "1.5",
        "flag": "True",
        "empty": "",
    }


def test_rejects_hosts_that_cannot_be_registered(story: Story) -> None:
    nameless: list[Any] = [{}, {"gpu": "True"}, {"name": ""}, {"name": None}, {"id": ""}]
    malformed = [{"name": 5}, {"name": ["sim-5"]}, {"id": {"x": 1}}, {"id": 1.5}]
    for body in (*nameless, *malformed):
        assert "name" in rejected(story, 400, "POST", HOSTS, body)
    for body in ({"name": "nosuch"}, {"id": "999"}, {"name": "SIM-5"}):
        message = rejected(story, 404, "POST", HOSTS, body)
        assert message.startswith(f"Host '{next(iter(body.values()))}' not found: ")
    story.cloud.boot_server("sim-5", "vm-1")
    assert "vm-1" in rejected(story, 409, "POST", HOSTS, {"name": "sim-5"})
    assert "sim-1" in rejected(story, 409, "POST", HOSTS, {"name": "sim-1", "gpu": "True"})
    assert story.ok("GET", PROPERTIES) == {"resource_properties": []}


def test_an_ambiguous_name_is_rejected_and_the_id_decides(make_story: MakeStory) -> None:
    story = make_story()
    plugin: Any = story.runtime.plugins["physical:host"]
    plugin.cloud = CloudOfTwins(story.conf)
    assert "give the id of the host instead" in rejected(
        story, 409, "POST", HOSTS, {"name": "sim-1"}
    )
    assert story.ok("POST", HOSTS, {"id": "2"})["host"]["service_name"] == "sim-2"


def test_an_unknown_host_is_404(story: Story) -> None:
    for host_id in ("999", "nope", "-1", "1.0", "01x", "\u0661", "9" * 30):
        for method, suffix, body in [
            ("GET", "", None),
            ("PUT", "", {"a": "b"}),
            ("DELETE", "", None),
            ("GET", "/allocation", None),
        ]:
            message = story.refused(404, method, f"{HOSTS}/{host_id}{suffix}", body)
            assert message == f"Object with {{'host_id': '{host_id}'}} not found"


def test_every_database_keeps_and_changes_capabilities(story_everywhere: Story) -> None:
    story = story_everywhere
    first, second, *_ = paths(story)
    for method, path, name in (("POST", HOSTS, {"name": "sim-5"}), ("PUT", first, {})):
        for value in (["x"], {"x": "y"}, None, "x" * 10_001):
            assert "gpu" in rejected(story, 400, method, path, {**name, "gpu": value})
        message = rejected(story, 400, method, path, {**name, "x" * 65: "y"})
        assert message.startswith("Extra capability key too long")
        assert "empty" in rejected(story, 400, method, path, {**name, "": "y"})
        key = "\N{SNOWMAN}" * 64
        assert story.ok(method, path, {**name, key: "y"})["host"][key] == "y"
    assert rejected(story, 400, "PUT", first, {}) == "No data to update"
    for key in ("name", "vcpus", "hypervisor_hostname", "id", "reservable"):
        assert key in rejected(story, 400, "PUT", first, {key: "1", "rack": "r1"})
    story.ok("PUT", first, {"gpu": "True", "rack": "r1"})
    story.clock.advance(60)
    changed = story.ok("PUT", first, {"rack": "r2", "color": "red"})["host"]
    assert (changed["gpu"], changed["rack"], changed["color"]) == ("True", "r2", "red")
    assert changed["updated_at"] == "2030-01-15 12:01:00"
    assert story.ok("GET", first)["host"] == changed
    assert "rack" not in story.ok("GET", second)["host"]


def test_a_capability_that_a_booking_requires_cannot_change(story: Story) -> None:
    first, second, third, *_ = paths(story)
    story.ok("PUT", second, {"gpu": "True", "rack": "r1"})
    story.ok("PUT", third, {"ssd": "4"})
    requires_gpu = host_reservation(resource_properties='["==", "$gpu", "True"]')
    for start in (0, 60):
        lease = story.reserve(start, 120, reservations=[requires_gpu])
        story.run()
        message = rejected(story, 409, "PUT", second, {"gpu": "False", "rack": "r2"})
        assert "gpu" in message
        story.ok("PUT", second, {"gpu": "True", "rack": "r3"})
        story.ok("PUT", first, {"gpu": "False"})
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        story.run()
    story.ok("PUT", second, {"gpu": "False"})
    specs = {"capabilities:ssd": ">= 2"}
    story.reserve(reservations=[host_reservation(resource_properties=specs)])
    assert "ssd" in rejected(story, 409, "PUT", third, {"ssd": "1"})


def test_a_reserved_host_cannot_be_deleted_until_its_leases_are_over(story: Story) -> None:
    over = story.reserve(0, 60, reservations=[host_reservation(4, 4)])
    later = story.reserve(120, 180)
    reserved = "Can't delete host {0}. The host is reserved."
    for _ in range(2):
        assert rejected(story, 409, "DELETE", f"{HOSTS}/1") == reserved.format(1)
        story.run()
    story.at(60)
    (host,) = story.hosts_of(later["id"])
    assert rejected(story, 409, "DELETE", f"{HOSTS}/{host}") == reserved.format(host)
    story.ok("DELETE", f"/v1/leases/{later['id']}")
    before = paths(story)
    response = story.call("DELETE", before[0])
    assert (response.status_code, response.get_data()) == (204, b"")
    story.refused(404, "GET", before[0])
    assert story.lease(over["id"])["status"] == "TERMINATED"
    story.ok("POST", HOSTS, {"name": "sim-1"})
    assert paths(story)[-1] not in before


# Properties.


def names(story: Story, query: str = "", token: str | None = None) -> list[str]:
    listed = story.ok("GET", f"{PROPERTIES}{query}", token=token)["resource_properties"]
    return [item["property"] for item in listed]


@pytest.fixture
def equipped(story: Story) -> Story:
    """Return a service whose hosts have the capabilities gpu (private), rack and color."""
    assert names(story, "?all=True&detail=True") == []
    story.ok("PUT", f"{HOSTS}/1", {"gpu": "True", "rack": "r2"})
    story.ok("PUT", f"{HOSTS}/2", {"gpu": "True", "rack": "r10"})
    story.ok("PUT", f"{HOSTS}/3", {"color": "red"})
    story.ok("PATCH", f"{PROPERTIES}/gpu", {"private": True})
    return story


def test_lists_properties_without_private_ones_unless_requested(equipped: Story) -> None:
    assert equipped.ok("GET", PROPERTIES) == {
        "resource_properties": [{"property": "color"}, {"property": "rack"}]
    }
    assert names(equipped, "?all=True") == ["color", "gpu", "rack"]
    found = equipped.ok("GET", f"{PROPERTIES}?detail=True&all=True")["resource_properties"]
    assert [{**item, "values": sorted(item["values"])} for item in found] == [
        {"property": "color", "private": False, "values": ["red"]},
        {"property": "gpu", "private": True, "values": ["True"]},
        {"property": "rack", "private": False, "values": ["r10", "r2"]},
    ]
    for no in ("False", "false", "0", "no", ""):
        assert names(equipped, f"?all={no}&detail={no}") == ["color", "rack"]
        assert "values" not in str(equipped.ok("GET", f"{PROPERTIES}?detail={no}"))


def test_hides_and_shows_a_property(equipped: Story) -> None:
    equipped.clock.advance(60)
    shown = equipped.ok("PATCH", f"{PROPERTIES}/gpu", {"private": False})["resource_property"]
    assert shown["private"] is False
    assert names(equipped) == ["color", "gpu", "rack"]
    hidden = equipped.ok("PATCH", f"{PROPERTIES}/gpu", {"private": True})["resource_property"]
    assert hidden == {
        "id": hidden["id"],
        "resource_type": "physical:host",
        "property_name": "gpu",
        "private": True,
        "created_at": "2030-01-15T12:00:00.000000",
        "updated_at": "2030-01-15T12:01:00.000000",
    }
    uuid.UUID(hidden["id"])  # raises ValueError for another text
    assert names(equipped) == ["color", "rack"]
    value: Any
    for value in (None, "True", "false", 2, [], {}):
        body = {"private": value}
        assert "private" in equipped.refused(400, "PATCH", f"{PROPERTIES}/rack", body)
    message = equipped.refused(400, "PATCH", f"{PROPERTIES}/rack", {})
    assert message == "Missing parameter private"
    for name in ("nope", "vcpus", "RACK"):
        message = equipped.refused(404, "PATCH", f"{PROPERTIES}/{name}", {"private": True})
        assert message == f"Object with {{'property_name': '{name}'}} not found"


def test_a_role_that_cannot_hide_properties_never_sees_private_ones(
    equipped: Story, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text('"climate:oshosts:get_resource_properties": "role:reader or role:admin"\n')
    equipped.conf.set_override("policy_file", str(policy), group="oslo_policy")
    equipped.http = bootstrap.make_api(equipped.conf, equipped.runtime).test_client()
    assert names(equipped, "?all=True", "boss:ops:admin") == ["color", "gpu", "rack"]
    assert names(equipped, "?all=True", "bob:lab:reader") == ["color", "rack"]


# Allocations.


def allocation(lease: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """Return how an allocation of the lease's reservation is shown."""
    return {
        "id": lease["reservations"][number]["id"],
        "lease_id": lease["id"],
        "start_date": lease["start_date"],
        "end_date": lease["end_date"],
    }


def by_host(story: Story, query: str = "") -> dict[str, list[dict[str, Any]]]:
    """Return the allocations by host id, after a check of their form."""
    body = story.ok("GET", f"{ALLOCATIONS}{query}")
    assert list(body) == ["allocations"]
    assert all(host.keys() == {"resource_id", "reservations"} for host in body["allocations"])
    return {host["resource_id"]: host["reservations"] for host in body["allocations"]}


def test_every_database_lists_all_hosts_with_their_leases_by_time(story_everywhere: Story) -> None:
    story = story_everywhere
    assert list(by_host(story).values()) == [[]] * 4
    later = story.reserve(240, 300, reservations=[host_reservation(4, 4)])
    pair = [host_reservation(1, 1), host_reservation(3, 3)]
    sooner = story.reserve(60, 120, reservations=pair)
    found = by_host(story)
    assert [reservations[1] for reservations in found.values()] == [allocation(later)] * 4
    first = [reservations[0] for reservations in found.values()]
    assert first.count(allocation(sooner, 0)) == 1
    assert first.count(allocation(sooner, 1)) == 3


def test_allocations_are_filtered_by_lease_and_reservation(story: Story) -> None:
    other = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    pair = [host_reservation(1, 1), host_reservation(2, 2)]
    lease = story.reserve(240, 300, reservations=pair)
    first, second = (reservation["id"] for reservation in lease["reservations"])
    for query, numbers in (
        (f"?lease_id={lease['id']}", [0, 1, 1]),
        (f"?reservation_id={first}", [0]),
        (f"?lease_id={lease['id']}&reservation_id={second}", [1, 1]),
        ("?lease_id=nope", []),
        ("?reservation_id=nope", []),
        (f"?lease_id=nope&reservation_id={second}", []),
    ):
        found = by_host(story, query)
        assert list(found) == ["1", "2", "3", "4"]
        held = [item for reservations in found.values() for item in reservations]
        expected = [allocation(lease, number) for number in numbers]
        assert sorted(held, key=str) == sorted(expected, key=str), query
    assert by_host(story, "?colour=red") == by_host(story)  # an unknown filter is ignored
    shown = story.ok("GET", f"{HOSTS}/2/allocation?lease_id={other['id']}")
    assert shown == {"allocation": {"resource_id": "2", "reservations": [allocation(other)]}}
    moved = story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": story.date(400)})["lease"]
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    free, *busy = sorted(by_host(story).values(), key=len)
    assert free == []
    lists = [[allocation(moved, number)] for number in (0, 1, 1)]
    assert sorted(busy, key=str) == sorted(lists, key=str)
    (host,) = [id_ for id_, found in by_host(story).items() if found == lists[0]]
    shown = story.ok("GET", f"{HOSTS}/{host}/allocation")
    assert shown == {"allocation": {"resource_id": host, "reservations": lists[0]}}


@pytest.mark.parametrize("ends_early", [False, True])
def test_allocations_of_a_finished_lease_are_listed_only_on_request(
    story: Story, ends_early: bool
) -> None:
    lease = story.reserve(0, 60, reservations=[host_reservation(4, 4)])
    story.run()
    if ends_early:
        story.clock.advance(600)
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": "now"})
    story.at(0 if ends_early else 60)
    story.clock.advance(1)
    assert by_host(story) == {"1": [], "2": [], "3": [], "4": []}
    over = story.lease(lease["id"])
    assert by_host(story, f"?lease_id={lease['id']}")["1"] == [allocation(over)]
