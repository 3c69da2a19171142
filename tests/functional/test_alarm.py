"""What becomes due is done then, and not at the next poll."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.service import Story


def test_what_becomes_due_during_the_last_look_rings_at_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.reserve(60, 120)
    start = story.clock.now() + timedelta(minutes=60)
    story.clock.set(start - timedelta(seconds=0.001))
    story.run()
    dispatcher, rung = story.dispatcher, []
    look = dispatcher._claim

    def slowly() -> Any:
        found = look()
        story.clock.advance(0.005)
        return found

    def ring(moment: datetime, _: object) -> None:
        rung.append(moment)

    monkeypatch.setattr(dispatcher, "_claim", slowly)
    monkeypatch.setattr(dispatcher._timer, "at", ring)
    dispatcher._tick()
    assert rung == [start]
