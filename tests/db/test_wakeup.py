"""A thread publishes hints of new events to other processes."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from climate.db import wakeup
from climate.db.engine.database import Database
from tests.support import threads
from tests.support.backends import on_postgresql
from tests.support.process import eventually


@contextmanager
def _received(database: Database) -> Iterator[list[str]]:
    """Return a context with a list that grows with each hint that another process receives."""
    received: list[str] = []
    other = wakeup.for_database(database)
    other.subscribe(lambda: received.append("hint"))
    try:
        eventually(lambda: received, "the other process listens")
        received.clear()
        yield received
    finally:
        other.close()


@on_postgresql
def test_publishes_hints_given_before_it_closes(database: Database) -> None:
    with _received(database) as received:
        hints = wakeup.for_database(database)
        hints.hint()
        eventually(lambda: received, "the first hint is published")
        hints.hint()
        hints.close()
        eventually(lambda: len(received) > 1, "the second hint is published")


@on_postgresql
def test_a_hint_never_raises_and_the_next_one_is_published(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _received(database) as received:
        hints = wakeup.for_database(database)
        threads.fail_once(monkeypatch, "hints")
        hints.hint()
        hints.hint()
        eventually(lambda: received, "the hint is published")
        hints.close()
