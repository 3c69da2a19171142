"""PUT /v1/leases/ID with reservations or dates: which hosts are kept, gained and given up."""

from typing import Any

import pytest

from tests.conftest import MakeStory
from tests.support.service import Story, host_reservation

BIG = '["==", "$vcpus", "64"]'  # of sim-1 .. sim-4 only sim-4


def put(story: Story, lease: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Change the lease and return it."""
    return story.ok("PUT", f"/v1/leases/{lease['id']}", fields)["lease"]


def change(lease: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """Return a change of the lease's first reservation."""
    return [{"id": lease["reservations"][0]["id"], **fields}]


def everything(story: Story) -> list[Any]:
    """Return all that a refused request must leave alone."""
    return [
        story.ok("GET", "/v1/leases"),
        story.ok("GET", "/v1/os-hosts/allocations"),
        story.published(),
        story.cloud.effects(),
    ]


def refused(story: Story, lease: dict[str, Any], status: int, **fields: Any) -> str:
    """Try a change that must be refused, and must change nothing at all."""
    before = everything(story)
    message = story.refused(status, "PUT", f"/v1/leases/{lease['id']}", fields)
    assert everything(story) == before
    return message


def active(story: Story, minimum: int, maximum: int, end: float = 240) -> dict[str, Any]:
    """Return a lease that has started."""
    lease = story.reserve(0, end, reservations=[host_reservation(minimum, maximum)])
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    return lease


def pool(story: Story, lease: dict[str, Any]) -> list[str]:
    """Return the hosts that were handed over to the lease's first reservation."""
    return list(story.cloud.pool_hosts(lease["reservations"][0]["id"]))


def test_a_reservation_is_named_by_its_id(story: Story) -> None:
    lease, other = story.reserve(), story.reserve()
    for reservation, message in (
        ({"min": 1}, "Missing parameter"),
        ({"id": None, "min": 1}, "id"),
        ({"id": "nope"}, "nope"),
        ({"id": other["reservations"][0]["id"]}, other["reservations"][0]["id"]),
    ):
        assert message in refused(story, lease, 400, reservations=[reservation])


def test_reservations_are_a_list_of_objects(story: Story) -> None:
    lease = story.reserve()
    for value in [None, {}, "x", [1], [None]]:
        assert "reservations" in refused(story, lease, 400, reservations=value)


@pytest.mark.parametrize("kind", ["virtual:instance", "no:such", ""])
@pytest.mark.parametrize("start", [0, 60])
def test_the_resource_type_cannot_change(story: Story, kind: str, start: int) -> None:
    lease = story.reserve(start, 240)
    story.run()
    refused(story, lease, 409, reservations=change(lease, resource_type=kind))


def test_the_resource_type_may_be_repeated(story: Story) -> None:
    lease = story.reserve()
    put(story, lease, reservations=change(lease, resource_type="physical:host", max=2))
    assert len(story.hosts_of(lease["id"])) == 2


def test_the_new_parameters_are_checked_with_those_that_stay(story: Story) -> None:
    lease = story.reserve(reservations=[host_reservation(1, 2)])
    for fields in [
        {"min": 3},
        {"max": 0},
        {"min": "x"},
        {"max": ""},
        {"before_end": "x"},
        {"hypervisor_properties": '["=="]'},
        {"resource_properties": '["==", "$nope", "1"]'},
    ]:
        refused(story, lease, 400, reservations=change(lease, **fields))


def test_parameters_that_are_not_named_stay(story: Story) -> None:
    lease = story.reserve(reservations=[host_reservation(1, 1, hypervisor_properties=BIG)])
    reservation = put(story, lease, reservations=change(lease, max=2))["reservations"][0]
    assert reservation == {
        **lease["reservations"][0],
        "max": 2,
        "updated_at": "2030-01-15 12:00:00",
    }


def test_a_pending_reservation_grows_and_shrinks(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve()
    first = story.hosts_of(lease["id"])
    put(story, lease, reservations=change(lease, min=2, max=4))
    assert len(story.hosts_of(lease["id"])) == 4
    put(story, lease, reservations=change(lease, min=1, max=2))
    assert len(story.hosts_of(lease["id"])) == 2
    put(story, lease, reservations=change(lease, max=1))
    assert len(story.hosts_of(lease["id"])) == 1
    assert len(first) == 1
    assert story.cloud.effects() == []


def test_a_pending_reservation_gets_other_hosts_for_other_properties(story: Story) -> None:
    lease = story.reserve(reservations=[host_reservation(2, 3, hypervisor_properties="")])
    smaller = '["<", "$vcpus", "64"]'
    put(story, lease, reservations=change(lease, hypervisor_properties=smaller))
    assert story.hosts_of(lease["id"]) == ["1", "2", "3"]
    put(story, lease, reservations=change(lease, min=1, hypervisor_properties=BIG))
    assert story.hosts_of(lease["id"]) == ["4"]


def test_a_pending_lease_keeps_the_hosts_that_still_fit(story: Story) -> None:
    lease = story.reserve(60, 120, reservations=[host_reservation(2, 2)])
    held = story.hosts_of(lease["id"])
    put(story, lease, reservations=change(lease, max=3))
    assert set(held) < set(story.hosts_of(lease["id"]))
    put(story, lease, start_date=story.date(90), end_date=story.date(200))
    assert set(held) < set(story.hosts_of(lease["id"]))


def test_growth_that_is_impossible_changes_nothing_of_the_lease(story_everywhere: Story) -> None:
    story = story_everywhere
    pair = [host_reservation(1, 1), host_reservation(1, 1)]
    lease = story.reserve(reservations=pair, name="before")
    ids = [reservation["id"] for reservation in lease["reservations"]]
    message = refused(
        story,
        lease,
        409,
        name="after",
        end_date=story.date(300),
        reservations=[{"id": ids[0], "min": 2, "max": 2}, {"id": ids[1], "min": 3, "max": 3}],
    )
    assert message.startswith("Not enough hosts available")


def test_a_pending_lease_moves_to_other_hosts_where_its_own_are_taken(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120, reservations=[host_reservation(2, 2)])
    other = story.reserve(180, 240, reservations=[host_reservation(2, 2)])
    put(story, lease, start_date=story.date(180), end_date=story.date(240))
    assert not set(story.hosts_of(lease["id"])) & set(story.hosts_of(other["id"]))
    third = story.lease_body(60, 120, reservations=[host_reservation(4, 4)])
    story.ok("POST", "/v1/leases", third)


def test_a_lease_may_move_onto_its_own_former_time(story: Story) -> None:
    lease = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    put(story, lease, start_date=story.date(61), end_date=story.date(121))
    assert len(story.hosts_of(lease["id"])) == 4


def test_a_pending_lease_cannot_move_to_where_there_are_too_few(story: Story) -> None:
    story.reserve(180, 240, reservations=[host_reservation(3, 3)])
    lease = story.reserve(60, 120, reservations=[host_reservation(2, 2)])
    message = refused(story, lease, 409, end_date=story.date(181))
    assert message.startswith("Not enough hosts available")
    assert "1 of them free" in message


def test_shrinking_the_dates_of_a_lease_gives_up_the_time_and_keeps_the_hosts(
    story: Story,
) -> None:
    other = story.reserve(60, 240, reservations=[host_reservation(3, 3)])
    lease = story.reserve(60, 240, reservations=[host_reservation(1, 4)])
    held = story.hosts_of(lease["id"])
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    put(story, lease, start_date=story.date(100), end_date=story.date(200))
    assert story.hosts_of(lease["id"]) == held
    for start, end in ((60, 100), (200, 240)):
        story.reserve(start, end, reservations=[host_reservation(4, 4)])


def test_an_active_reservation_grows_at_once(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = active(story, 1, 1)
    put(story, lease, reservations=change(lease, min=2, max=3))
    assert len(story.hosts_of(lease["id"])) == 3
    story.run()
    assert len(pool(story, lease)) == 3
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_an_active_reservation_takes_what_is_free_up_to_its_maximum(story: Story) -> None:
    lease = active(story, 1, 1)
    story.reserve(60, 120, reservations=[host_reservation(2, 2)])
    put(story, lease, reservations=change(lease, max=4))
    assert len(story.hosts_of(lease["id"])) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"min": 1, "max": 1},
        {"max": 2, "min": 2},
        {"hypervisor_properties": BIG, "min": 1},
        {"min": 5, "max": 5},
    ],
)
def test_an_active_reservation_never_loses_hosts(story: Story, fields: dict[str, Any]) -> None:
    lease = active(story, 1, 3)
    held = pool(story, lease)
    message = refused(story, lease, 409, reservations=change(lease, **fields))
    assert message.startswith("Not enough hosts available")
    story.run()
    assert pool(story, lease) == held
    assert story.lease(lease["id"])["status"] == "ACTIVE"


def test_an_active_lease_cannot_be_prolonged_over_another_booking(
    story_everywhere: Story,
) -> None:
    story = story_everywhere
    lease = active(story, 4, 4, end=60)
    other = story.reserve(120, 180)
    put(story, lease, end_date=story.date(120))
    refused(story, lease, 409, end_date=story.date(121))
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    put(story, lease, end_date=story.date(121))


def test_prolonging_an_active_lease_gives_it_no_more_hosts(story: Story) -> None:
    first = story.reserve(0, 60, reservations=[host_reservation(3, 3)])
    lease = active(story, 1, 4, end=60)
    assert len(pool(story, lease)) == 1
    story.ok("DELETE", f"/v1/leases/{first['id']}")
    story.run()
    put(story, lease, end_date=story.date(120))
    story.run()
    assert len(pool(story, lease)) == 1


def test_what_an_active_reservation_gained_is_taken_back_at_its_end(story: Story) -> None:
    lease = active(story, 1, 1, end=60)
    put(story, lease, reservations=change(lease, max=4))
    story.run()
    assert len(pool(story, lease)) == 4
    story.at(60)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert pool(story, lease) == []
    assert story.cloud._world.holder == {}


def test_a_lease_in_error_gets_no_more_hosts_but_can_be_renamed_and_ended(
    make_story: MakeStory,
) -> None:
    story = make_story(simulated__failure_rate=1.0, manager__event_max_retries=0)
    story.register(2)
    lease = story.reserve(0, 120)
    story.run()
    assert story.lease(lease["id"])["status"] == "ERROR"
    more = {"reservations": [{"id": lease["reservations"][0]["id"], "max": 2}]}
    assert "ERROR" in story.refused(409, "PUT", f"/v1/leases/{lease['id']}", more)
    story.ok("PUT", f"/v1/leases/{lease['id']}", {"name": "renamed", "end_date": story.date(60)})
