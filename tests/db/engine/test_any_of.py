"""``IN`` over many values: correct on every database, and one statement for any number."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Session

from climate.core.notifications.event_type import EventType
from climate.db.engine.database import Database
from climate.db.engine.types import any_of
from climate.db.notifications.outbox import write
from climate.db.tables.notifications import OutboxRow
from tests.conftest import NOON
from tests.support.backends import on_sqlite

KINDS = ["lease.create", "lease.update", "lease.delete"]


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    """Return a session with a notification of each kind."""
    with Session(database.engine) as opened:
        for kind in KINDS:
            write(opened, EventType(kind), {"project_id": "p"}, NOON)
        yield opened


def test_selects_rows_whose_value_is_in_the_list(session: Session) -> None:
    for values in ([], KINDS[:1], KINDS[1:], ["no", "such", "kind"]):
        query = sa.select(OutboxRow.event_type).where(any_of(OutboxRow.event_type, values))
        assert sorted(session.scalars(query)) == sorted({*values} & {*KINDS})
    others = sa.select(OutboxRow.event_type).where(~any_of(OutboxRow.event_type, KINDS[:2]))
    assert list(session.scalars(others)) == KINDS[2:]


def test_the_list_can_be_a_parameter(session: Session) -> None:
    query = sa.select(OutboxRow.event_type).where(any_of(OutboxRow.event_type, "kinds"))
    for values in ([], KINDS[:2], KINDS):
        assert sorted(session.scalars(query, {"kinds": values})) == sorted(values)


def test_matches_any_text_exactly(session: Session) -> None:
    texts = ["a, b", 'a "b"', "a \\ b", "{a}", "NULL", "", "a\nb", "ä 𝄞", "'"]
    for text in texts:
        write(session, EventType(text), {"project_id": "p"}, NOON)
    wrong = []
    for text in texts:
        query = sa.select(OutboxRow.event_type).where(any_of(OutboxRow.event_type, [text, "other"]))
        if list(session.scalars(query)) != [text]:
            wrong.append(text)
    assert wrong == []


def test_matches_numbers(session: Session) -> None:
    ids = session.scalars(sa.select(OutboxRow.id).order_by(OutboxRow.id)).all()
    query = sa.select(OutboxRow.id).where(any_of(OutboxRow.id, ids[1:]))
    assert sorted(session.scalars(query)) == ids[1:]


def test_a_value_longer_than_the_column_matches_nothing(session: Session) -> None:
    stored = session.scalars(sa.select(OutboxRow.message_id)).all()
    longer = [f"{id_} and more" for id_ in stored]  # stored ids fill the column
    assert session.scalars(
        sa.select(OutboxRow.id).where(any_of(OutboxRow.message_id, stored))
    ).all()
    query = sa.select(OutboxRow.id).where(any_of(OutboxRow.message_id, longer))
    assert session.scalars(query).all() == []


def test_mariadb_gets_a_plain_in_that_can_use_an_index() -> None:
    query = sa.select(OutboxRow.id).where(any_of(OutboxRow.seq, [1, 2]))
    text = str(query.compile(dialect=mysql.dialect(), compile_kwargs={"literal_binds": True}))
    assert text.endswith("WHERE outbox.seq IN (1, 2)")


@on_sqlite
def test_sqlite_uses_an_index(session: Session) -> None:
    query = sa.select(OutboxRow.id).where(any_of(OutboxRow.seq, "seqs"))
    text = f"EXPLAIN QUERY PLAN {query.compile(session.get_bind())}"
    plan = session.connection().exec_driver_sql(text, ("[1, 2]",)).all()
    assert any("SEARCH outbox USING" in row.detail and "(seq=?)" in row.detail for row in plan)


def test_all_databases_but_mariadb_get_one_statement_for_any_number(session: Session) -> None:
    statements: set[str] = set()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.add(statement)

    engine = session.get_bind()
    sa.event.listen(engine, "before_cursor_execute", note)
    for count in range(len(KINDS) + 1):
        session.scalars(
            sa.select(OutboxRow.id).where(any_of(OutboxRow.event_type, KINDS[:count]))
        ).all()
    expected = len(KINDS) + 1 if engine.dialect.name in {"mysql", "mariadb"} else 1
    assert len(statements) == expected
