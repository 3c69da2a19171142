"""Leases of virtual:floatingip and virtual:network on the simulated cloud."""

from typing import Any

import pytest

from climate.manager.audit.cloud import Repair, audit, repair
from climate.manager.notifications.lease_messages import resources_of
from climate.manager.resources import inventory_sync as inventory
from climate.plugins.networking.simulated import NETWORK
from tests.conftest import MakeStory
from tests.support import enforcement
from tests.support.bodies import change_of
from tests.support.service import Story, host_reservation

PLUGINS = ["physical.host.plugin", "virtual.floatingip.plugin", "virtual.network.plugin"]
FIRST, SECOND, THIRD = (f"198.51.100.{number}" for number in (2, 3, 4))
ALL = (FIRST, SECOND, THIRD)


def register(story: Story, *addresses: str) -> Story:
    for address in addresses:
        body = {"floating_network_id": NETWORK, "floating_ip_address": address}
        story.ok("POST", "/v1/floatingips", body)
    return story


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    return register(make_story(manager__plugins=PLUGINS), *ALL)


def params(amount: Any = 1, *required: str) -> dict[str, Any]:
    return {"network_id": NETWORK, "amount": amount, "required_floatingips": list(required)}


def v1(amount: Any = 1, *required: str) -> dict[str, Any]:
    return {"resource_type": "virtual:floatingip", **params(amount, *required)}


def v2(amount: Any = 1, *required: str) -> dict[str, Any]:
    return {"resource_type": "virtual:floatingip", "params": params(amount, *required)}


def reserve(
    story: Story, start: float, end: float, *reservations: dict[str, Any]
) -> dict[str, Any]:
    return story.reserve(start, end, reservations=list(reservations))


def rejected(story: Story, *reservations: dict[str, Any]) -> str:
    body = story.lease_body(60, 120, reservations=list(reservations))
    return story.refused(409, "POST", "/v1/leases", body)


def cloud(story: Story) -> Any:
    plugin: Any = story.runtime.plugins["virtual:floatingip"]
    return plugin.cloud


def owners(story: Story, resource_type: str = "virtual:floatingip") -> dict[str, str]:
    """Return the project of each address or segment that is in use in the cloud."""
    plugin: Any = story.runtime.plugins[resource_type]
    return {used.endpoint: used.project_id for used in plugin.cloud.occupants_by_id().values()}


def test_an_ipv6_address_has_an_error_code_of_its_own(story: Story) -> None:
    body = story.asking(reservations=[v2(1, "2001:DB8::1")])
    refusal = story.problem(400, "POST", "/v2/leases", body)
    assert refusal["code"] == "ipv6_not_supported"
    pointers = [error["pointer"] for error in refusal["errors"]]
    assert pointers == ["#/reservations/0/params/required_floatingips"]
    body = {"floating_network_id": NETWORK, "floating_ip_address": "2001:db8::1"}
    message = story.refused(400, "POST", "/v1/floatingips", body)
    assert message.startswith("2001:db8::1 is an IPv6 address")


def test_limits_count_floating_ips_and_networks(make_story: MakeStory) -> None:
    options = {"limits__enabled": True, "limits__user_floatingips": 2, "limits__user_networks": 0}
    story = register(make_story(manager__plugins=PLUGINS, **options), *ALL)
    reserve(story, 60, 120, v1(2))
    body = story.lease_body(90, 150, reservations=[v1(1)])
    assert "2 floating IPs" in story.refused(403, "POST", "/v1/leases", body)
    reserve(story, 120, 180, v1(2))
    segment = {"network_type": "vlan", "physical_network": "physnet1", "segment_id": 101}
    story.ok("POST", "/v1/networks", segment)
    network = {"resource_type": "virtual:network", "network_name": "mine"}
    body = story.lease_body(60, 120, reservations=[network])
    assert "0 networks" in story.refused(403, "POST", "/v1/leases", body)


def addresses(story: Story, lease: dict[str, Any], number: int = 0) -> list[str]:
    """Return the addresses that a reservation of an active lease has."""
    return sorted(story.lease(lease["id"])["reservations"][number]["floatingips"])


def planned(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the addresses that a pending lease has booked."""
    with story.runtime.database.read() as session:
        held = resources_of(session, [lease["reservations"][0]["id"]])
    return sorted(resource.external_id for found in held.values() for resource in found)


def release(story: Story, address: str) -> None:
    """Delete a floating IP outside of climate."""
    cloud(story).delete(cloud(story).occupants([address])[0])


def status(story: Story, lease: dict[str, Any]) -> str:
    return str(story.lease(lease["id"])["status"])


def change(story: Story, lease: dict[str, Any], **fields: Any) -> Any:
    body = {"reservations": change_of(lease, **fields)}
    return story.call("PUT", f"/v1/leases/{lease['id']}", body)


def test_a_project_has_its_addresses_from_start_to_end(story: Story) -> None:
    body = story.lease_body(10, 60, reservations=[v1("2")])
    lease = story.ok("POST", "/v1/leases", body, token="jane:lab:member")["lease"]
    assert lease["reservations"][0].items() >= params(2).items()
    assert owners(story) == {}
    story.at(10)
    assert status(story, lease) == "ACTIVE"
    assert owners(story) == dict.fromkeys(addresses(story, lease), "lab")
    notified = story.published(lease["id"])[-1]["payload"]["floatingips"]
    assert sorted(resource["name"] for resource in notified) == addresses(story, lease)
    story.at(50)
    assert status(story, lease) == "TERMINATED"
    assert owners(story) == {}
    deleted = reserve(story, 0, 60, v1(2))
    story.run()
    assert len(owners(story)) == 2
    story.ok("DELETE", f"/v1/leases/{deleted['id']}")
    story.run()
    assert owners(story) == {}
    story.refused(404, "GET", f"/v1/leases/{deleted['id']}")


def test_a_segment_belongs_to_a_lease_from_start_to_end(story: Story) -> None:
    for number, speed in ((101, 1), (102, 10)):
        segment = {"network_type": "vlan", "physical_network": "sim", "segment_id": number}
        story.ok("POST", "/v1/networks", {**segment, "speed": speed})
    fast = {"resource_properties": '["==", "$speed", "10"]', "network_name": "mine"}
    fast["resource_type"] = "virtual:network"
    lease = reserve(story, 0, 60, fast)
    body = story.lease_body(0, 60, reservations=[fast])
    message = story.refused(409, "POST", "/v1/leases", body)
    assert message.startswith("Not enough segments available: at least 1 requested, 1 match")
    story.run()
    (reservation,) = story.lease(lease["id"])["reservations"]
    in_use = owners(story, "virtual:network")
    assert reservation["networks"].keys() == in_use.keys() == {"vlan:sim:102"}
    notified = story.published(lease["id"])[-1]["payload"]["networks"]
    assert [resource["name"] for resource in notified] == ["vlan:sim:102"]
    story.at(60)
    assert status(story, lease) == "TERMINATED"
    assert owners(story, "virtual:network") == {}


def test_an_address_goes_from_lease_to_lease_and_is_not_removed_before(story: Story) -> None:
    before, after = (reserve(story, start, start + 60, v1(1, FIRST)) for start in (0, 60))
    path = f"/v1/floatingips/{story.ok('GET', '/v1/floatingips')['floatingips'][0]['id']}"
    assert "The floatingip is reserved" in story.refused(409, "DELETE", path)
    story.run()
    story.refused(409, "DELETE", path)
    inventory.synchronise(story.runtime)
    story.at(60)
    assert (status(story, before), status(story, after)) == ("TERMINATED", "ACTIVE")
    (used,) = cloud(story).occupants([FIRST])
    assert used.reservation_id == after["reservations"][0]["id"]
    story.at(60)
    assert story.call("DELETE", path).status_code == 204


def test_a_lease_gets_all_required_addresses_or_none(story: Story) -> None:
    lease = reserve(story, 0, 60, v1(2, THIRD))
    story.run()
    assert len(addresses(story, lease)) == 2
    assert THIRD in addresses(story, lease)
    reserve(story, 60, 120, v1(1, SECOND))
    assert rejected(story, v1(2, FIRST, SECOND)).startswith(
        "Not enough of the required floating IPs available: at least 2 requested,"
        " 2 match the requirements, 1 of them free"
    )
    assert "1 requested, 0 match the requirements" in rejected(story, v1(1, "198.51.100.77"))
    besides = "Not enough floating IPs besides the required ones available"
    assert rejected(story, v1(3, FIRST)).startswith(besides)
    reserve(story, 60, 120, v1(2, FIRST))
    assert rejected(story, v1(1)).startswith("Not enough floating IPs available")
    reserve(story, 120, 180, v1(2, FIRST, SECOND))


def test_the_problem_names_the_reservation_and_what_would_fit(story: Story) -> None:
    body = story.asking(reservations=[v2(1), v2(3, FIRST)])
    problem = story.problem(409, "POST", "/v2/leases", body)
    assert problem["reservation"] is None, "each could be served alone"
    problem = story.problem(409, "POST", "/v2/leases", story.asking(reservations=[v2(5, FIRST)]))
    assert problem["reservation"] == 0
    (fewer,) = [offer for offer in problem["alternatives"] if offer["differs"] == "fewer"]
    assert fewer["amount"] == 3


def test_reservations_of_one_lease_get_different_addresses(story: Story) -> None:
    """A greedy choice would give the required address of the second to the first."""
    lease = reserve(story, 0, 60, v1(2), v1(1, FIRST))
    story.run()
    assert addresses(story, lease, 1) == [FIRST]
    assert addresses(story, lease, 0) == [SECOND, THIRD]
    assert story.ok("GET", "/v1/os-hosts") == {"hosts": []}  # addresses are not hosts
    assert "0 match" in rejected(story, host_reservation())
    found = story.ok("GET", "/v2/resources?resource_type=virtual:floatingip")["resources"]
    assert [resource["name"] for resource in found] == list(ALL)
    known = {"network_id": NETWORK, "address": FIRST}
    assert found[0]["properties"].items() >= known.items()
    limits = story.ok("GET", "/v2/limits")["parties"]
    assert {party["used"]["hosts"] for party in limits} == {0}


def test_hosts_and_addresses_are_admitted_together_and_enforcement_sees_addresses(
    make_story: MakeStory,
) -> None:
    with enforcement.serving() as outside:
        url = {"enforcement__external_service_base_endpoint": outside.url}
        story = register(make_story(manager__plugins=PLUGINS, **url), FIRST)
        story.register(1)
        reserve(story, 60, 120, v1())
        (request,) = outside.bodies_of("/check-create")
        assert "floating IPs" in rejected(story, host_reservation(), v1())
        lease = reserve(story, 120, 180, host_reservation(), v1())
        story.at(120)
        assert status(story, lease) == "ACTIVE"
    assert list(owners(story)) == [FIRST]
    assert len(story.hosts_of(lease["id"])) == 1
    allocation = request["lease"]["reservations"][0]["allocations"][0]
    (known,) = story.ok("GET", "/v1/floatingips")["floatingips"]
    assert allocation == {**known, "updated_at": allocation["updated_at"]}
    assert allocation["floating_ip_address"] == FIRST


def test_free_addresses_and_windows_are_shown(story: Story) -> None:
    reserve(story, 60, 120, v1(2, FIRST))
    wanted = f'{{"network_id":"{NETWORK}","amount":2,"required_floatingips":["{FIRST}"]}}'
    query = f"resource_type=virtual:floatingip&end={story.moment(180)}&params={wanted}"
    steps = story.ok("GET", f"/v2/availability?{query}")["steps"]
    assert [step["free"] for step in steps] == [3, 1, 3]
    times = {"start_after": story.moment(60), "end_by": story.moment(600)}
    search = {"reservations": [v2(2, FIRST)], "duration": 3600, **times}
    window, *_ = story.ok("POST", "/v2/availability/search", search)["windows"]
    assert window["start"] == story.moment(120)


def test_an_active_lease_gains_addresses_and_loses_none(story: Story) -> None:
    lease = reserve(story, 0, 60, v1(1, SECOND))
    story.run()
    assert change(story, lease, amount=2, required_floatingips=[SECOND, THIRD]).status_code == 200
    story.run()
    assert sorted(owners(story)) == [SECOND, THIRD]
    assert change(story, lease, amount=3).status_code == 200
    story.run()
    assert sorted(owners(story)) == addresses(story, lease) == list(ALL)
    assert change(story, lease, required_floatingips=[]).status_code == 200
    rejection = change(story, lease, amount=2)
    assert rejection.status_code == 409
    assert "in use with 3 floating IPs" in rejection.get_json()["error_message"]
    story.run()
    assert len(owners(story)) == 3


def test_a_pending_lease_that_shrinks_keeps_its_required_addresses(story: Story) -> None:
    lease = reserve(story, 10, 60, v1(3))
    assert change(story, lease, amount=1, required_floatingips=[THIRD]).status_code == 200
    reserve(story, 10, 60, v1(2, FIRST, SECOND))
    story.at(10)
    assert addresses(story, lease) == [THIRD]


def test_an_address_taken_outside_is_replaced_unless_it_is_required(story: Story) -> None:
    lease, other = reserve(story, 10, 60, v1(1, FIRST)), reserve(story, 10, 60, v1(1))
    for address in (FIRST, SECOND):
        cloud(story).occupy(address, "somebody")
    inventory.synchronise(story.runtime)
    assert story.lease(lease["id"])["degraded"] is True
    assert story.lease(other["id"])["degraded"] is False
    found = story.ok("GET", "/v1/floatingips")["floatingips"]
    assert [address["reservable"] for address in found] == [False, False, True]
    story.at(10)
    assert addresses(story, other) == [THIRD]
    release(story, FIRST)
    inventory.synchronise(story.runtime)
    story.run()
    assert story.lease(lease["id"])["degraded"] is False
    assert addresses(story, lease) == [FIRST]


def test_only_addresses_that_are_not_required_are_replaced(story: Story) -> None:
    lease = reserve(story, 10, 60, v1(2, FIRST))
    other = planned(story, lease)[1]
    cloud(story).occupy(FIRST, "somebody")
    inventory.synchronise(story.runtime)
    assert planned(story, lease) == [FIRST, other]
    assert story.lease(lease["id"])["reservations"][0]["missing_resources"] is True
    cloud(story).occupy(other, "somebody")
    inventory.synchronise(story.runtime)
    (replacement,) = {SECOND, THIRD} - {other}
    assert planned(story, lease) == [FIRST, replacement]


def test_a_start_whose_address_is_taken_fails_with_a_reason_until_it_is_free(
    make_story: MakeStory,
) -> None:
    story = make_story(manager__plugins=PLUGINS, manager__event_max_retries=0)
    register(story, FIRST, SECOND)
    lease, other = (reserve(story, 10, 60, v1(1, address)) for address in (FIRST, SECOND))
    taken = cloud(story).occupy(FIRST, "somebody")
    story.at(10)
    assert (status(story, lease), status(story, other)) == ("ERROR", "ACTIVE")
    found = [drift.description for drift in audit(story.runtime)]
    reason = f"{FIRST} is taken by floating IP {taken} of project somebody"
    assert any(reason in text for text in found), found
    release(story, FIRST)
    story.until(story.clock.now().replace(minute=30))
    assert status(story, lease) == "ACTIVE"
    assert owners(story).keys() == {FIRST, SECOND}


def test_the_audit_repairs_own_addresses_and_touches_no_other(story: Story) -> None:
    lease = reserve(story, 0, 60, v1(1, FIRST))
    story.run()
    assert audit(story.runtime) == []
    release(story, FIRST)
    cloud(story).occupy(SECOND, "somebody", "a reservation that is gone")
    cloud(story).occupy(THIRD, "somebody")
    cloud(story).occupy("198.51.100.50", "somebody", "a reservation of others")
    outcomes = [repair(story.runtime, drift) for drift in audit(story.runtime)]
    assert outcomes == [Repair.LEFT_TO_MANAGER, Repair.DONE, Repair.IMPOSSIBLE]
    story.run()
    assert owners(story).keys() == {FIRST, THIRD, "198.51.100.50"}
    assert addresses(story, lease) == [FIRST]


def test_creates_floating_ips_when_a_running_reservation_asks_for_them(story: Story) -> None:
    promised = {**v1(2, FIRST, SECOND), "on_start": "nothing"}
    lease = reserve(story, 0, 60, promised)
    story.run()
    assert owners(story) == {}
    cloud(story).occupy(FIRST, "admin")  # the project has used one of its addresses
    own = cloud(story).occupants([FIRST])[0].id
    assert change(story, lease, on_start="create").status_code == 200
    assert story.run() == 1
    (reservation,) = story.lease(lease["id"])["reservations"]
    assert sorted(reservation["floatingips"]) == [FIRST, SECOND]
    assert reservation["floatingips"][FIRST] == own
    assert owners(story) == {FIRST: "admin", SECOND: "admin"}
    assert audit(story.runtime) == []
    story.at(60)
    assert owners(story) == {}


def test_repeats_a_change_of_on_start_that_failed_until_it_succeeds(story: Story) -> None:
    lease = reserve(story, 0, 60, {**v1(1, FIRST), "on_start": "nothing"})
    story.run()
    cloud(story).occupy(FIRST, "somebody else")
    assert change(story, lease, on_start="create").status_code == 200
    for _ in range(8):  # all retries
        story.at(1)
    shown = story.lease(lease["id"])
    assert (shown["status"], shown["degraded"]) == ("ACTIVE", True)
    release(story, FIRST)
    inventory.synchronise(story.runtime)
    story.run()
    assert owners(story) == {FIRST: "admin"}
    assert story.lease(lease["id"])["degraded"] is False
    inventory.synchronise(story.runtime)
    assert story.run() == 0  # nothing is left to do
