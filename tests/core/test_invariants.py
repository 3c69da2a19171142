"""Invariants of stored leases and allocations, and when a violated one is restored."""

import datetime as dt
from dataclasses import replace

from climate.core.invariants import (
    Due,
    Verdict,
    booked_twice,
    shared_exclusively,
    wrong_events,
    wrong_place,
)
from climate.core.matching.calendar import Booking
from climate.core.matching.requirement import EXCLUSIVE
from climate.core.window import Window
from tests.support.cases import each_case

NOON = dt.datetime(2030, 1, 15, 12, tzinfo=dt.UTC)
WINDOW = Window(NOON, NOON + dt.timedelta(hours=2))


def booking(first: float, last: float, name: str | None = None, amount: int = 0) -> Booking:
    hour = dt.timedelta(hours=1)
    return Booking(NOON + first * hour, NOON + last * hour, name, amount)


@each_case(
    "bookings, wrong",
    [
        ([booking(0, 1), booking(1, 2)], []),
        ([booking(0, 1), booking(1, 2, "VCPU", 4), booking(1, 3, "VCPU", 4)], []),
        ([booking(0, 2), booking(1, 3)], ["taken 2 times as a whole and 0 times in part"]),
        ([booking(0, 2), booking(1, 3, "VCPU", 1)], ["taken 1 times as a whole and 1 times"]),
        ([booking(0, 2, "VCPU", 5), booking(1, 3, "VCPU", 4)], ["has 8 VCPU, and 9 are taken"]),
        ([booking(0, 2, "GPU", 1)], ["has 0 GPU, and 1 are taken"]),
    ],
)
def test_reports_a_resource_booked_beyond_its_capacity(
    bookings: list[Booking], wrong: list[str]
) -> None:
    for order in (bookings, bookings[::-1]):
        violations = list(booked_twice(order, {"VCPU": 8}))
        assert len(violations) == len(wrong), violations
        assert all(part in what for part, what in zip(wrong, violations, strict=True))


def test_reports_a_share_beside_an_exclusive_one() -> None:
    mark = replace(booking(0, 2, EXCLUSIVE, 1), owner="first")
    own, before, beside = (
        replace(booking(*times, "VCPU", 1), owner=owner)
        for times, owner in (((0, 2), "first"), ((2, 3), "second"), ((1, 3), "second"))
    )
    assert list(booked_twice([mark, own], {"VCPU": 8})) == []
    assert list(shared_exclusively([mark, own, before])) == []
    [violation] = shared_exclusively([mark, own, beside])
    assert "exclusively for reservation first" in violation
    assert "reservation second" in violation


START = Due("start_lease", "UNDONE", WINDOW.start)
FAILED = Due("start_lease", "ERROR", WINDOW.start)
STARTED = Due("start_lease", "DONE", WINDOW.start)
END = Due("end_lease", "UNDONE", WINDOW.end)
ENDED = Due("end_lease", "DONE", WINDOW.end)
LATE = Due("end_lease", "UNDONE", WINDOW.end + dt.timedelta(hours=1))
EXPIRE = Due("expire_wait", "UNDONE", WINDOW.start)
RELEASE = Due("release_lease", "UNDONE", WINDOW.start)


@each_case(
    "status, events, wrong",
    [
        ("PENDING", [START, END], None),
        ("ACTIVE", [STARTED, END], None),
        ("TERMINATED", [STARTED, ENDED], None),
        ("DELETING", [STARTED, LATE], None),
        ("CREATING", [RELEASE], None),
        ("CREATING", [], "has events []"),
        ("WAITING", [EXPIRE], None),
        ("WAITING", [EXPIRE, END], "has events"),
        ("PENDING", [END], "has 0 starts"),
        ("PENDING", [STARTED, END], "its start is DONE"),
        ("PENDING", [FAILED, END], "its start is ERROR"),
        ("PENDING", [START], "has 0 ends"),
        ("ACTIVE", [STARTED, ENDED], "its end is DONE"),
        ("ACTIVE", [STARTED, LATE], "its end is due at"),
        ("TERMINATED", [START, ENDED], "start_lease is still to be done"),
    ],
)
def test_reports_a_lease_whose_events_contradict_its_status(
    status: str, events: list[Due], wrong: str | None
) -> None:
    violations = wrong_events(status, WINDOW, events, NOON)
    assert (violations is None) == (wrong is None)
    assert wrong is None or wrong in str(violations)


def test_an_offer_expires_when_its_release_is_due() -> None:
    late = WINDOW.start + dt.timedelta(seconds=1)
    assert wrong_events("CREATING", WINDOW, [RELEASE], NOON, WINDOW.start) is None
    assert "is offered until" in str(wrong_events("CREATING", WINDOW, [RELEASE], NOON, late))
    assert "still offered" in str(wrong_events("PENDING", WINDOW, [START, END], NOON, late))


def test_a_waiting_lease_has_an_entry_and_a_promised_one_its_start() -> None:
    assert wrong_place("WAITING", WINDOW, [None]) is None
    assert wrong_place("PENDING", WINDOW, [WINDOW.start]) is None
    assert wrong_place("ACTIVE", WINDOW, [WINDOW.end]) is None
    assert wrong_place("PENDING", WINDOW, None) is None
    assert "not in the wait list" in str(wrong_place("WAITING", WINDOW, None))
    assert "promised start is None" in str(wrong_place("PENDING", WINDOW, [None]))
    assert "is WAITING" in str(wrong_place("WAITING", WINDOW, [WINDOW.start]))
    assert "starts at" in str(wrong_place("PENDING", WINDOW, [WINDOW.end]))


def test_a_start_may_have_failed_when_it_came_after_the_end() -> None:
    assert wrong_events("PENDING", WINDOW, [FAILED, END], WINDOW.end) is None
    assert wrong_events("PENDING", WINDOW, [FAILED, ENDED], WINDOW.end) is not None


def test_an_invariant_is_restored_after_a_whole_clean_round() -> None:
    sound = Verdict(None, ())
    assert sound.after([], NOON, is_round_over=True) == sound
    broken = sound.after(["x"], NOON, is_round_over=False)
    assert broken.broken_since == NOON
    later = NOON + dt.timedelta(hours=1)
    still = broken.after([], later, is_round_over=True)
    assert still == Verdict(NOON, ()), "the first half of the round was not clean"
    assert still.after([], later, is_round_over=False).broken_since == NOON
    assert still.after([], later, is_round_over=True) == sound
