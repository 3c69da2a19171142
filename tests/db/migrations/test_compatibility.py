"""The previous release works with the schema of each migration (expand first, contract later).

The test compares the schema before and after each migration, however the migration is written.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from climate.db.engine import schema
from climate.db.engine.database import Database
from tests.support import servers
from tests.support.backends import on_sqlite

Columns = Mapping[tuple[str, str], Mapping[str, Any]]

# Changes that precede the rule, before the first release: by revision.
BEFORE_THE_RULE: dict[str, set[str]] = {}


def columns(database: Database) -> Columns:
    """Return every column by table and name."""
    inspector = sa.inspect(database.engine)
    return {
        (table, column["name"]): column
        for table in inspector.get_table_names()
        if table != "alembic_version"
        for column in inspector.get_columns(table)
    }


def breaks(before: Columns, after: Columns) -> Iterator[str]:
    """Yield the changes that break code written for the schema before."""
    tables = {table for table, _ in before}
    for table, name in before.keys() - after.keys():
        yield f"{table}.{name} is gone"
    for (table, name), column in after.items():
        if table not in tables:
            continue
        can_be_omitted = column["nullable"] or column["default"] is not None or "computed" in column
        old = before.get((table, name))
        if old is None and not can_be_omitted:
            yield f"{table}.{name} is new and must be given"
        elif old is not None and old["nullable"] and not can_be_omitted:
            yield f"{table}.{name} may not be NULL any more"
        elif old is not None and _is_narrower(old["type"], column["type"]):
            yield f"{table}.{name} is narrower: {old['type']}, now {column['type']}"


def _is_narrower(old: Any, new: Any) -> bool:
    lengths = (getattr(old, "length", None), getattr(new, "length", None))
    return lengths[1] is not None and (lengths[0] is None or lengths[1] < lengths[0])


@pytest.fixture
def empty(backend: str, tmp_path: Path) -> Iterator[Database]:
    """Return a database of each kind without a schema."""
    is_sqlite = backend == "sqlite"
    url = f"sqlite:///{tmp_path}/empty.sqlite" if is_sqlite else servers.create(backend)
    database = Database(url)
    yield database
    database.dispose()


@pytest.mark.filterwarnings("ignore:Unknown schema content.*PERIOD FOR")
def test_no_migration_breaks_the_code_of_the_previous_schema(empty: Database) -> None:
    before: Columns = {}
    breaking = {}
    for revision in schema.revisions():
        schema.upgrade(empty, revision)
        after = columns(empty)
        breaking[revision] = set(breaks(before, after))
        before = after
    assert {revision: changes for revision, changes in breaking.items() if changes} == (
        BEFORE_THE_RULE
    )
    assert ("leases", "status") in before


def _recreate(columns_: str) -> str:
    return f"CREATE TABLE things ({columns_})"


THINGS = _recreate("id INTEGER, size VARCHAR(9)")
OWNER = "ALTER TABLE things ADD COLUMN owner TEXT"
# Statements, and the changes that break code written for things (id, size).
CHANGES: list[tuple[list[str], set[str]]] = [
    (["ALTER TABLE things DROP COLUMN size"], {"things.size is gone"}),
    (["ALTER TABLE things RENAME COLUMN size TO extent"], {"things.size is gone"}),
    (["DROP TABLE things"], {"things.id is gone", "things.size is gone"}),
    ([f"{OWNER} NOT NULL DEFAULT ''"], set()),
    ([OWNER], set()),
    (["CREATE TABLE more (id INTEGER NOT NULL)"], set()),
    (
        ["DROP TABLE things", _recreate("id INTEGER, size VARCHAR(9), owner TEXT NOT NULL")],
        {"things.owner is new and must be given"},
    ),
    (
        ["DROP TABLE things", _recreate("id INTEGER, size VARCHAR(9) NOT NULL")],
        {"things.size may not be NULL any more"},
    ),
    (
        ["DROP TABLE things", _recreate("id INTEGER, size VARCHAR(8)")],
        {"things.size is narrower: VARCHAR(9), now VARCHAR(8)"},
    ),
]


@on_sqlite
def test_the_comparison_reports_exactly_the_breaking_changes(
    empty: Database, subtests: pytest.Subtests
) -> None:
    for statements, expected in CHANGES:
        _execute(empty, ["DROP TABLE IF EXISTS more", "DROP TABLE IF EXISTS things", THINGS])
        before = columns(empty)
        _execute(empty, statements)
        with subtests.test(statements=statements):
            assert set(breaks(before, columns(empty))) == expected


def _execute(database: Database, statements: list[str]) -> None:
    with database.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
