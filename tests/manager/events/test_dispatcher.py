"""Those who come while very many wait are seen before all of these are looked at anew."""

from typing import Any

import pytest

from climate.core.lease import Lease
from climate.db import line
from climate.plugins.base import NotYet
from tests.conftest import MakeStory
from tests.service import Story

ALICE, EVE = "alice:alice-project:member", "eve:eve-project:member"


@pytest.fixture
def busy(make_story: MakeStory, monkeypatch: pytest.MonkeyPatch) -> Story:
    """Return a service of one worker, which looks for a second at who waits."""
    story, genuine = make_story(manager__workers="1"), line.waiting
    story.register(6)

    def laborious(*given: Any, **more: Any) -> Any:
        story.clock.advance(1)
        return genuine(*given, **more)

    monkeypatch.setattr(line, "waiting", laborious)
    return story


def ask(story: Story, who: str, start: float = 60) -> str:
    return str(story.ok("POST", "/v2/leases", story.asking(start), token=who)["id"])


def test_who_comes_behind_the_many_of_another_gets_the_next_turn(
    busy: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [ask(busy, ALICE) for _ in range(3)]
    newcomer = ask(busy, EVE, 60 + 5 / 60)
    plugin, begun = busy.runtime.plugins["physical:host"], []

    def start(lease: Lease, *_: object) -> dict[str, str]:
        begun.append(lease.id)
        if len(begun) == 1:
            busy.clock.advance(5)
        return {}

    monkeypatch.setattr(plugin, "start", start)
    busy.at(60)
    assert begun.index(newcomer) == 1
    assert sorted(begun) == sorted([*many, newcomer])


def test_who_comes_back_gets_a_turn_before_the_many_of_another_are_done(
    busy: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, waiting = [ask(busy, ALICE) for _ in range(5)], ask(busy, EVE)
    plugin, begun = busy.runtime.plugins["physical:host"], []

    def start(lease: Lease, *_: object) -> dict[str, str]:
        begun.append(lease.id)
        busy.clock.advance(1.5)
        if begun.count(lease.id) == 1 and lease.id == waiting:
            raise NotYet("it boots")
        return {}

    monkeypatch.setattr(plugin, "start", start)
    busy.at(60)
    assert sorted(begun) == sorted([*many, waiting, waiting])
    assert begun[-1] in many
