"""/v1/floatingips, and reservations of virtual:floatingip."""

from collections.abc import Callable
from typing import Any

import pytest

from climate.manager import inventory
from climate.manager.announcements import resources_of
from climate.manager.audit import audit, repair
from climate.plugins.networking.simulated import NETWORK, SimulatedFloatingips
from tests import enforcement
from tests.service import Story, host_reservation

MakeStory = Callable[..., Story]
PLUGINS = ["physical.host.plugin", "virtual.floatingip.plugin"]
FIRST, SECOND, THIRD = (f"198.51.100.{number}" for number in (2, 3, 4))


def with_addresses(story: Story, *addresses: str) -> Story:
    for address in addresses:
        story.ok("POST", "/v1/floatingips", registration(address))
    return story


@pytest.fixture
def story(make_story: MakeStory) -> Story:
    """Return a service with three addresses."""
    return with_addresses(make_story(manager__plugins=PLUGINS), FIRST, SECOND, THIRD)


def registration(address: str, network: str = NETWORK) -> dict[str, str]:
    return {"floating_network_id": network, "floating_ip_address": address}


def floatingips(amount: Any = 1, *required: str, **fields: Any) -> dict[str, Any]:
    """Return a request for addresses as the command line sends it."""
    return {
        "resource_type": "virtual:floatingip",
        "network_id": NETWORK,
        "amount": amount,
        "required_floatingips": list(required),
        **fields,
    }


def reserve(story: Story, start: float, end: float, *asked: dict[str, Any]) -> dict[str, Any]:
    return story.reserve(start, end, reservations=list(asked))


def ask(story: Story, *asked: dict[str, Any], start: float = 60, end: float = 120) -> Any:
    body = story.lease_body(start, end, reservations=list(asked))
    return story.refused(409, "POST", "/v1/leases", body)


def cloud(story: Story) -> SimulatedFloatingips:
    made: SimulatedFloatingips = story.runtime.plugins["virtual:floatingip"].cloud  # type: ignore[attr-defined]
    return made


def there(story: Story) -> dict[str, str]:
    """Return whose project has which address in the cloud."""
    return {one.endpoint: one.project_id for one in cloud(story).occupants_by_id().values()}


def addresses_of(story: Story, lease_id: str) -> list[str]:
    """Return the addresses that a lease was told to have."""
    told = story.published(lease_id)[-1]["payload"]["floatingips"]
    return sorted(one["name"] for one in told)


# What there is.


def test_an_address_is_registered_listed_shown_and_removed(story: Story) -> None:
    made = story.ok("POST", "/v1/floatingips", registration("198.51.100.9"))["floatingip"]
    assert made == {
        "id": made["id"],
        "floating_network_id": NETWORK,
        "subnet_id": "sim-public-subnet",
        "floating_ip_address": "198.51.100.9",
        "reservable": True,
        "created_at": "2030-01-15 12:00:00",
        "updated_at": None,
    }
    assert made in story.ok("GET", "/v1/floatingips")["floatingips"]
    path = f"/v1/floatingips/{made['id']}"
    assert story.ok("GET", path) == {"floatingip": made}
    assert story.call("DELETE", path).status_code == 204
    message = f"Object with {{'floatingip_id': '{made['id']}'}} not found"
    assert story.refused(404, "GET", path) == story.refused(404, "DELETE", path) == message
    story.refused(404, "GET", "/v1/floatingips/fip")


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"floating_network_id": NETWORK}, 400, "Missing parameter floating_ip_address"),
        (registration("198.51.100.200"), 400, "in an allocation pool"),
        (registration("198.51.100.9", "elsewhere"), 400, "elsewhere is not an external network"),
        (registration(f"{NETWORK}/198.51.100.9", ""), 400, "Malformed parameter"),
        (registration(FIRST), 409, "registered already"),
    ],
)
def test_what_cannot_be_registered_is_refused(
    story: Story, body: dict[str, str], status: int, reason: str
) -> None:
    assert reason in story.refused(status, "POST", "/v1/floatingips", body)


def test_members_see_addresses_and_change_none(story: Story) -> None:
    token = "jane:lab:member"
    [first, *_] = story.ok("GET", "/v1/floatingips", token=token)["floatingips"]
    story.refused(403, "POST", "/v1/floatingips", registration("198.51.100.9"), token=token)
    story.refused(403, "DELETE", f"/v1/floatingips/{first['id']}", token=token)


def test_an_address_is_not_removed_while_a_lease_has_or_will_have_it(story: Story) -> None:
    lease = reserve(story, 10, 60, floatingips(1, FIRST))
    mine = story.ok("GET", "/v1/floatingips")["floatingips"][0]
    path = f"/v1/floatingips/{mine['id']}"
    assert "The floatingip is reserved" in story.refused(409, "DELETE", path)
    story.at(10)
    story.refused(409, "DELETE", path)
    story.at(50)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert story.call("DELETE", path).status_code == 204


def test_addresses_are_no_hosts(story: Story) -> None:
    assert story.ok("GET", "/v1/os-hosts") == {"hosts": []}
    reserve(story, 0, 60, floatingips(3))
    assert "0 match" in ask(story, host_reservation())
    found = story.ok("GET", "/v2/resources?resource_type=virtual:floatingip")["resources"]
    assert [one["name"] for one in found] == [FIRST, SECOND, THIRD]
    assert found[0]["properties"].items() >= {"network_id": NETWORK, "address": FIRST}.items()
    limits = story.ok("GET", "/v2/limits")["parties"]
    assert {party["used"]["hosts"] for party in limits} == {0}


# A lease's life.


def test_a_lease_has_its_addresses_from_its_start_to_its_end(story: Story) -> None:
    lease = story.ok(
        "POST",
        "/v1/leases",
        story.lease_body(10, 60, reservations=[floatingips("2")]),
        token="jane:lab:member",
    )["lease"]
    [shown] = lease["reservations"]
    assert shown.items() >= {"network_id": NETWORK, "amount": 2, "required_floatingips": []}.items()
    assert there(story) == {}
    story.at(10)
    lease = story.lease(lease["id"])
    assert lease["status"] == "ACTIVE"
    has = lease["reservations"][0]["floatingips"]
    assert there(story) == dict.fromkeys(has, "lab")
    assert sorted(has) == addresses_of(story, lease["id"])
    story.at(50)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert there(story) == {}


def test_an_address_goes_from_lease_to_lease(story: Story) -> None:
    before = reserve(story, 0, 60, floatingips(1, FIRST))
    after = reserve(story, 60, 120, floatingips(1, FIRST))
    story.run()
    inventory.synchronise(story.runtime)
    story.at(60)
    assert story.lease(before["id"])["status"] == "TERMINATED"
    assert story.lease(after["id"])["status"] == "ACTIVE"
    [one] = cloud(story).occupants([FIRST])
    assert one.reservation_id == after["reservations"][0]["id"]


def test_a_lease_that_is_deleted_gives_them_back(story: Story) -> None:
    lease = reserve(story, 0, 60, floatingips(2))
    story.run()
    assert len(there(story)) == 2
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    story.run()
    assert there(story) == {}
    assert story.call("GET", f"/v1/leases/{lease['id']}").status_code == 404


def test_required_addresses_are_had_and_others_besides(story: Story) -> None:
    lease = reserve(story, 0, 60, floatingips(2, THIRD))
    story.run()
    has = story.lease(lease["id"])["reservations"][0]["floatingips"]
    assert len(has) == 2
    assert THIRD in has


def test_of_required_addresses_all_are_had_or_none(story: Story) -> None:
    reserve(story, 60, 120, floatingips(1, SECOND))
    reason = ask(story, floatingips(2, FIRST, SECOND))
    assert reason.startswith(
        "Not enough of the required floating IPs available: at least 2 asked for,"
        " 2 match the requirements, 1 of them free"
    )
    reason = ask(story, floatingips(1, "198.51.100.77"))
    assert "1 asked for, 0 match the requirements" in reason
    reason = ask(story, floatingips(3, FIRST))
    assert reason.startswith("Not enough floating IPs besides the required ones available")
    reserve(story, 60, 120, floatingips(2, FIRST))
    assert ask(story, floatingips(1)).startswith("Not enough floating IPs available")
    reserve(story, 120, 180, floatingips(2, FIRST, SECOND))


def test_the_refusal_is_about_the_reservation_and_what_would_fit(story: Story) -> None:
    asked = story.asking(reservations=[ours(1), ours(3, FIRST)])
    problem = story.problem(409, "POST", "/v2/leases", asked)
    assert problem["reservation"] is None, "each could be served alone"
    problem = story.problem(409, "POST", "/v2/leases", story.asking(reservations=[ours(5, FIRST)]))
    assert problem["reservation"] == 0
    [fewer] = [one for one in problem["alternatives"] if one["differs"] == "fewer"]
    assert fewer["amount"] == 3


def ours(amount: int, *required: str) -> dict[str, Any]:
    params = {"network_id": NETWORK, "amount": amount, "required_floatingips": list(required)}
    return {"resource_type": "virtual:floatingip", "params": params}


def test_two_reservations_of_a_lease_get_different_addresses(story: Story) -> None:
    """A greedy choice would give the second's address to the first."""
    lease = reserve(story, 0, 60, floatingips(2), floatingips(1, FIRST))
    story.run()
    one, other = (r["floatingips"] for r in story.lease(lease["id"])["reservations"])
    assert list(other) == [FIRST]
    assert sorted(one) == [SECOND, THIRD]


def test_hosts_and_addresses_are_had_together_or_not_at_all(make_story: MakeStory) -> None:
    story = with_addresses(make_story(manager__plugins=PLUGINS), FIRST)
    story.register(1)
    reserve(story, 60, 120, floatingips())
    assert "floating IPs" in ask(story, host_reservation(), floatingips())
    lease = reserve(story, 120, 180, host_reservation(), floatingips())
    story.at(120)
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert list(there(story)) == [FIRST]
    assert len(story.hosts_of(lease["id"])) == 1


def test_what_is_free_when_can_be_asked(story: Story) -> None:
    reserve(story, 60, 120, floatingips(2, FIRST))
    params = f'{{"network_id":"{NETWORK}","amount":2,"required_floatingips":["{FIRST}"]}}'
    query = f"resource_type=virtual:floatingip&end={story.moment(180)}"
    steps = story.ok("GET", f"/v2/availability?{query}&params={params}")["steps"]
    assert [step["free"] for step in steps] == [3, 1, 3]
    search = {
        "reservations": [ours(2, FIRST)],
        "duration": 3600,
        "start_after": story.moment(60),
        "end_by": story.moment(600),
    }
    [window, *_] = story.ok("POST", "/v2/availability/search", search)["windows"]
    assert window["start"] == story.moment(120)


def test_an_enforcement_service_is_told_the_addresses(make_story: MakeStory) -> None:
    with enforcement.serving() as outside:
        where = {"enforcement__external_service_base_endpoint": outside.url}
        story = with_addresses(make_story(manager__plugins=PLUGINS, **where), FIRST)
        reserve(story, 60, 120, floatingips())
        [asked] = outside.asked_at("/check-create")
    [told] = asked["lease"]["reservations"][0]["allocations"]
    [known] = story.ok("GET", "/v1/floatingips")["floatingips"]
    assert told == {**known, "updated_at": told["updated_at"]}
    assert told["floating_ip_address"] == FIRST


# Changes.


def change(story: Story, lease: dict[str, Any], **params: Any) -> Any:
    body = {"reservations": [{"id": lease["reservations"][0]["id"], **params}]}
    return story.call("PUT", f"/v1/leases/{lease['id']}", body)


def test_a_running_lease_gets_more_and_loses_none(story: Story) -> None:
    lease = reserve(story, 0, 60, floatingips(1, SECOND))
    story.run()
    assert change(story, lease, amount=3).status_code == 200
    story.run()
    assert sorted(there(story)) == [FIRST, SECOND, THIRD]
    assert sorted(story.lease(lease["id"])["reservations"][0]["floatingips"]) == sorted(
        there(story)
    )
    assert change(story, lease, required_floatingips=[]).status_code == 200
    refused = change(story, lease, amount=2)
    assert refused.status_code == 409
    assert "in use with 3 floating IPs" in refused.get_json()["error_message"]
    story.run()
    assert len(there(story)) == 3


def test_a_running_lease_gets_an_address_that_it_names_later(story: Story) -> None:
    lease = reserve(story, 0, 60, floatingips(1, FIRST))
    story.run()
    more = {"amount": 2, "required_floatingips": [FIRST, THIRD]}
    assert change(story, lease, **more).status_code == 200
    story.run()
    assert sorted(there(story)) == [FIRST, THIRD]


def test_a_pending_lease_keeps_what_it_names_when_it_shrinks(story: Story) -> None:
    lease = reserve(story, 10, 60, floatingips(3))
    smaller = {"amount": 1, "required_floatingips": [THIRD]}
    assert change(story, lease, **smaller).status_code == 200
    reserve(story, 10, 60, floatingips(2, FIRST, SECOND))
    story.at(10)
    has = story.lease(lease["id"])["reservations"][0]["floatingips"]
    assert list(has) == [THIRD]


# What goes wrong.


def test_an_address_that_somebody_takes_is_booked_no_more(story: Story) -> None:
    lease = reserve(story, 10, 60, floatingips(1, FIRST))
    other = reserve(story, 10, 60, floatingips(1))
    for address in (FIRST, SECOND):
        cloud(story).occupy(address, "somebody")
    inventory.synchronise(story.runtime)
    assert story.lease(lease["id"])["degraded"] is True, "no other is what it named"
    assert story.lease(other["id"])["degraded"] is False
    found = story.ok("GET", "/v1/floatingips")["floatingips"]
    assert [one["reservable"] for one in found] == [False, False, True]
    story.at(10)
    assert list(story.lease(other["id"])["reservations"][0]["floatingips"]) == [THIRD]
    cloud(story).delete(cloud(story).occupants([FIRST])[0])
    inventory.synchronise(story.runtime)
    story.run()
    lease = story.lease(lease["id"])
    assert (lease["degraded"], list(lease["reservations"][0]["floatingips"])) == (False, [FIRST])


def test_only_what_was_not_named_is_replaced(story: Story) -> None:
    lease = reserve(story, 10, 60, floatingips(2, FIRST))
    other = addresses_of_pending(story, lease)[1]
    cloud(story).occupy(FIRST, "somebody")
    inventory.synchronise(story.runtime)
    assert addresses_of_pending(story, lease) == [FIRST, other]
    assert story.lease(lease["id"])["reservations"][0]["missing_resources"] is True
    cloud(story).occupy(other, "somebody")
    inventory.synchronise(story.runtime)
    [replacement] = {SECOND, THIRD} - {other}
    assert addresses_of_pending(story, lease) == [FIRST, replacement]


def addresses_of_pending(story: Story, lease: dict[str, Any]) -> list[str]:
    with story.runtime.database.read() as session:
        held = resources_of(session, [lease["reservations"][0]["id"]])
    return sorted(one.external_id for some in held.values() for one in some)


def test_a_start_whose_address_is_taken_fails_with_a_reason_until_it_is_free(
    make_story: MakeStory,
) -> None:
    story = make_story(manager__plugins=PLUGINS, manager__event_max_retries=0)
    with_addresses(story, FIRST, SECOND)
    lease = reserve(story, 10, 60, floatingips(1, FIRST))
    other = reserve(story, 10, 60, floatingips(1, SECOND))
    taken = cloud(story).occupy(FIRST, "somebody")
    story.at(10)
    assert story.lease(lease["id"])["status"] == "ERROR"
    assert story.lease(other["id"])["status"] == "ACTIVE"
    found = [difference.description for difference in audit(story.runtime)]
    reason = f"{FIRST} is taken by floating IP {taken} of project somebody"
    assert any(reason in what for what in found), found
    cloud(story).delete(cloud(story).occupants([FIRST])[0])
    story.until(story.clock.now().replace(minute=30))
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    assert there(story).keys() == {FIRST, SECOND}


def test_an_audit_repairs_what_is_ours_and_touches_nothing_else(story: Story) -> None:
    lease = reserve(story, 0, 60, floatingips(1, FIRST))
    story.run()
    assert audit(story.runtime) == []
    cloud(story).delete(cloud(story).occupants([FIRST])[0])
    cloud(story).occupy(SECOND, "somebody", "a reservation that is gone")
    cloud(story).occupy(THIRD, "somebody")
    cloud(story).occupy("198.51.100.50", "somebody", "a reservation of others")
    found = audit(story.runtime)
    assert [repair(story.runtime, one) for one in found] == [True, True, False]
    story.run()
    assert there(story).keys() == {FIRST, THIRD, "198.51.100.50"}
    assert story.lease(lease["id"])["reservations"][0]["floatingips"].keys() == {FIRST}
