"""A thread publishes hints of new events to other processes."""

from typing import Any

import pytest
import sqlalchemy as sa

from climate.db import wakeup
from climate.db.engine.database import Database
from tests.support import threads
from tests.support.backends import on_postgresql
from tests.support.process import eventually


def _statements(database: Database) -> list[str]:
    """Return a list to which each statement from now on is added."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    return statements


@on_postgresql
def test_publishes_hints_given_before_it_closes(database: Database) -> None:
    statements = _statements(database)
    hints = wakeup.for_database(database)
    hints.hint()
    eventually(lambda: statements, "the first hint is published")
    hints.hint()
    hints.close()
    assert len(statements) >= 2


@on_postgresql
def test_a_hint_never_raises_and_the_next_one_is_published(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints = wakeup.for_database(database)
    threads.fail_once(monkeypatch, "hints")
    hints.hint()
    statements = _statements(database)
    hints.hint()
    eventually(lambda: statements, "the hint is published")
    hints.close()
