"""POST /v1/leases: what is reserved, of whatever type, all of it or nothing."""

from typing import Any

import pytest

from tests.support.service import Story, host_reservation

BIG = '["==", "$vcpus", "64"]'  # of sim-1 .. sim-4 only sim-4


@pytest.mark.parametrize("fields", [{}, {"reservations": []}])
def test_a_lease_without_reservations_lives_all_its_life(
    story: Story, fields: dict[str, Any]
) -> None:
    body = {"name": "bare", "start_date": "now", "end_date": story.date(90), **fields}
    lease = story.ok("POST", "/v1/leases", body)["lease"]
    assert lease["reservations"] == []
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    story.at(90)
    assert story.lease(lease["id"])["status"] == "TERMINATED"


def test_reservations_and_events_are_lists_of_objects(story: Story) -> None:
    for key in ["reservations", "events"]:
        for value in [None, {}, "x", [1], [None], [[]]]:
            message = story.refused(400, "POST", "/v1/leases", story.lease_body(**{key: value}))
            assert key in message
            assert story.ok("GET", "/v1/leases") == {"leases": []}


def test_a_reservation_needs_a_resource_type(story: Story) -> None:
    body = story.lease_body(reservations=[{"min": 1, "max": 1}])
    message = story.refused(400, "POST", "/v1/leases", body)
    assert message == "Missing parameter resource_type"


def test_an_unknown_resource_type_is_refused(story: Story) -> None:
    for kind in ["no:such", "", None, 5, "x" * 65]:
        body = story.lease_body(reservations=[host_reservation(resource_type=kind)])
        response = story.call("POST", "/v1/leases", body)
        assert response.status_code == 400
        if kind == "no:such":
            assert "no:such resource type is not supported" in response.get_json()["error_message"]
            assert response.headers["Climate-Error-Code"] == "unsupported_resource_type"


def test_an_impossible_reservation_refuses_the_whole_lease(story_everywhere: Story) -> None:
    story = story_everywhere
    body = story.lease_body(reservations=[host_reservation(), host_reservation(9, 9)])
    story.refused(409, "POST", "/v1/leases", body)
    assert story.ok("GET", "/v1/leases") == {"leases": []}
    found = story.ok("GET", "/v1/os-hosts/allocations")["allocations"]
    assert [host["reservations"] for host in found] == [[]] * 4
    assert story.published() == []
    assert story.cloud.effects() == []


def test_reservations_of_one_lease_never_share_a_host(story: Story) -> None:
    lease = story.reserve(reservations=[host_reservation(2, 2), host_reservation(2, 2)])
    held = [
        {
            host["resource_id"]
            for host in story.ok("GET", f"/v1/os-hosts/allocations?reservation_id={one['id']}")[
                "allocations"
            ]
            if host["reservations"]
        }
        for one in lease["reservations"]
    ]
    assert [len(hosts) for hosts in held] == [2, 2]
    assert not held[0] & held[1]


def test_an_undemanding_reservation_leaves_the_only_host_that_another_can_use(
    story: Story,
) -> None:
    demanding = host_reservation(1, 1, hypervisor_properties=BIG)
    lease = story.reserve(reservations=[host_reservation(3, 3), demanding])
    second = lease["reservations"][1]["id"]
    found = story.ok("GET", f"/v1/os-hosts/allocations?reservation_id={second}")["allocations"]
    assert [host["resource_id"] for host in found if host["reservations"]] == ["4"]


def test_reservations_are_answered_in_the_order_they_were_asked_for(
    story_everywhere: Story,
) -> None:
    asked = [host_reservation(1, maximum) for maximum in (3, 1, 2)]
    lease = story_everywhere.reserve(reservations=asked)
    shown = story_everywhere.lease(lease["id"])["reservations"]
    assert [reservation["max"] for reservation in shown] == [3, 1, 2]


def test_the_types_that_can_be_reserved_are_listed(story: Story) -> None:
    assert story.ok("GET", "/v1/plugins", token="bob:lab:reader") == {"plugins": ["physical:host"]}
