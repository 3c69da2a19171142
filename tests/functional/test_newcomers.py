"""Those who come while very many wait are seen before all of these are looked at anew."""

from typing import Any

import pytest

from climate.core.lease import Lease
from climate.db import line
from tests.conftest import MakeStory

ALICE, EVE = "alice:alice-project:member", "eve:eve-project:member"


def test_who_comes_behind_the_many_of_another_gets_the_next_turn(
    make_story: MakeStory, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = make_story(manager__workers="1")
    story.register(4)
    soon = 60 + 5 / 60
    many = [story.ok("POST", "/v2/leases", story.asking(), token=ALICE)["id"] for _ in range(3)]
    newcomer = story.ok("POST", "/v2/leases", story.asking(soon), token=EVE)["id"]
    genuine, plugin, begun = line.waiting, story.runtime.plugins["physical:host"], []

    def laborious(*given: Any, **more: Any) -> Any:
        story.clock.advance(1)
        return genuine(*given, **more)

    def start(lease: Lease, *_: object) -> dict[str, str]:
        begun.append(lease.id)
        if len(begun) == 1:
            story.clock.advance(5)
        return {}

    monkeypatch.setattr(line, "waiting", laborious)
    monkeypatch.setattr(plugin, "start", start)
    story.at(60)
    assert begun.index(newcomer) == 1
    assert sorted(begun) == sorted([*many, newcomer])
