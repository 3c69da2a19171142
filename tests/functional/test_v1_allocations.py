"""/v1/os-hosts/allocations: who has which host when."""

from typing import Any

import pytest

from tests.support.service import Story, host_reservation

PATH = "/v1/os-hosts/allocations"


def shown(lease: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """Return how an allocation of the lease's reservation is shown."""
    return {
        "id": lease["reservations"][number]["id"],
        "lease_id": lease["id"],
        "start_date": lease["start_date"],
        "end_date": lease["end_date"],
    }


def by_host(story: Story, query: str = "") -> dict[str, list[dict[str, Any]]]:
    """Return the allocations by host id, after a look at their form."""
    body = story.ok("GET", f"{PATH}{query}")
    assert list(body) == ["allocations"]
    found: dict[str, list[dict[str, Any]]] = {}
    for one in body["allocations"]:
        assert one == {"resource_id": one["resource_id"], "reservations": one["reservations"]}
        found[one["resource_id"]] = one["reservations"]
    return found


def test_idle_hosts_are_listed_too(story: Story) -> None:
    assert by_host(story) == {"1": [], "2": [], "3": [], "4": []}


def test_each_host_shows_its_leases_in_order_of_time(story_everywhere: Story) -> None:
    story = story_everywhere
    later = story.reserve(240, 300, reservations=[host_reservation(4, 4)])
    pair = [host_reservation(1, 1), host_reservation(3, 3)]
    sooner = story.reserve(60, 120, reservations=pair)
    found = by_host(story)
    assert [reservations[1] for reservations in found.values()] == [shown(later)] * 4
    first = [reservations[0] for reservations in found.values()]
    assert first.count(shown(sooner, 0)) == 1
    assert first.count(shown(sooner, 1)) == 3


def test_allocations_of_one_lease_or_reservation_can_be_asked_for(story: Story) -> None:
    story.reserve(60, 120, reservations=[host_reservation(4, 4)])
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
        held = [one for reservations in found.values() for one in reservations]
        expected = [shown(lease, number) for number in numbers]
        assert sorted(held, key=str) == sorted(expected, key=str), query


def test_an_unknown_filter_is_ignored(story: Story) -> None:
    lease = story.reserve(reservations=[host_reservation(4, 4)])
    assert by_host(story, "?colour=red") == {id_: [shown(lease)] for id_ in ("1", "2", "3", "4")}


def test_one_host_can_be_asked_for(story: Story) -> None:
    lease = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    other = story.reserve(120, 180, reservations=[host_reservation(4, 4)])
    assert story.ok("GET", "/v1/os-hosts/2/allocation") == {
        "allocation": {"resource_id": "2", "reservations": [shown(lease), shown(other)]}
    }
    assert story.ok("GET", f"/v1/os-hosts/2/allocation?lease_id={other['id']}") == {
        "allocation": {"resource_id": "2", "reservations": [shown(other)]}
    }


@pytest.mark.parametrize("early", [False, True])
def test_leases_that_are_over_are_listed_only_if_asked_for(story: Story, early: bool) -> None:
    lease = story.reserve(0, 60, reservations=[host_reservation(4, 4)])
    story.run()
    if early:
        story.clock.advance(600)
        story.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": "now"})
    story.at(0 if early else 60)
    story.clock.advance(1)
    assert by_host(story) == {"1": [], "2": [], "3": [], "4": []}
    over = story.lease(lease["id"])
    assert by_host(story, f"?lease_id={lease['id']}")["1"] == [shown(over)]


def test_a_change_of_dates_shows(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120)
    dates = {"start_date": story.date(90), "end_date": story.date(300)}
    moved = story.ok("PUT", f"/v1/leases/{lease['id']}", dates)["lease"]
    held = [one for reservations in by_host(story).values() for one in reservations]
    assert held == [shown(moved)]
