"""Who holds a resource now and next, and its bookings, for operators."""

from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.bodies import HOSTS_AND_INSTANCES
from tests.support.service import Story, hosts

ALICE, EVE, ADMIN = "alice:lab", "eve:other", "boss:ops:admin"
ROOM = {"vcpus": 4, "memory_mb": 1024, "disk_gb": 10, "affinity": None}


@pytest.fixture
def lab(make_story_everywhere: MakeStory) -> Story:
    """Return a service with hosts and instances, and a cleaning time of ten minutes."""
    story = make_story_everywhere(manager__plugins=HOSTS_AND_INSTANCES, DEFAULT__cleaning_time=10)
    story.register(4)
    return story


def book(
    story: Story, name: str, first: float, last: float, host: str = "sim-1", token: str = ALICE
) -> dict[str, Any]:
    """Create a lease of a host."""
    properties = ["==", "$id", _id(story, host)]
    reservation = hosts(1, 1, resource_properties=properties)
    body = story.asking(first, last, name=name, reservations=[reservation])
    return dict(story.ok("POST", "/v2/leases", body, token=token))


def share(story: Story, name: str, first: float, last: float) -> dict[str, Any]:
    """Create a lease of an instance on sim-2."""
    properties = ["==", "$id", _id(story, "sim-2")]
    params = {"amount": 1, **ROOM, "resource_properties": properties}
    reservation = {"resource_type": "virtual:instance", "params": params}
    body = story.asking(first, last, name=name, reservations=[reservation])
    return dict(story.ok("POST", "/v2/leases", body, token=ALICE))


def _id(story: Story, name: str) -> str:
    (found,) = story.ok("GET", f"/v2/resources?q={name}")["resources"]
    return str(found["id"])


def holders(story: Story) -> dict[str, tuple[str | None, str | None]]:
    """Return the names of the present and the next lease by host."""
    found = story.ok("GET", "/v2/resources?bookings=true&sort=name", token=ADMIN)["resources"]

    def name(holder: dict[str, Any] | None) -> str | None:
        return None if holder is None else holder["lease_name"]

    return {each["name"]: (name(each["now"]), name(each["next"])) for each in found}


def booked(story: Story, host: str, query: str = "") -> list[str]:
    path = f"/v2/resources/{_id(story, host)}/bookings?limit=1{query}"
    found: list[str] = []
    while path:
        page = story.ok("GET", path, token=ADMIN)
        found += [booking["lease_name"] for booking in page["bookings"]]
        path = page["next"]
    return found


def test_operators_see_who_holds_a_resource_now_and_next(lab: Story) -> None:
    present = book(lab, "present", 0, 60)
    book(lab, "following", 120, 180)
    book(lab, "last", 240, 300)
    share(lab, "share-now", 0, 90)
    share(lab, "share-too", 30, 90)
    free = (None, None)
    expected = {"sim-1": ("present", "following"), "sim-2": ("share-now", "share-too")}
    assert holders(lab) == {**expected, "sim-3": free, "sim-4": free}
    (first, *_) = lab.ok("GET", "/v2/resources?bookings=true&q=sim-1", token=ADMIN)["resources"]
    assert first["now"] == {
        "lease_id": present["id"],
        "lease_name": "present",
        "project_id": "lab",
        "user_id": "alice",
        "start": lab.moment(0),
        "end": lab.moment(60),
    }
    lab.run()
    lab.clock.advance(61 * 60)  # the end of the lease is due, and no manager has run it
    assert holders(lab)["sim-1"] == ("present", "following")
    lab.run()
    assert holders(lab)["sim-1"] == (None, "following")


def test_bookings_of_a_resource_are_paged_by_start_within_a_window(lab: Story) -> None:
    leases = [book(lab, name, at, at + 30) for name, at in (("a", 0), ("b", 60), ("c", 120))]
    assert booked(lab, "sim-1") == ["a", "b", "c"]
    assert booked(lab, "sim-1", "&sort=-start") == ["c", "b", "a"]
    assert booked(lab, "sim-1", f"&start={lab.moment(40)}&end={lab.moment(120)}") == ["b"]
    assert booked(lab, "sim-1", f"&start={lab.moment(39)}&end={lab.moment(121)}") == ["a", "b", "c"]
    assert booked(lab, "sim-3") == []
    whole = lab.ok("GET", f"/v2/resources/{_id(lab, 'sim-1')}/bookings", token=ADMIN)["bookings"]
    assert whole[0] == {
        "lease_id": leases[0]["id"],
        "lease_name": "a",
        "project_id": "lab",
        "user_id": "alice",
        "start": lab.moment(0),
        "end": lab.moment(30),
        "busy_until": lab.moment(40),
        "status": "PENDING",
        "reservation_id": leases[0]["reservations"][0]["id"],
        "amounts": {},
    }


def test_bookings_of_shares_have_amounts(lab: Story) -> None:
    for number in range(3):
        share(lab, f"share-{number}", 0, 60)
    path = f"/v2/resources/{_id(lab, 'sim-2')}/bookings"
    found = lab.ok("GET", path, token=ADMIN)["bookings"]
    amounts = {"VCPU": 4, "MEMORY_MB": 1024, "DISK_GB": 10}
    assert [booking["amounts"] for booking in found] == [amounts] * 3
    assert sorted(booked(lab, "sim-2")) == ["share-0", "share-1", "share-2"]


def test_only_operators_see_bookings(lab: Story) -> None:
    book(lab, "private name", 0, 60)
    path = f"/v2/resources/{_id(lab, 'sim-1')}/bookings"
    for token in (ALICE, EVE, "eve:other:reader"):
        for forbidden in (path, "/v2/resources?bookings=true"):
            problem = lab.problem(403, "GET", forbidden, token=token)
            assert problem["detail"] == (
                "You may not read who holds a resource, and when: the policy rule"
                " climate:resources:get_bookings requires the role admin"
            )
        text = lab.call("GET", "/v2/resources?bookings=false", token=token).get_data(as_text=True)
        assert "private name" not in text


def test_rejects_windows_and_resources_that_do_not_exist(lab: Story) -> None:
    path = f"/v2/resources/{_id(lab, 'sim-1')}/bookings"
    for query, parameter in [
        (f"start={lab.moment(5)}&end={lab.moment(5)}", "end"),
        (f"end={lab.moment(-5)}", "end"),
        ("start=x", "start"),
        ("sort=name", "sort"),
        ("marker=x", "marker"),
    ]:
        problem = lab.problem(400, "GET", f"{path}?{query}", token=ADMIN)
        assert [error["parameter"] for error in problem["errors"]] == [parameter]
    assert lab.problem(404, "GET", "/v2/resources/99/bookings", token=ADMIN)["code"] == "not_found"
