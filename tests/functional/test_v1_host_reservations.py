"""POST /v1/leases with physical:host: how many hosts, which ones, and what they are asked for."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.tables import ResourceRow
from tests.support.service import Story, host_reservation

MakeStory = Callable[..., Story]


def request(story: Story, start: float = 60, end: float = 120, **reservation: Any) -> int:
    """Ask for hosts and return the status of the answer."""
    body = story.lease_body(start, end, reservations=[host_reservation(**reservation)])
    return story.call("POST", "/v1/leases", body).status_code


def test_numbers_of_hosts_out_of_range_are_refused(story: Story) -> None:
    for minimum, maximum in [
        (2, 1),
        (0, 1),
        (-1, 1),
        (0, 0),
        ("0", "1"),
        ("-1", 1),
        (1, 0),
        (1, 10**30),
        (10**30, 10**30),
    ]:
        assert request(story, minimum=minimum, maximum=maximum) == 400


def test_what_is_no_whole_number_is_refused(story: Story) -> None:
    for key in ["min", "max"]:
        for value in ["foo", "", " ", "1.5", "1e3", 1.5, 1.0, True, None, [1], {}]:
            body = story.lease_body(reservations=[host_reservation(**{key: value})])
            message = story.refused(400, "POST", "/v1/leases", body)
            assert message.startswith(f"Malformed parameter {key}")


def test_numbers_may_be_sent_as_text(story: Story) -> None:
    lease = story.reserve(reservations=[host_reservation("1", "2")])
    reservation = lease["reservations"][0]
    assert (reservation["min"], reservation["max"]) == (1, 2)


def test_each_parameter_is_required(story: Story) -> None:
    for key in ["min", "max", "hypervisor_properties", "resource_properties"]:
        reservation = host_reservation()
        del reservation[key]
        body = story.lease_body(reservations=[reservation])
        assert story.refused(400, "POST", "/v1/leases", body) == f"Missing parameter {key}"


def test_a_fault_in_a_later_reservation_says_in_which(story: Story) -> None:
    body = story.lease_body(reservations=[host_reservation(), host_reservation("x")])
    assert "reservations[1]" in story.refused(400, "POST", "/v1/leases", body)


@pytest.mark.parametrize("value", [None, "", [], "[]"])
def test_empty_properties_accept_every_host(story: Story, value: Any) -> None:
    wanted = {"hypervisor_properties": value, "resource_properties": value}
    lease = story.reserve(reservations=[host_reservation(4, 4, **wanted)])
    assert len(story.hosts_of(lease["id"])) == 4


def test_an_unknown_before_end_is_refused(story: Story) -> None:
    for value in ["other", "DEFAULT", 5, True, ["snapshot"]]:
        body = story.lease_body(reservations=[host_reservation(before_end=value)])
        assert "before_end" in story.refused(400, "POST", "/v1/leases", body)


@pytest.mark.parametrize(
    ("asked", "configured", "shown", "snapshots"),
    [
        ({}, "", "default", 0),
        ({}, "snapshot", "default", 1),
        ({"before_end": None}, "snapshot", "default", 1),
        ({"before_end": "default"}, "snapshot", "default", 1),
        ({"before_end": ""}, "snapshot", "", 0),
        ({"before_end": "snapshot"}, "", "snapshot", 1),
    ],
)
def test_before_end_keeps_images_if_asked_or_configured(
    make_story: MakeStory, asked: dict[str, Any], configured: str, shown: str, snapshots: int
) -> None:
    story = make_story(**{"physical:host__before_end": configured})
    story.register(1)
    lease = story.reserve(0, 120, reservations=[host_reservation(**asked)])
    assert lease["reservations"][0]["before_end"] == shown
    story.run()
    story.cloud.boot_server("sim-1", "vm")
    story.at(60)
    effects = [effect for effect in story.cloud.effects() if effect["effect"] == "snapshot"]
    assert len(effects) == snapshots


def test_as_many_hosts_as_are_free_are_given_up_to_the_maximum(story: Story) -> None:
    first = story.reserve(reservations=[host_reservation(1, 3)])
    second = story.reserve(reservations=[host_reservation(1, 3)])
    assert len(story.hosts_of(first["id"])) == 3
    assert len(story.hosts_of(second["id"])) == 1


def test_too_few_hosts_are_refused_with_numbers_that_explain(story_everywhere: Story) -> None:
    story = story_everywhere
    story.reserve(reservations=[host_reservation(2, 2)])
    wanted = host_reservation(3, 4, resource_properties='["<=", "$vcpus", "64"]')
    body = story.lease_body(60, 120, reservations=[wanted])
    response = story.call("POST", "/v1/leases", body)
    assert response.status_code == 409
    assert response.headers["Climate-Error-Code"] == "not_enough_resources"
    message = response.get_json()["error_message"]
    assert message.startswith("Not enough hosts available")
    assert "at least 3 asked for" in message
    assert "4 match the requirements" in message
    assert "2 of them free from 2030-01-15 13:00 to 2030-01-15 14:00" in message
    assert len(story.ok("GET", "/v1/leases")["leases"]) == 1


def test_leases_of_one_host_may_touch(story_everywhere: Story) -> None:
    everything = {"minimum": 4, "maximum": 4}
    assert request(story_everywhere, 60, 120, **everything) == 201
    assert request(story_everywhere, 120, 180, **everything) == 201
    assert request(story_everywhere, 30, 60, **everything) == 201


@pytest.mark.parametrize(
    ("start", "end"), [(119, 180), (30, 61), (60, 120), (80, 90), (59, 121), (60, 61), (119, 120)]
)
def test_leases_of_one_host_never_overlap(story: Story, start: float, end: float) -> None:
    assert request(story, 60, 120, minimum=4, maximum=4) == 201
    assert request(story, start, end) == 409


def test_a_gap_between_two_leases_can_be_filled(story: Story) -> None:
    everything = {"minimum": 4, "maximum": 4}
    assert request(story, 60, 120, **everything) == 201
    assert request(story, 180, 240, **everything) == 201
    assert request(story, 120, 181, **everything) == 409
    assert request(story, 120, 180, **everything) == 201


def test_an_unreservable_host_is_never_given(story_everywhere: Story) -> None:
    story = story_everywhere
    hosts = story.ok("GET", "/v1/os-hosts")["hosts"]
    away = sa.update(ResourceRow).where(ResourceRow.id == int(hosts[1]["id"]))
    story.runtime.database.write(lambda session: session.execute(away.values(reservable=False)))
    assert request(story, minimum=4, maximum=4) == 409
    lease = story.reserve(reservations=[host_reservation(1, 4)])
    assert story.hosts_of(lease["id"]) == [host["id"] for host in (hosts[0], *hosts[2:])]
    assert story.ok("GET", f"/v1/os-hosts/{hosts[1]['id']}")["host"]["reservable"] is False
