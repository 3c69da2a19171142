"""Which reminders of a subscriber are due."""

from datetime import datetime, timedelta

from climate.core.notifications.subscriber_reminder import Reminders, Upcoming, due
from tests.conftest import NOON

HOUR = timedelta(hours=1)
LONG_AGO = NOON - 10 * HOUR
LEADS = (7200, 3600)


def lease(id_: str, starts_in: timedelta, created: datetime = LONG_AGO) -> Upcoming:
    return Upcoming(id_, created, NOON + starts_in)


def test_a_lease_has_one_reminder_although_several_are_due() -> None:
    upcoming = [lease("b", HOUR), lease("a", 2 * HOUR), lease("none", 3 * HOUR)]
    assert due(upcoming, LEADS, LONG_AGO, NOON) == Reminders(("a", "b"), NOON)


def test_a_reminder_that_is_done_is_not_due_again() -> None:
    upcoming = [lease("a", HOUR), lease("b", 2 * HOUR + timedelta(seconds=1))]
    assert due(upcoming, LEADS, NOON, NOON + timedelta(seconds=1)).lease_ids == ("b",)


def test_a_lease_that_started_or_was_created_later_has_no_reminder() -> None:
    upcoming = [lease("started", timedelta(0)), lease("late", HOUR / 2, NOON - HOUR / 4)]
    assert due(upcoming, LEADS, LONG_AGO, NOON).lease_ids == ()


def test_many_reminders_take_several_calls() -> None:
    upcoming = [lease(f"{n:03}", HOUR + timedelta(seconds=n // 2 - 300)) for n in range(500)]
    since = LONG_AGO
    found: list[str] = []
    while since < NOON:
        part = due(upcoming, [3600], since, NOON)
        assert len(part.lease_ids) <= 201
        found += part.lease_ids
        since = part.through
    assert found == [each.lease_id for each in upcoming]
