"""Cleaning time: how long hosts stay free between leases, on both sides and after any end."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from climate.db.tables import AllocationRow
from tests.support.service import Story, host_reservation

MakeStory = Callable[..., Story]


@pytest.fixture
def cleaned(make_story: MakeStory) -> Story:
    """Return a service with one host and half an hour of cleaning."""
    story = make_story(DEFAULT__cleaning_time=30)
    story.register(1)
    return story


def request(story: Story, start: float, end: float) -> int:
    """Ask for the host from ``start`` to ``end`` minutes from now; return the status."""
    return story.call("POST", "/v1/leases", story.lease_body(start, end)).status_code


def next_start(story: Story) -> int:
    """Return in how many minutes the host can be had again."""
    for minutes in range(300):
        if request(story, minutes, minutes + 1) == 201:
            return minutes
    raise AssertionError("not within five hours")


def test_the_next_lease_starts_after_the_cleaning(cleaned: Story) -> None:
    cleaned.reserve(60, 120)
    assert request(cleaned, 149, 180) == 409
    assert request(cleaned, 150, 180) == 201


def test_a_lease_before_another_leaves_time_to_clean(cleaned: Story) -> None:
    cleaned.reserve(120, 180)
    assert request(cleaned, 60, 91) == 409
    assert request(cleaned, 60, 90) == 201


def test_prolonging_respects_the_cleaning_before_the_neighbour(cleaned: Story) -> None:
    path = f"/v1/leases/{cleaned.reserve(0, 60)['id']}"
    cleaned.reserve(120, 180)
    cleaned.run()
    cleaned.refused(409, "PUT", path, {"end_date": cleaned.date(91)})
    cleaned.ok("PUT", path, {"end_date": cleaned.date(90)})


def test_moving_respects_the_cleaning_after_the_neighbour(cleaned: Story) -> None:
    cleaned.reserve(60, 120)
    path = f"/v1/leases/{cleaned.reserve(180, 240)['id']}"
    cleaned.refused(409, "PUT", path, {"start_date": cleaned.date(149)})
    cleaned.ok("PUT", path, {"start_date": cleaned.date(150)})


def test_a_deleted_active_lease_blocks_its_host_for_the_cleaning_only(cleaned: Story) -> None:
    lease = cleaned.reserve(0, 240)
    cleaned.run()
    cleaned.clock.advance(600)
    cleaned.ok("DELETE", f"/v1/leases/{lease['id']}")
    cleaned.run()
    cleaned.refused(404, "GET", f"/v1/leases/{lease['id']}")
    assert next_start(cleaned) == 30


def test_the_cleaning_of_a_deleted_lease_begins_when_it_has_ended(cleaned: Story) -> None:
    lease = cleaned.reserve(0, 240)
    cleaned.run()
    cleaned.ok("DELETE", f"/v1/leases/{lease['id']}")
    cleaned.clock.advance(600)
    cleaned.run()
    assert next_start(cleaned) == 30


def test_a_lease_that_ends_early_blocks_its_host_for_the_cleaning_only(cleaned: Story) -> None:
    lease = cleaned.reserve(0, 240)
    cleaned.run()
    cleaned.clock.advance(600)
    cleaned.ok("PUT", f"/v1/leases/{lease['id']}", {"end_date": "now"})
    cleaned.run()
    assert cleaned.lease(lease["id"])["status"] == "TERMINATED"
    assert next_start(cleaned) == 30


def test_deleting_a_lease_that_is_over_does_not_prolong_its_cleaning(cleaned: Story) -> None:
    lease = cleaned.reserve(0, 60)
    cleaned.run()
    cleaned.at(60)
    cleaned.clock.advance(600)
    cleaned.ok("DELETE", f"/v1/leases/{lease['id']}")
    assert next_start(cleaned) == 20


def test_a_lease_that_never_started_needs_no_cleaning(cleaned: Story) -> None:
    lease = cleaned.reserve(0, 240)
    cleaned.ok("DELETE", f"/v1/leases/{lease['id']}")
    assert next_start(cleaned) == 0


def test_no_trace_is_left_of_a_deleted_lease_after_its_cleaning(cleaned: Story) -> None:
    lease = cleaned.reserve(0, 240)
    cleaned.run()
    cleaned.ok("DELETE", f"/v1/leases/{lease['id']}")
    cleaned.run()
    cleaned.clock.advance(30 * 60)
    cleaned.dispatcher.tidy()
    with cleaned.runtime.database.read() as session:
        assert session.scalars(sa.select(AllocationRow)).all() == []


def test_allocations_show_the_lease_without_its_cleaning(cleaned: Story) -> None:
    lease = cleaned.reserve(60, 120, reservations=[host_reservation()])
    shown = cleaned.ok("GET", "/v1/os-hosts/allocations")["allocations"][0]["reservations"]
    assert [(one["start_date"], one["end_date"]) for one in shown] == [
        (lease["start_date"], lease["end_date"])
    ]
