import re
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from climate.db import schema
from climate.db.engine import GUARD, Database
from climate.db.outbox_tables import OutboxRow
from climate.db.schema import SchemaMismatch
from climate.db.tables import Base
from tests import servers
from tests.support import allocation_guard as guard

TABLES = sorted(Base.metadata.tables)


@pytest.fixture
def fresh(backend: str, tmp_path: Path) -> Iterator[Database]:
    """Return a database of each kind that has nothing in it, not even a schema."""
    made = _fresh(backend, tmp_path / "fresh.sqlite")
    yield made
    made.dispose()


@pytest.fixture
def modelled(backend: str, tmp_path: Path) -> Iterator[Database]:
    """Return a database that was made from the models instead of migrated."""
    made = _fresh(backend, tmp_path / "modelled.sqlite")
    Base.metadata.create_all(made.engine)
    yield made
    made.dispose()


def _fresh(backend: str, path: Path) -> Database:
    return Database(f"sqlite:///{path}" if backend == "sqlite" else servers.create(backend))


def _tables(database: Database) -> list[str]:
    return sorted(sa.inspect(database.engine).get_table_names())


def _in_its_own_words(database: Database) -> list[str]:
    """Return what the database says about columns, keys, checks, indexes and triggers."""
    with database.engine.connect() as connection:
        if database.dialect == "mysql":
            made = [connection.exec_driver_sql(f"SHOW CREATE TABLE {name}") for name in TABLES]
            rows = [found.one()[1] for found in made]
        else:
            rows = list(connection.exec_driver_sql(_CATALOG[database.dialect]).scalars())
    if database.dialect == "postgresql":
        return sorted(rows)
    lines = [f"{row.split('(')[0]}: {line}" for row in rows for line in re.split(_NEXT_LINE, row)]
    return sorted(re.sub(r"\s+", " ", line).rstrip(", ") for line in lines)


# A column that SQLite added later stands in the line of the one before it.
_NEXT_LINE = r"\n|, (?=\w+ [A-Z])"
_CATALOG = {
    "sqlite": "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%%'",
    "postgresql": """
        SELECT * FROM (
            SELECT concat_ws(' ', table_name, column_name, data_type, is_nullable,
                character_maximum_length, collation_name, column_default) AS line
            FROM information_schema.columns WHERE table_schema = 'public'
            UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
            UNION ALL SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid))
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
        ) AS everything WHERE line NOT LIKE '%%alembic%%'
    """,
}


def test_migrations_go_up_down_and_up_again(fresh: Database) -> None:
    schema.upgrade(fresh)
    first = _in_its_own_words(fresh)
    schema.downgrade(fresh, "base")
    assert _tables(fresh) == ["alembic_version"]
    assert schema.current(fresh) is None
    schema.upgrade(fresh)
    assert _in_its_own_words(fresh) == first
    schema.check(fresh)


def test_upgrading_twice_changes_nothing(fresh: Database) -> None:
    schema.upgrade(fresh)
    first = _in_its_own_words(fresh)
    schema.upgrade(fresh)
    assert _in_its_own_words(fresh) == first


def test_alembic_finds_nothing_to_migrate_from_the_schema_to_the_models(fresh: Database) -> None:
    schema.upgrade(fresh)
    with fresh.engine.connect() as connection, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*PERIOD FOR .busy.", sa.exc.SAWarning)
        # It cannot tell whether two spellings of an expression mean the same; the next test can.
        warnings.filterwarnings("ignore", "Computed default on allocations.whole_id")
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, Base.metadata)
    # MariaDB's guard is an index that models cannot describe.
    expected = [("remove_index", GUARD)] if fresh.dialect == "mysql" else []
    assert [(what, *(item.name for item in items)) for what, *items in found] == expected


def test_but_for_the_guard_the_migrated_schema_is_the_one_that_the_models_make(
    fresh: Database, modelled: Database
) -> None:
    schema.upgrade(fresh)
    guard.drop(fresh)
    assert _in_its_own_words(fresh) == _in_its_own_words(modelled)


@pytest.mark.parametrize(
    ("backend", "guards"),
    [
        (
            "sqlite",
            [
                "TRIGGER allocations_no_overlap_insert BEFORE INSERT ON allocations",
                "TRIGGER allocations_no_overlap_update BEFORE UPDATE OF",
                "AND (NEW.resource_class IS NULL OR other.resource_class IS NULL)",
                "CONSTRAINT allocations_window CHECK (start_at < busy_until)",
            ],
        ),
        (
            "postgresql",
            [
                "gist (resource_id WITH =, tstzrange(start_at, busy_until) WITH &&, (",
                "allocations_window CHECK ((start_at < busy_until))",
            ],
        ),
        (
            "mariadb",
            [
                "UNIQUE KEY `allocations_no_overlap` (`whole_id`,`busy` WITHOUT OVERLAPS)",
                "PERIOD FOR `busy` (`start_at`, `busy_until`)",
                "CONSTRAINT `allocations_window` CHECK (`start_at` < `busy_until`)",
            ],
        ),
    ],
    indirect=["backend"],
)
def test_the_schema_has_every_guard_of_allocations(fresh: Database, guards: list[str]) -> None:
    schema.upgrade(fresh)
    lines = _in_its_own_words(fresh)
    missing = [wanted for wanted in guards if not any(wanted in line for line in lines)]
    assert missing == [], "\n".join(lines)


def test_the_relays_row_is_there_after_a_migration(fresh: Database) -> None:
    schema.upgrade(fresh)
    with fresh.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT id, last_seq FROM relay").all() == [(1, 0)]


@pytest.mark.parametrize("published", [0, 2, 3])
def test_how_far_a_relay_has_published_goes_along(fresh: Database, published: int) -> None:
    """Of three numbered notifications and a new one: marks become a number, and it marks again."""
    schema.upgrade(fresh, "0017")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    told = {"message_id": "m", "event_type": "kind", "project_id": "p", "payload": {}}
    rows = [
        {"seq": seq, "published_at": moment if seq and seq <= published else None}
        for seq in (1, 2, 3, None)
    ]
    with fresh.engine.begin() as connection:
        insert = sa.insert(OutboxRow.metadata.tables["outbox"])
        connection.execute(insert, [{**told, "created_at": moment, **row} for row in rows])
        connection.exec_driver_sql("UPDATE relay SET last_seq = 3")
    schema.upgrade(fresh)
    with fresh.engine.begin() as connection:
        found = connection.exec_driver_sql("SELECT published_seq FROM relay").scalar_one()
        assert found == published
        connection.exec_driver_sql("UPDATE outbox SET published_at = NULL")
    schema.downgrade(fresh, "0017")
    marked = "SELECT count(*), max(seq) FROM outbox WHERE published_at IS NOT NULL"
    with fresh.engine.connect() as connection:
        row = connection.exec_driver_sql(marked).one()
    assert tuple(row) == (published, published or None)


def test_an_empty_database_is_refused_with_what_to_run(fresh: Database) -> None:
    with pytest.raises(SchemaMismatch) as refusal:
        schema.check(fresh)
    sentence = str(refusal.value)
    assert "is empty" in sentence
    assert f"works with {schema.head()}" in sentence
    assert "run 'climate-db-manage upgrade'" in sentence


def test_an_unknown_revision_is_refused_with_what_to_run(fresh: Database) -> None:
    schema.upgrade(fresh)
    with fresh.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'ffff'")
    with pytest.raises(SchemaMismatch) as refusal:
        schema.check(fresh)
    sentence = str(refusal.value)
    assert "is at ffff, which this release does not know" in sentence
    assert "run the release that made it, or downgrade with that release's" in sentence
    assert "climate-db-manage" in sentence
