"""Admission of hosts: no overlap, cleaning times, all or nothing, one winner of a race."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.tables.leases import AllocationRow, ResourceRow
from tests.conftest import MakeStory
from tests.support.bodies import ONLY_SIM_4, put, rejected_put
from tests.support.service import Story, host_reservation

ALL = host_reservation(4, 4)


def request(story: Story, start: float = 60, end: float = 120, *reservations: Any) -> int:
    """Request hosts (one by default) and return the status of the answer."""
    body = story.lease_body(start, end, reservations=list(reservations or [host_reservation()]))
    return story.call("POST", "/v1/leases", body).status_code


def test_leases_of_a_host_may_touch_and_never_overlap(story_everywhere: Story) -> None:
    story = story_everywhere
    assert request(story, 60, 120, ALL) == 201
    for start, end in [
        *((119, 180), (30, 61), (60, 120), (80, 90), (59, 121), (60, 61), (119, 120))
    ]:
        assert request(story, start, end) == 409, (start, end)
    assert request(story, 180, 240, ALL) == 201
    assert request(story, 120, 181, ALL) == 409
    assert request(story, 120, 180, ALL) == 201
    assert request(story, 30, 60, ALL) == 201


def test_one_of_ten_concurrent_requests_gets_the_last_host(story_everywhere: Story) -> None:
    story = story_everywhere
    story.reserve(60, 120, reservations=[host_reservation(3, 3)])
    body = story.lease_body(60, 120)

    def post(_number: int) -> int:
        client = story.http.application.test_client()
        return client.post("/v1/leases", json=body).status_code

    with ThreadPoolExecutor(10) as pool:
        assert sorted(pool.map(post, range(10))) == [201] + [409] * 9


def test_admits_a_lease_as_a_whole_or_not_at_all(story_everywhere: Story) -> None:
    story = story_everywhere
    assert request(story, 60, 120, host_reservation(), host_reservation(9, 9)) == 409
    assert story.ok("GET", "/v1/leases") == {"leases": []}
    found = story.ok("GET", "/v1/os-hosts/allocations")["allocations"]
    assert [host["reservations"] for host in found] == [[]] * 4
    assert (story.published(), story.cloud.effects()) == ([], [])


def test_gives_each_reservation_other_hosts_up_to_its_maximum(story: Story) -> None:
    def hosts(lease: dict[str, Any]) -> list[set[str]]:
        held: list[set[str]] = []
        for reservation in lease["reservations"]:
            path = f"/v1/os-hosts/allocations?reservation_id={reservation['id']}"
            found = story.ok("GET", path)["allocations"]
            held.append({host["resource_id"] for host in found if host["reservations"]})
        story.ok("DELETE", f"/v1/leases/{lease['id']}")
        return held

    pair = hosts(story.reserve(reservations=[host_reservation(2, 2)] * 2))
    assert [len(ids) for ids in pair] == [2, 2]
    assert not pair[0] & pair[1]
    demanding = host_reservation(1, 1, hypervisor_properties=ONLY_SIM_4)
    assert hosts(story.reserve(reservations=[host_reservation(3, 3), demanding]))[1] == {"4"}
    first, second = (story.reserve(reservations=[host_reservation(1, 3)]) for _ in range(2))
    assert [len(story.hosts_of(lease["id"])) for lease in (first, second)] == [3, 1]


def test_never_gives_a_host_that_is_not_reservable(story: Story) -> None:
    away = sa.update(ResourceRow).where(ResourceRow.id == 2)
    story.runtime.database.write(lambda session: session.execute(away.values(reservable=False)))
    assert request(story, 60, 120, ALL) == 409
    lease = story.reserve(reservations=[host_reservation(1, 4)])
    assert story.hosts_of(lease["id"]) == ["1", "3", "4"]
    assert story.ok("GET", "/v1/os-hosts/2")["host"]["reservable"] is False


# Cleaning time.


@pytest.fixture
def cleaned(make_story: MakeStory) -> Story:
    """Return a service with one host and a cleaning time of half an hour."""
    story = make_story(DEFAULT__cleaning_time=30)
    story.register(1)
    return story


def test_keeps_a_host_free_for_cleaning_before_and_after_each_lease(cleaned: Story) -> None:
    lease = cleaned.reserve(120, 180)
    shown = cleaned.ok("GET", "/v1/os-hosts/allocations")["allocations"][0]["reservations"]
    dates = [(item["start_date"], item["end_date"]) for item in shown]
    assert dates == [(lease["start_date"], lease["end_date"])]
    assert request(cleaned, 60, 91) == 409
    assert request(cleaned, 209, 240) == 409
    assert request(cleaned, 210, 240) == 201
    before = cleaned.reserve(0, 60)
    cleaned.run()
    rejected_put(cleaned, before, 409, end_date=cleaned.date(91))
    put(cleaned, before, end_date=cleaned.date(90))
    later = cleaned.reserve(300, 360)
    rejected_put(cleaned, later, 409, start_date=cleaned.date(269))
    put(cleaned, later, start_date=cleaned.date(270))


@pytest.mark.parametrize(
    ("ends", "free_in"),
    [("deleted", 30), ("deleted late", 30), ("shortened", 30), ("over", 20), ("pending", 0)],
)
def test_a_lease_that_ends_early_blocks_its_host_for_the_cleaning_only(
    cleaned: Story, ends: str, free_in: int
) -> None:
    lease = cleaned.reserve(0, 60 if ends == "over" else 240)
    path = f"/v1/leases/{lease['id']}"
    if ends != "pending":
        cleaned.run()
    if ends == "over":
        cleaned.at(60)
    if ends in {"deleted", "shortened", "over"}:
        cleaned.clock.advance(600)
    if ends == "shortened":
        cleaned.ok("PUT", path, {"end_date": "now"})
    else:
        cleaned.ok("DELETE", path)
    if ends == "deleted late":  # the cleaning begins when a manager has ended the lease
        cleaned.clock.advance(600)
    cleaned.run()
    if ends != "shortened":
        cleaned.refused(404, "GET", path)
    if free_in:
        assert request(cleaned, free_in - 1, free_in) == 409
    assert request(cleaned, free_in, free_in + 1) == 201


def test_removes_the_allocations_of_a_deleted_lease_after_the_cleaning(cleaned: Story) -> None:
    lease = cleaned.reserve(0, 240)
    cleaned.run()
    cleaned.ok("DELETE", f"/v1/leases/{lease['id']}")
    cleaned.run()
    cleaned.clock.advance(30 * 60)
    cleaned.dispatcher.upkeep.tidy()
    with cleaned.runtime.database.read() as session:
        assert session.scalars(sa.select(AllocationRow)).all() == []
