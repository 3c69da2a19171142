"""Requests that wait for new notifications miss no hint."""

import threading
from typing import Any

import pytest

from climate.db.notifications import outbox
from climate.db.wakeup import Wakeup
from climate.manager.process.long_poll import LongPoll
from tests.support.service import Story


def test_the_first_query_follows_the_subscription_to_hints(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    news, queried, found = Wakeup(), threading.Event(), []

    def last_seq(_session: object) -> int:
        found.append(len(news._callbacks))
        queried.set()
        return 1

    start = LongPoll._started

    def started(self: LongPoll) -> Any:
        thread = start(self)
        assert queried.wait(20)
        return thread

    monkeypatch.setattr(outbox, "last_seq", last_seq)
    monkeypatch.setattr(LongPoll, "_started", started)
    waiting = LongPoll(story.runtime.database, news, poll_interval=0.1, places=4)
    with waiting.place(None):
        assert waiting.wait(0, 20)
    waiting.close()
    assert found[0] == 1
