"""Expand first, contract later: what a migration does, the release before must be able to bear.

Each is judged by the schema before and after it, so whatever way it takes there.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from climate.db import schema
from climate.db.engine import Database
from tests import servers

Columns = Mapping[tuple[str, str], Mapping[str, Any]]

# What was done before the rule, when nothing was released: by revision.
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
    """Say what code that knows the schema before cannot bear."""
    tables = {table for table, _ in before}
    for table, name in before.keys() - after.keys():
        yield f"{table}.{name} is gone"
    for (table, name), column in after.items():
        if table not in tables:
            continue
        is_left_out = column["nullable"] or column["default"] is not None or "computed" in column
        old = before.get((table, name))
        if old is None and not is_left_out:
            yield f"{table}.{name} is new and must be given"
        elif old is not None and old["nullable"] and not is_left_out:
            yield f"{table}.{name} may not be NULL any more"
        elif old is not None and _is_narrower(old["type"], column["type"]):
            yield f"{table}.{name} has become narrower: {old['type']}, now {column['type']}"


def _is_narrower(old: Any, new: Any) -> bool:
    lengths = (getattr(old, "length", None), getattr(new, "length", None))
    return lengths[1] is not None and (lengths[0] is None or lengths[1] < lengths[0])


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    made = Database(f"sqlite:///{tmp_path}/empty.sqlite")
    yield made
    made.dispose()


@pytest.fixture
def fresh(backend: str, tmp_path: Path) -> Iterator[Database]:
    is_sqlite = backend == "sqlite"
    made = Database(f"sqlite:///{tmp_path}/f.sqlite" if is_sqlite else servers.create(backend))
    yield made
    made.dispose()


@pytest.mark.filterwarnings("ignore:Unknown schema content.*PERIOD FOR")
def test_no_migration_breaks_the_code_of_the_schema_before(fresh: Database) -> None:
    before: Columns = {}
    for revision in schema.revisions():
        schema.upgrade(fresh, revision)
        after = columns(fresh)
        found = set(breaks(before, after))
        assert found == BEFORE_THE_RULE.get(revision, set()), revision
        before = after
    assert ("leases", "status") in before


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda op: op.drop_column("things", "size"), {"things.size is gone"}),
        (
            lambda op: op.alter_column("things", "size", new_column_name="extent"),
            {"things.size is gone"},
        ),
        (lambda op: op.drop_table("things"), {"things.id is gone", "things.size is gone"}),
        (
            lambda op: op.execute("ALTER TABLE things ADD COLUMN owner TEXT NOT NULL DEFAULT ''"),
            set(),
        ),
        (lambda op: op.add_column("things", sa.Column("owner", sa.Text())), set()),
        (lambda op: op.create_table("more", sa.Column("id", sa.Integer(), nullable=False)), set()),
    ],
)
def test_what_breaks_old_code_is_seen(empty: Database, change: Any, found: set[str]) -> None:
    with empty.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE things (id INTEGER NOT NULL, size VARCHAR(9))")
    before = columns(empty)
    with empty.engine.begin() as connection:
        change(Operations(MigrationContext.configure(connection)))
    assert set(breaks(before, columns(empty))) == found


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("size VARCHAR(9), owner TEXT NOT NULL", {"things.owner is new and must be given"}),
        ("size VARCHAR(9) NOT NULL", {"things.size may not be NULL any more"}),
        (
            "size VARCHAR(8)",
            {"things.size has become narrower: VARCHAR(9), now VARCHAR(8)"},
        ),
    ],
)
def test_a_table_that_is_made_anew_is_seen_as_well(
    empty: Database, table: str, found: set[str]
) -> None:
    with empty.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE things (size VARCHAR(9))")
    before = columns(empty)
    with empty.engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE things")
        connection.exec_driver_sql(f"CREATE TABLE things ({table})")
    assert set(breaks(before, columns(empty))) == found
