"""Migrations create the schema of the models, and every database keeps its guards."""

import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from climate.cmd import main
from climate.db.engine import schema
from climate.db.engine.database import Database
from climate.db.engine.galera import GUARD
from climate.db.engine.schema import SchemaMismatch
from climate.db.tables.leases import Base
from climate.db.tables.notifications import OutboxRow
from tests.support import allocation_guard, servers
from tests.support.backends import on_sqlite
from tests.support.schema_description import described, tables


@pytest.fixture
def empty(backend: str, tmp_path: Path) -> Iterator[Database]:
    """Return a database of each kind without a schema."""
    database = _create(backend, tmp_path / "empty.sqlite")
    yield database
    database.dispose()


@pytest.fixture
def modelled(backend: str, tmp_path: Path) -> Iterator[Database]:
    """Return a database with the schema of the models, not of the migrations."""
    database = _create(backend, tmp_path / "modelled.sqlite")
    Base.metadata.create_all(database.engine)
    yield database
    database.dispose()


def _create(backend: str, path: Path) -> Database:
    return Database(f"sqlite:///{path}" if backend == "sqlite" else servers.create(backend))


def test_migrations_go_up_down_and_up_again(empty: Database) -> None:
    schema.upgrade(empty)
    first = described(empty)
    schema.upgrade(empty)
    assert described(empty) == first, "a second upgrade changes nothing"
    schema.downgrade(empty, "base")
    assert tables(empty) == ["alembic_version"]
    assert schema.current(empty) is None
    schema.upgrade(empty)
    assert described(empty) == first
    schema.check(empty)


def test_alembic_finds_no_difference_between_the_schema_and_the_models(database: Database) -> None:
    with database.engine.connect() as connection, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*PERIOD FOR .busy.", sa.exc.SAWarning)
        # Alembic cannot compare two spellings of an expression; the next test can.
        warnings.filterwarnings("ignore", "Computed default on allocations.whole_id")
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        differences = compare_metadata(context, Base.metadata)
    # MariaDB's guard is an index that models cannot describe.
    expected = [("remove_index", GUARD)] if database.dialect == "mysql" else []
    # Alembic does not know that the models declare these for PostgreSQL only, or for the others.
    expected += (
        [("add_constraint", "outbox_seq_key")]
        if database.dialect == "postgresql"
        else [("add_index", "outbox_new"), ("add_index", "outbox_numbered")]
    )
    found = sorted((kind, *(item.name for item in items)) for kind, *items in differences)
    assert found == sorted(expected)


def test_migrations_create_the_schema_of_the_models_and_the_guard(
    empty: Database, modelled: Database
) -> None:
    schema.upgrade(empty)
    allocation_guard.drop(empty)
    # Models describe no triggers; the tests of the booking feed need all of them.
    lines = [line for line in described(empty) if not line.startswith("CREATE TRIGGER")]
    assert lines == described(modelled)


GUARDS = {
    "sqlite": [
        "TRIGGER allocations_no_overlap_insert BEFORE INSERT ON allocations",
        "TRIGGER allocations_no_overlap_update BEFORE UPDATE OF",
        "AND (NEW.resource_class IS NULL OR other.resource_class IS NULL)",
        "CONSTRAINT allocations_window CHECK (start_at < busy_until)",
    ],
    "postgresql": [
        "gist (resource_id WITH =, tstzrange(start_at, busy_until) WITH &&, (",
        "allocations_window CHECK ((start_at < busy_until))",
    ],
    "mysql": [
        "UNIQUE KEY `allocations_no_overlap` (`whole_id`,`busy` WITHOUT OVERLAPS)",
        "PERIOD FOR `busy` (`start_at`, `busy_until`)",
        "CONSTRAINT `allocations_window` CHECK (`start_at` < `busy_until`)",
    ],
}


def test_the_schema_has_every_guard_of_allocations(database: Database) -> None:
    lines = described(database)
    guards = GUARDS[database.dialect]
    missing = [guard for guard in guards if not any(guard in line for line in lines)]
    assert missing == [], "\n".join(lines)


@on_sqlite
def test_a_migrated_database_has_the_row_of_the_relay(empty: Database) -> None:
    schema.upgrade(empty)
    with empty.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT id, last_seq FROM relay").all() == [(1, 0)]


def test_the_relays_progress_survives_an_upgrade_and_a_downgrade(empty: Database) -> None:
    """Revision 0018 replaces marks on notifications by the number of the last published one."""
    schema.upgrade(empty, "0017")
    for published in (0, 2, 3):
        _store_notifications(empty, published)
        schema.upgrade(empty)
        with empty.engine.begin() as connection:
            progress = connection.exec_driver_sql("SELECT published_seq FROM relay").scalar_one()
            assert progress == published
            connection.exec_driver_sql("UPDATE outbox SET published_at = NULL")
        schema.downgrade(empty, "0017")
        marked = "SELECT count(*), max(seq) FROM outbox WHERE published_at IS NOT NULL"
        with empty.engine.connect() as connection:
            row = connection.exec_driver_sql(marked).one()
        assert tuple(row) == (published, published or None)


def _store_notifications(database: Database, published: int) -> None:
    """Store three numbered notifications, the first ones published, and one without a number."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    common = {"message_id": "m", "event_type": "kind", "project_id": "p", "payload": {}}
    rows = [
        {"seq": seq, "published_at": moment if seq and seq <= published else None}
        for seq in (1, 2, 3, None)
    ]
    outbox = OutboxRow.metadata.tables["outbox"]
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM outbox")
        connection.execute(
            sa.insert(outbox), [{**common, "created_at": moment, **row} for row in rows]
        )
        connection.exec_driver_sql("UPDATE relay SET last_seq = 3")


@on_sqlite
def test_rejects_an_empty_database_and_says_what_to_run(empty: Database) -> None:
    with pytest.raises(SchemaMismatch) as error:
        schema.check(empty)
    message = str(error.value)
    assert "is empty" in message
    assert f"works with {schema.head()}" in message
    assert "run 'climate-db-manage upgrade'" in message


@on_sqlite
def test_rejects_an_unknown_revision_and_says_what_to_run(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'ffff'")
    with pytest.raises(SchemaMismatch) as error:
        schema.check(database)
    message = str(error.value)
    assert "is at ffff, which this release does not know" in message
    assert "run the release that made it, or downgrade with that release's" in message
    assert "climate-db-manage" in message


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_a_statement_of_a_migration_may_take_hours(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def upgrade(database: Database, _revision: str) -> None:
        with database.engine.connect() as connection:
            shown.append(connection.scalar(sa.text("SHOW statement_timeout")))

    monkeypatch.setattr(schema, "upgrade", upgrade)
    url = empty.engine.url.render_as_string(hide_password=False)
    assert main.db_manage(["upgrade", "--database", url]) == 0
    assert shown == ["6h"]
