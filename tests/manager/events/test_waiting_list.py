"""Who waits, as several managers see it that look at the same time."""

import random
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from climate.db import line as stored
from climate.db.line import Waiting
from climate.manager import line
from climate.manager.line import Line
from tests.conftest import MakeStory
from tests.service import Story

MINE = ("project", frozenset({"physical:host"}))


@pytest.fixture
def looks(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what has a manager look at so many that wait, ten at a time, and names them."""
    monkeypatch.setattr(line, "PAGE", 10)
    monkeypatch.setattr(line, "_CROWD", 10)

    def look(count: int, seed: int) -> list[str]:
        there = [Waiting(f"{n:02}", *MINE) for n in range(count)]
        monkeypatch.setattr(stored, "waiting", lambda _s, _n, limit, skip, _k: there[skip:][:limit])
        seen = Line(replace(make_story().runtime, rng=random.Random(seed)))  # noqa: S311 - repeatable
        assert seen.look(0) is (count >= 10)
        return [one.event_id for some in seen.waiting.values() for one in some]

    return look


def test_managers_begin_a_long_queue_at_different_places(
    looks: Any,
) -> None:
    orders = [looks(25, seed) for seed in range(4)]
    assert len({order[0] for order in orders}) > 1
    for order in orders:
        first = order.index("00")
        assert order[first:] + order[:first] == [f"{n:02}" for n in range(10)]


def test_managers_begin_many_newly_due_events_at_different_places(
    looks: Any, make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks(0, 0)
    crowd = [Waiting(f"{n:02}", *MINE) for n in range(10)]
    monkeypatch.setattr(stored, "newcomers", lambda *_: crowd)
    first = set()
    for seed in range(4):
        seen = Line(replace(make_story().runtime, rng=random.Random(seed)))  # noqa: S311 - repeatable
        seen.look_for_newcomers()
        first.add(next(iter(seen.waiting[MINE])).event_id)
    assert len(first) > 1


def test_a_short_queue_keeps_its_order(looks: Any) -> None:
    assert {tuple(looks(9, seed)) for seed in range(4)} == {tuple(f"{n:02}" for n in range(9))}


@pytest.mark.parametrize(("took", "serves"), [(0.01, 0), (0.1, 2), (30, 10)])
def test_an_expensive_query_is_reused_for_a_while(
    took: float, serves: float, make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story()

    def waiting(*_: object) -> list[Waiting]:
        story.clock.advance(took)
        return [Waiting("one", *MINE)]

    monkeypatch.setattr(stored, "waiting", waiting)
    seen = Line(story.runtime)
    seen.look(0)
    assert seen.is_good is (serves > 0)
    story.clock.advance(serves)
    assert not seen.is_good


@pytest.fixture
def seen(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Line:
    """Return a line with one who waits, as a look that took a second saw it just now."""
    story = make_story()

    def waiting(*_: object) -> list[Waiting]:
        story.clock.advance(1)
        return [Waiting("one", *MINE)]

    monkeypatch.setattr(stored, "waiting", waiting)
    made = Line(story.runtime)
    made.look(0)
    return made


def test_newly_due_events_join_a_reused_query(seen: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    others = ("another project", frozenset({"physical:host"}))
    came = [[Waiting("two", *others)], [Waiting("three", *MINE)], []]

    def newcomers(*given: Any) -> list[Waiting]:
        asked.append((given[1], given[2], set(given[4])))
        return came.pop(0)

    monkeypatch.setattr(stored, "newcomers", newcomers)
    for _ in range(3):
        seen.look_for_newcomers()
    assert {group: [one.event_id for one in some] for group, some in seen.waiting.items()} == {
        MINE: ["one", "three"],
        others: ["two"],
    }
    looked, present = asked[0][1] - timedelta(seconds=1), asked[0][1]
    minute = timedelta(minutes=1)
    # What is written now may have been due for a minute.
    assert asked == [
        (looked - minute, present, {"one"}),
        (present - minute, present, {"one", "two"}),
        (present - minute, present, {"one", "two", "three"}),
    ]


def test_an_expensive_search_for_newly_due_events_is_repeated_less_often(
    seen: Line, make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = make_story().clock, []

    def newcomers(_session: object, since: datetime, now: datetime, *_: object) -> list[Waiting]:
        asked.append((now - since).total_seconds())
        clock.advance(0.1)
        return []

    monkeypatch.setattr(stored, "newcomers", newcomers)
    for _ in range(3):
        clock.advance(1)
        seen.look_for_newcomers()
    # Two seconds after it took a tenth of one; what became due meanwhile is seen at once.
    assert asked == pytest.approx([62, 1.1, 61.1])
    seen.look(0)
    seen.look_for_newcomers()
    assert asked[3:] == pytest.approx([61])


class Crowd:
    """Twenty who wait, of whom others claim all but ``left``; claims are of two at a time."""

    def __init__(self, story: Story, patch: pytest.MonkeyPatch) -> None:
        self.there = [Waiting(f"{n:02}", *MINE) for n in range(20)]
        self.left = {one.event_id for one in self.there}
        self.asked: list[int] = []
        patch.setattr(stored, "waiting", lambda *_: self.there)
        patch.setattr(stored, "still_waiting", self._still_waiting)
        self.seen = Line(replace(story.runtime, rng=random.Random(5)))  # noqa: S311 - repeatable
        self.seen.look(0)

    def _still_waiting(self, _session: object, ids: Collection[str]) -> set[str]:
        self.asked.append(len(ids))
        return self.left & set(ids)

    @property
    def ids(self) -> list[str]:
        return [one.event_id for some in self.seen.waiting.values() for one in some]

    def claim(self, *claimed: int) -> None:
        for count in claimed:
            self.seen.go_on()
            [some] = self.seen.waiting.values()
            first = list(some)[:2]
            self.seen.leave(first)
            self.seen.note(2, [one.event_id for one in first[:count]])


@pytest.fixture
def crowd(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Return those who wait, as a manager has seen them."""
    return Crowd(make_story(), monkeypatch)


def test_a_manager_whose_claims_fail_skips_events_claimed_by_others(crowd: Crowd) -> None:
    crowd.claim(2, 0, 2, 1, 0, 0)
    assert crowd.asked == []  # only when it goes on
    crowd.left = {"13", "15", "18"}
    crowd.seen.go_on()
    assert crowd.asked == [8]
    first = crowd.ids.index("13")
    assert first > 0
    assert crowd.ids[first:] + crowd.ids[:first] == sorted(crowd.left)


def test_blocked_events_are_checked_once(crowd: Crowd) -> None:
    crowd.claim(0, 0, 0, 0, 0, 0, 0)
    assert crowd.asked == [16]
    assert crowd.ids == [f"{n:02}" for n in range(14, 20)]  # in their order
    crowd.seen.look(0)
    crowd.claim(0, 0, 0)
    assert crowd.asked == [16, 16]
