"""Who waits, as several managers see it that look at the same time."""

import random
from dataclasses import replace
from typing import Any

import pytest

from climate.db import line as stored
from climate.db.line import Waiting
from climate.manager import line
from climate.manager.line import Line
from tests.conftest import MakeStory

MINE = ("project", frozenset({"physical:host"}))


@pytest.fixture
def looks(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what has a manager look at so many that wait, ten at a time, and names them."""
    monkeypatch.setattr(line, "PAGE", 10)

    def look(count: int, seed: int) -> list[str]:
        there = [Waiting(f"{n:02}", *MINE) for n in range(count)]
        monkeypatch.setattr(stored, "waiting", lambda _s, _n, limit, skip: there[skip:][:limit])
        seen = Line(replace(make_story().runtime, rng=random.Random(seed)))  # noqa: S311 - repeatable
        assert seen.look(0) is (count >= 10)
        return [one.event_id for some in seen.waiting.values() for one in some]

    return look


def test_managers_that_have_more_than_a_page_before_them_begin_at_different_places(
    looks: Any,
) -> None:
    orders = [looks(25, seed) for seed in range(4)]
    assert len({order[0] for order in orders}) > 1
    for order in orders:
        first = order.index("00")
        assert order[first:] + order[:first] == [f"{n:02}" for n in range(10)]


def test_few_are_taken_in_their_order(looks: Any) -> None:
    assert {tuple(looks(9, seed)) for seed in range(4)} == {tuple(f"{n:02}" for n in range(9))}


@pytest.mark.parametrize(("took", "serves"), [(0.01, 0), (0.5, 5), (30, 10)])
def test_a_laborious_look_serves_a_while(
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
