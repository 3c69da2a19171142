"""The self-audit finds each violated invariant and announces each change once."""

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.tables.leases import (
    AllocationRow,
    EventRow,
    InventoryRow,
    LeaseRow,
    ReservationRow,
    ResourceRow,
)
from climate.db.tables.notifications import OutboxRow, RelayRow
from climate.db.tables.waiting import WaitRow
from climate.manager.audit.cloud import audit
from climate.manager.audit.invariants import check_once, violations
from tests.support import allocation_guard as guard
from tests.support import rows, servers
from tests.support.service import Story, hosts
from tests.support.waiting import rules, wait_for

Break = Callable[[Story], None]


def sql(story: Story, *statements: sa.Executable) -> None:
    def work(session: Any) -> None:
        for statement in statements:
            session.execute(statement)

    story.runtime.database.write(work)


def book_a_host_twice(story: Story) -> None:
    guard.drop(story.runtime.database)
    story.reserve()
    story.reserve()
    first = sa.select(sa.func.min(ResourceRow.id)).scalar_subquery()
    sql(story, sa.update(AllocationRow).values(resource_id=first))


def exceed_the_capacity(story: Story) -> None:
    share = {"resource_class": "VCPU", "amount": 1}
    story.reserve()
    sql(story, sa.delete(InventoryRow), sa.update(AllocationRow).values(**share))


def lose_an_end(story: Story) -> None:
    story.reserve()
    sql(story, sa.delete(EventRow).where(EventRow.kind == "end_lease"))


def move_an_end(story: Story) -> None:
    story.reserve()
    late = {"due_at": story.clock.now()}
    sql(story, sa.update(EventRow).where(EventRow.kind == "end_lease").values(**late))


def postpone_a_release(story: Story) -> None:
    story.ok("POST", "/v2/offers", story.asking())
    late = {"due_at": story.clock.now() + dt.timedelta(hours=1)}
    sql(story, sa.update(EventRow).where(EventRow.kind == "release_lease").values(**late))


def keep_an_expired_offer(story: Story) -> None:
    story.ok("POST", "/v2/offers", story.asking(120, 180))
    sql(story, sa.update(EventRow).where(EventRow.kind == "release_lease").values(attempt=1))
    story.clock.advance(901)


def lose_a_place(story: Story) -> None:
    _wait(story)
    sql(story, sa.delete(WaitRow).where(WaitRow.promised_start.is_(None)))


def book_for_a_waiting_lease(story: Story) -> None:
    _wait(story)
    waits = sa.select(WaitRow.lease_id).where(WaitRow.promised_start.is_(None))
    reservation = sa.select(ReservationRow.id).where(ReservationRow.lease_id.in_(waits))
    far = story.clock.now() + dt.timedelta(days=99)
    booking = sa.insert(AllocationRow).values(
        reservation_id=reservation.scalar_subquery(),
        resource_id=sa.select(sa.func.min(ResourceRow.id)).scalar_subquery(),
        start_at=far,
        busy_until=far + dt.timedelta(hours=1),
    )
    sql(story, booking)


def _wait(story: Story) -> None:
    """Book all hosts, and let a lease wait for one."""
    rules(story, promises=0)
    story.ok("POST", "/v2/leases", story.asking(0, 60, reservations=[hosts(4, 4)]))
    wait_for(story, 1, 30)


def claim_without_an_owner(story: Story) -> None:
    story.reserve()
    claimed = {"status": "IN_PROGRESS", "owner": None}
    sql(story, sa.update(EventRow).where(EventRow.kind == "start_lease").values(**claimed))


def never_run_an_event(story: Story) -> None:
    story.reserve(0, 600)
    story.clock.advance(660)


def lose_a_number(story: Story) -> None:
    for at in (60, 180, 300):
        story.reserve(at, at + 60)
    story.relay.flush()
    sql(story, sa.delete(OutboxRow).where(OutboxRow.seq == 2))


def use_a_number_too_high(story: Story) -> None:
    story.reserve()
    story.relay.flush()
    sql(story, sa.update(RelayRow).values(last_seq=0))


def change_without_a_notification(story: Story) -> None:
    story.reserve()
    later = story.clock.now() + dt.timedelta(hours=3)
    sql(
        story,
        sa.update(LeaseRow).values(end_at=later),
        sa.update(AllocationRow).values(busy_until=later),
        sa.update(EventRow).where(EventRow.kind == "end_lease").values(due_at=later),
    )


def create_without_a_notification(story: Story) -> None:
    story.reserve(180, 240)
    story.clock.advance(1)
    lease = story.reserve()
    sql(story, sa.delete(OutboxRow).where(OutboxRow.lease_id == lease["id"]))


def remove_an_allocation(story: Story) -> None:
    story.reserve()
    sql(story, sa.delete(AllocationRow))


def shorten_an_allocation(story: Story) -> None:
    story.reserve()
    soon = {"busy_until": story.clock.now() + dt.timedelta(minutes=61)}
    sql(story, sa.update(AllocationRow).values(**soon))


CASES: list[tuple[Break, int, str]] = [
    (exceed_the_capacity, 1, "has 0 VCPU, and 1 are taken"),
    (lose_an_end, 2, "has 0 ends"),
    (move_an_end, 2, "its end is due at"),
    (postpone_a_release, 2, "its release is due at"),
    (keep_an_expired_offer, 3, "expired, and still has resources"),
    (lose_a_place, 2, "is WAITING, and is not in the wait list"),
    (book_for_a_waiting_lease, 5, "waits, and has 1 hosts or shares"),
    (claim_without_an_owner, 3, "is claimed, but no manager renews its claim"),
    (never_run_an_event, 3, "was never attempted"),
    (lose_a_number, 4, "1 of the numbers 1 to 3 are missing"),
    (use_a_number_too_high, 4, "0 is stored as the last"),
    (change_without_a_notification, 4, "has other dates than its latest notification"),
    (create_without_a_notification, 4, "has no notification"),
    (remove_an_allocation, 5, "has 0 hosts, fewer than its minimum of 1"),
    (shorten_an_allocation, 5, "not for the whole lease"),
    (book_a_host_twice, 1, "2 times as a whole"),  # the last: it removes the guard of the schema
]


@pytest.fixture
def damaged(backend: str, story_everywhere: Story) -> Iterator[Story]:
    """Return a service whose database no later test uses, because this test damages the schema."""
    yield story_everywhere
    servers.forget(backend)


def test_each_violated_invariant_is_found(damaged: Story) -> None:
    story = damaged
    sound, began = rows.dump(story.runtime.database), story.clock.now()
    assert list(violations(story.runtime.store)) == []
    for breaks, number, what in CASES:
        breaks(story)
        shown = [drift.description for drift in audit(story.runtime)]
        found = [item for item in shown if item.startswith("invariant ")]
        assert all(item.startswith(f"invariant {number}: ") for item in found), (breaks, found)
        assert any(what in item for item in found), (breaks, found)
        rows.put_back(story.runtime.database, sound)
        story.clock.set(began)


def invariant_notifications(story: Story) -> list[tuple[str, int]]:
    return [
        (item["event_type"], item["payload"]["invariant"])
        for item in story.published()
        if item["event_type"].startswith("audit.")
    ]


def gauges(story: Story) -> dict[str, float]:
    get = story.runtime.metrics.registry.get_sample_value
    return {
        str(number): get("climate_invariant_broken", {"invariant": str(number)}) or 0.0
        for number in range(1, 6)
    }


def test_a_violated_invariant_is_announced_once_and_once_when_restored(story: Story) -> None:
    lease = story.reserve()
    check_once(story.runtime)
    assert invariant_notifications(story) == []
    assert set(gauges(story).values()) == {0}

    is_end = (EventRow.lease_id == lease["id"], EventRow.kind == "end_lease")
    sql(story, sa.update(EventRow).where(*is_end).values(status="DONE"))
    check_once(story.runtime)
    assert invariant_notifications(story) == [], "the last check was a moment ago"
    for _ in range(3):
        story.clock.advance(60)
        check_once(story.runtime)
    assert invariant_notifications(story) == [("audit.invariant_broken", 2)]
    assert [number for number, value in gauges(story).items() if value] == ["2"]

    sql(story, sa.update(EventRow).where(*is_end).values(status="UNDONE"))
    for _ in range(3):
        story.clock.advance(60)
        check_once(story.runtime)
    assert invariant_notifications(story) == [
        ("audit.invariant_broken", 2),
        ("audit.invariant_holds", 2),
    ]
    assert set(gauges(story).values()) == {0}
    mine = story.call("GET", "/v2/notifications", token="alice:lab").get_json()
    assert not mine["notifications"], "only administrators are told"
