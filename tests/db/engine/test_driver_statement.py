"""Statements that climate passes to PostgreSQL's driver itself."""

import pytest
import sqlalchemy as sa

from climate.db.engine import driver_statement
from climate.db.engine.database import Database, conflict, is_transient, is_unavailable
from climate.db.engine.driver_statement import convert

pytestmark = pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
_FAIL = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{}', MESSAGE = 'a secret'; END $$"


def test_parameters_are_sent_by_name_and_doubled_percent_signs_once(database: Database) -> None:
    statement = convert("SELECT %(second)s::text, %(first)s::int, 5 %% 3, %(second)s::text")
    values = {"first": 1, "second": "%(first)s $1", "third": None}
    assert database.run_at_once(statement, values) == [("%(first)s $1", 1, 2, "%(first)s $1")]


def test_a_statement_commits_by_itself_and_leaves_the_connection_usable(database: Database) -> None:
    made = convert(
        "INSERT INTO resources (type, external_id, reservable, created_at)"
        " VALUES ('type', 'x', true, now()) RETURNING external_id"
    )
    assert database.run_at_once(made, {}) == [("x",)]
    with database.read() as session:  # the same connection: the pool has only one
        assert session.scalar(sa.text("SELECT count(*) FROM resources")) == 1
        moments = {session.scalar(sa.text("SELECT now()")) for _ in range(2)}
    assert len(moments) == 1  # both statements were in one transaction


def test_a_connection_keeps_the_statements_that_were_used_last(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_statement, "_PREPARED", 2)
    for text in ("SELECT 1", "SELECT 2", "SELECT 1", "SELECT 3", "SELECT 1"):
        database.run_at_once(convert(text), {})
    prepared = convert("SELECT statement FROM pg_prepared_statements WHERE name ~ 'climate'")
    kept = {text for (text,) in database.run_at_once(prepared, {})}
    assert kept == {"SELECT 1", prepared.text.decode()}


def test_a_statement_is_prepared_again_after_the_driver_has_ended_it(database: Database) -> None:
    statement = convert("SELECT 1")
    assert database.run_at_once(statement, {}) == [(1,)]
    with database.engine.connect() as connection:  # the same connection: the pool has only one
        connection.exec_driver_sql("DEALLOCATE ALL")
    assert database.run_at_once(statement, {}) == [(1,)]


def test_a_parameter_may_get_a_larger_type(database: Database) -> None:
    statement = convert("SELECT %(number)s + 1")
    for number in (1, 2**20, 2**40):
        assert database.run_at_once(statement, {"number": number}) == [(number + 1,)]


def test_an_error_has_its_code_but_no_values(database: Database) -> None:
    with pytest.raises(sa.exc.DBAPIError) as raised:
        database.run_at_once(convert(_FAIL.format("23P01")), {})
    assert is_transient(raised.value)
    assert conflict(raised.value) == "23P01"
    with pytest.raises(sa.exc.DataError) as invalid:
        database.run_at_once(convert("SELECT %(text)s::uuid"), {"text": "a secret"})
    assert "secret" not in str(invalid.value)
    assert database.run_at_once(convert("SELECT 1"), {}) == [(1,)]


def test_a_server_that_refuses_writes_is_left(database: Database) -> None:
    backend = convert("SELECT pg_backend_pid()")
    before = database.run_at_once(backend, {})
    with pytest.raises(sa.exc.InternalError):
        database.run_at_once(convert(_FAIL.format("25006")), {})
    assert database.run_at_once(backend, {}) != before


def test_a_dead_connection_is_an_outage_in_use_and_is_replaced_in_the_pool(
    database: Database,
) -> None:
    with pytest.raises(sa.exc.OperationalError) as raised:
        database.run_at_once(convert("SELECT pg_terminate_backend(pg_backend_pid())"), {})
    assert is_unavailable(raised.value)
    assert database.write_error is raised.value
    assert database.run_at_once(convert("SELECT 1"), {}) == [(1,)]
    assert database.write_error is None


def test_a_server_that_is_away_is_an_outage(backend: str) -> None:
    away = Database(f"{backend}+psycopg://root@127.0.0.1:1/nothing")
    with pytest.raises(sa.exc.OperationalError) as raised:
        away.run_at_once(convert("SELECT 1"), {})
    assert is_unavailable(raised.value)
