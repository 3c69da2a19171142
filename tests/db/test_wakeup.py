"""Hints that others are told of, by a thread."""

from typing import Any

import pytest
import sqlalchemy as sa

from climate import wakeup
from climate.db.engine import Database
from tests.process import eventually


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_what_was_hinted_before_the_end_is_told(database: Database) -> None:
    told: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        told.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    made = wakeup.for_database(database)
    made.hint()
    eventually(lambda: told, "the first hint is told")
    made.hint()
    made.close()
    assert len(told) >= 2
