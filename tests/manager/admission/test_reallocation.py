"""Which hosts a changed reservation keeps, gains and gives up."""

from typing import Any

from tests.support.bodies import ONLY_SIM_4, change_of, pool_of, put, rejected_put
from tests.support.service import Story, host_reservation

NO_HOSTS = "Not enough hosts available"


def active(story: Story, minimum: int, maximum: int, end: float = 240) -> dict[str, Any]:
    lease = story.reserve(0, end, reservations=[host_reservation(minimum, maximum)])
    story.run()
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    return lease


def test_a_pending_reservation_grows_shrinks_and_changes_hosts(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve()
    first, *_, last = sorted(host["id"] for host in story.ok("GET", "/v1/os-hosts")["hosts"])
    smaller = '["<", "$vcpus", "64"]'
    assert len(story.hosts_of(lease["id"])) == 1
    for fields, count in (({"min": 2, "max": 4}, 4), ({"min": 1, "max": 2}, 2), ({"max": 1}, 1)):
        put(story, lease, reservations=change_of(lease, **fields))
        assert len(story.hosts_of(lease["id"])) == count
    put(story, lease, reservations=change_of(lease, max=4, hypervisor_properties=smaller))
    assert len(story.hosts_of(lease["id"])) == 3
    assert first in story.hosts_of(lease["id"])
    put(story, lease, reservations=change_of(lease, hypervisor_properties=ONLY_SIM_4))
    assert story.hosts_of(lease["id"]) == [last]
    assert story.cloud.effects() == []


def test_a_pending_lease_keeps_hosts_that_still_fit(story: Story) -> None:
    other = story.reserve(60, 240, reservations=[host_reservation(2, 2)])
    lease = story.reserve(60, 240, reservations=[host_reservation(2, 4)])
    held = story.hosts_of(lease["id"])
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    # Shorter dates free the rest of the time and keep the hosts.
    put(story, lease, start_date=story.date(100), end_date=story.date(200))
    assert story.hosts_of(lease["id"]) == held
    for start, end in ((60, 100), (200, 240)):
        gap = story.reserve(start, end, reservations=[host_reservation(4, 4)])
        story.ok("DELETE", f"/v1/leases/{gap['id']}")
    put(story, lease, reservations=change_of(lease, max=3))
    assert set(held) <= set(story.hosts_of(lease["id"]))
    put(story, lease, start_date=story.date(90), end_date=story.date(300))
    assert set(held) <= set(story.hosts_of(lease["id"]))


def test_an_impossible_change_leaves_the_whole_lease_unchanged(story_everywhere: Story) -> None:
    story = story_everywhere
    pair = [host_reservation(1, 1), host_reservation(1, 1)]
    lease = story.reserve(reservations=pair, name="before")
    first, second = (reservation["id"] for reservation in lease["reservations"])
    changes = [{"id": first, "min": 2, "max": 2}, {"id": second, "min": 3, "max": 3}]
    fields = {"name": "after", "end_date": story.date(300), "reservations": changes}
    assert rejected_put(story, lease, 409, **fields).startswith(NO_HOSTS)
    story.reserve(180, 240, reservations=[host_reservation(3, 3)])
    story.ok("DELETE", f"/v1/leases/{lease['id']}")
    single = story.reserve(60, 120, reservations=[host_reservation(2, 2)])
    message = rejected_put(story, single, 409, end_date=story.date(181))
    assert message.startswith(NO_HOSTS)
    assert "1 of them free" in message


def test_a_moved_lease_gets_other_hosts_if_its_own_are_taken(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = story.reserve(60, 120, reservations=[host_reservation(2, 2)])
    other = story.reserve(180, 240, reservations=[host_reservation(2, 2)])
    put(story, lease, start_date=story.date(180), end_date=story.date(240))
    assert not set(story.hosts_of(lease["id"])) & set(story.hosts_of(other["id"]))
    whole = story.reserve(60, 120, reservations=[host_reservation(4, 4)])
    put(story, whole, start_date=story.date(61), end_date=story.date(121))  # over its own time
    assert len(story.hosts_of(whole["id"])) == 4


def test_an_active_reservation_gains_free_hosts_and_loses_none(story: Story) -> None:
    lease = active(story, 1, 1, end=60)
    assert len(pool_of(story, lease)) == 1
    other = story.reserve(0, 60, reservations=[host_reservation(1, 1)])
    put(story, lease, reservations=change_of(lease, min=2, max=4))
    story.run()
    held = pool_of(story, lease)
    assert (len(held), len(story.hosts_of(lease["id"]))) == (3, 3)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"min": 1, "max": 1}, "is in use with 3 hosts, and the change would leave it only 1"),
        ({"max": 2, "min": 2}, "is in use with 3 hosts, and the change would leave it only 2"),
        ({"hypervisor_properties": ONLY_SIM_4, "min": 1}, NO_HOSTS),
        ({"min": 5, "max": 5}, NO_HOSTS),
    ]
    for fields, reason in cases:
        message = rejected_put(story, lease, 409, reservations=change_of(lease, **fields))
        assert reason in message
    # Other dates give it no more hosts.
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    story.run()
    put(story, lease, end_date=story.date(120))
    story.run()
    assert pool_of(story, lease) == held
    assert story.lease(lease["id"])["status"] == "ACTIVE"
    story.at(120)
    assert story.lease(lease["id"])["status"] == "TERMINATED"
    assert pool_of(story, lease) == []
    assert story.cloud._state.holder == {}


def test_an_active_lease_cannot_last_into_another_booking(story_everywhere: Story) -> None:
    story = story_everywhere
    lease = active(story, 4, 4, end=60)
    other = story.reserve(120, 180)
    put(story, lease, end_date=story.date(120))
    rejected_put(story, lease, 409, end_date=story.date(121))
    story.ok("DELETE", f"/v1/leases/{other['id']}")
    put(story, lease, end_date=story.date(121))
