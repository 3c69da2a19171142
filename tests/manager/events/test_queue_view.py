"""Several managers share a queue of waiting events without claiming the same ones."""

import random
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

import pytest

from climate.db.events import waiting as stored
from climate.db.events.waiting import PendingEvent
from climate.manager.events import queue as line
from climate.manager.events.queue import QueueView
from tests.conftest import MakeStory
from tests.support.service import Story

MINE = ("project", frozenset({"physical:host"}))


@pytest.fixture
def looks(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that lists ``count`` events as a manager sees them, ten a page."""
    monkeypatch.setattr(line, "PAGE", 10)
    monkeypatch.setattr(line, "_CROWD", 10)

    def look(count: int, seed: int) -> list[str]:
        events = [PendingEvent(f"{n:02}", *MINE) for n in range(count)]
        monkeypatch.setattr(
            stored, "pending", lambda _s, _n, limit, skip, _k: events[skip:][:limit]
        )
        view = QueueView(make_story().runtime.store, random.Random(seed))  # noqa: S311 - repeatable
        assert view.refresh(0) is (count >= 10)
        return [event.event_id for group_events in view.pending.values() for event in group_events]

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
    crowd = [PendingEvent(f"{n:02}", *MINE) for n in range(10)]
    monkeypatch.setattr(stored, "newly_due", lambda *_: crowd)
    first = set()
    for seed in range(4):
        view = QueueView(make_story().runtime.store, random.Random(seed))  # noqa: S311 - repeatable
        view.add_newly_due()
        first.add(next(iter(view.pending[MINE])).event_id)
    assert len(first) > 1


def test_a_short_queue_keeps_its_order(looks: Any) -> None:
    assert {tuple(looks(9, seed)) for seed in range(4)} == {tuple(f"{n:02}" for n in range(9))}


@pytest.mark.parametrize(("took", "serves"), [(0.01, 0), (0.1, 2), (30, 10)])
def test_an_expensive_query_is_reused_for_a_while(
    took: float, serves: float, make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story()

    def waiting(*_: object) -> list[PendingEvent]:
        story.clock.advance(took)
        return [PendingEvent("one", *MINE)]

    monkeypatch.setattr(stored, "pending", waiting)
    view = QueueView(story.runtime.store, story.runtime.rng)
    view.refresh(0)
    assert view.is_fresh is (serves > 0)
    story.clock.advance(serves)
    assert not view.is_fresh


@pytest.fixture
def view(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> QueueView:
    """Return a queue view with one event, from a query that just took a second."""
    story = make_story()

    def waiting(*_: object) -> list[PendingEvent]:
        story.clock.advance(1)
        return [PendingEvent("one", *MINE)]

    monkeypatch.setattr(stored, "pending", waiting)
    line_view = QueueView(story.runtime.store, story.runtime.rng)
    line_view.refresh(0)
    return line_view


def test_newly_due_events_join_a_reused_query(
    view: QueueView, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    others = ("another project", frozenset({"physical:host"}))
    came = [[PendingEvent("two", *others)], [PendingEvent("three", *MINE)], []]

    def newcomers(*arguments: Any) -> list[PendingEvent]:
        calls.append((arguments[1], arguments[2], set(arguments[4])))
        return came.pop(0)

    monkeypatch.setattr(stored, "newly_due", newcomers)
    for _ in range(3):
        view.add_newly_due()
    assert {
        group: [event.event_id for event in group_events]
        for group, group_events in view.pending.items()
    } == {
        MINE: ["one", "three"],
        others: ["two"],
    }
    looked, present = calls[0][1] - timedelta(seconds=1), calls[0][1]
    minute = timedelta(minutes=1)
    # An event that is stored now may have been due for a minute.
    assert calls == [
        (looked - minute, present, {"one"}),
        (present - minute, present, {"one", "two"}),
        (present - minute, present, {"one", "two", "three"}),
    ]


def test_an_expensive_search_for_newly_due_events_is_repeated_less_often(
    view: QueueView, make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, calls = make_story().clock, []

    def newcomers(
        _session: object, since: datetime, now: datetime, *_: object
    ) -> list[PendingEvent]:
        calls.append((now - since).total_seconds())
        clock.advance(0.1)
        return []

    monkeypatch.setattr(stored, "newly_due", newcomers)
    for _ in range(3):
        clock.advance(1)
        view.add_newly_due()
    # Within two seconds of a query of 0.1 s, only the time since then is searched.
    assert calls == pytest.approx([62, 1.1, 61.1])
    view.refresh(0)
    view.add_newly_due()
    assert calls[3:] == pytest.approx([61])


class Crowd:
    """Twenty waiting events; others claim all but ``left``. We claim two at a time."""

    def __init__(self, story: Story, patch: pytest.MonkeyPatch) -> None:
        self.events = [PendingEvent(f"{n:02}", *MINE) for n in range(20)]
        self.left = {event.event_id for event in self.events}
        self.checks: list[int] = []
        patch.setattr(stored, "pending", lambda *_: self.events)
        patch.setattr(stored, "unclaimed", self._still_waiting)
        self.view = QueueView(story.runtime.store, random.Random(5))  # noqa: S311 - repeatable
        self.view.refresh(0)

    def _still_waiting(self, _session: object, ids: Collection[str]) -> set[str]:
        self.checks.append(len(ids))
        return self.left & set(ids)

    @property
    def ids(self) -> list[str]:
        return [
            event.event_id for group_events in self.view.pending.values() for event in group_events
        ]

    def claim(self, *claimed: int) -> None:
        for count in claimed:
            self.view.avoid_others()
            [group_events] = self.view.pending.values()
            first = list(group_events)[:2]
            self.view.remove(first)
            self.view.note_claims(2, [event.event_id for event in first[:count]])


@pytest.fixture
def crowd(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    """Return waiting events and the view of a manager."""
    return Crowd(make_story(), monkeypatch)


def test_a_manager_whose_claims_fail_skips_events_claimed_by_others(crowd: Crowd) -> None:
    crowd.claim(2, 0, 2, 1, 0, 0)
    assert crowd.checks == []  # only when it continues
    crowd.left = {"13", "15", "18"}
    crowd.view.avoid_others()
    assert crowd.checks == [8]
    first = crowd.ids.index("13")
    assert first > 0
    assert crowd.ids[first:] + crowd.ids[:first] == sorted(crowd.left)


def test_blocked_events_are_checked_once(crowd: Crowd) -> None:
    crowd.claim(0, 0, 0, 0, 0, 0, 0)
    assert crowd.checks == [16]
    assert crowd.ids == [f"{n:02}" for n in range(14, 20)]  # in their order
    crowd.view.refresh(0)
    crowd.claim(0, 0, 0)
    assert crowd.checks == [16, 16]


def test_a_manager_close_behind_another_one_continues_elsewhere(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "_CROWD", 10)
    crowd.claim(0, 0)
    crowd.view.avoid_others()
    assert crowd.ids[0] != "04"
    assert sorted(crowd.ids) == [f"{n:02}" for n in range(4, 20)]
    crowd.claim(0, 0, 0)
    assert crowd.checks == [16]  # blocked events cost one check in a long view, too
