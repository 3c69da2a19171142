"""A thread publishes hints of new events to other processes."""

from typing import Any

import sqlalchemy as sa

from climate.db import wakeup
from climate.db.engine.database import Database
from tests.support.backends import on_postgresql
from tests.support.process import eventually


@on_postgresql
def test_publishes_hints_given_before_it_closes(database: Database) -> None:
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    hints = wakeup.for_database(database)
    hints.hint()
    eventually(lambda: statements, "the first hint is published")
    hints.hint()
    hints.close()
    assert len(statements) >= 2
