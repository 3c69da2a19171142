"""What is among many: found on every database, and where it can be by one statement for any."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Session

from climate.db.among import among
from climate.db.engine import Database
from climate.db.outbox import write
from climate.db.outbox_tables import OutboxRow
from tests.conftest import NOON

KINDS = ["lease.create", "lease.update", "lease.delete"]


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    """Return a session with a notification of each kind."""
    with Session(database.engine) as made:
        for kind in KINDS:
            write(made, kind, {"project_id": "p"}, NOON)
        yield made


@pytest.mark.parametrize("wanted", [[], KINDS[:1], KINDS[1:], ["of", "no", "kind"]])
def test_those_are_found_that_are_among_the_values(session: Session, wanted: list[str]) -> None:
    query = sa.select(OutboxRow.event_type).where(among(OutboxRow.event_type, wanted))
    assert sorted(session.scalars(query)) == sorted({*wanted} & {*KINDS})


def test_the_values_can_be_a_parameter(session: Session) -> None:
    query = sa.select(OutboxRow.event_type).where(among(OutboxRow.event_type, "kinds"))
    for wanted in ([], KINDS[:2], KINDS):
        assert sorted(session.scalars(query, {"kinds": wanted})) == sorted(wanted)


@pytest.mark.parametrize("kind", ["a, b", 'a "b"', "a \\ b", "{a}", "NULL", "", "a\nb", "ä 𝄞", "'"])
def test_any_text_is_found_and_no_other(session: Session, kind: str) -> None:
    write(session, kind, {"project_id": "p"}, NOON)
    query = sa.select(OutboxRow.event_type).where(among(OutboxRow.event_type, [kind, "other"]))
    assert list(session.scalars(query)) == [kind]


def test_numbers_are_found(session: Session) -> None:
    ids = session.scalars(sa.select(OutboxRow.id).order_by(OutboxRow.id)).all()
    query = sa.select(OutboxRow.id).where(among(OutboxRow.id, ids[1:]))
    assert sorted(session.scalars(query)) == ids[1:]


def test_what_is_too_long_for_the_column_is_not_there(session: Session) -> None:
    known = session.scalars(sa.select(OutboxRow.message_id)).all()
    wanted = [f"{id_} and more" for id_ in known]  # that it is as long as it may be is the point
    assert session.scalars(sa.select(OutboxRow.id).where(among(OutboxRow.message_id, known))).all()
    query = sa.select(OutboxRow.id).where(among(OutboxRow.message_id, wanted))
    assert session.scalars(query).all() == []


def test_all_others_can_be_asked_for(session: Session) -> None:
    query = sa.select(OutboxRow.event_type).where(~among(OutboxRow.event_type, KINDS[:2]))
    assert list(session.scalars(query)) == KINDS[2:]


def test_on_mariadb_an_index_can_be_used() -> None:
    query = sa.select(OutboxRow.id).where(among(OutboxRow.seq, [1, 2]))
    text = str(query.compile(dialect=mysql.dialect(), compile_kwargs={"literal_binds": True}))
    assert text.endswith("WHERE outbox.seq IN (1, 2)")


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_on_sqlite_an_index_is_used(session: Session) -> None:
    query = sa.select(OutboxRow.id).where(among(OutboxRow.seq, "seqs"))
    text = f"EXPLAIN QUERY PLAN {query.compile(session.get_bind())}"
    plan = session.connection().exec_driver_sql(text, ("[1, 2]",)).all()
    assert any("SEARCH outbox USING" in row.detail and "(seq=?)" in row.detail for row in plan)


def test_all_but_mariadb_get_one_statement_for_any_number(session: Session) -> None:
    told: set[str] = set()

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        told.add(statement)

    engine = session.get_bind()
    sa.event.listen(engine, "before_cursor_execute", note)
    for count in range(len(KINDS) + 1):
        session.scalars(
            sa.select(OutboxRow.id).where(among(OutboxRow.event_type, KINDS[:count]))
        ).all()
    several = engine.dialect.name in {"mysql", "mariadb"}
    assert len(told) == (len(KINDS) + 1 if several else 1)
