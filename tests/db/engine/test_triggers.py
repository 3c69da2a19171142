"""Broken triggers of MariaDB: an interrupted statement must not make later ones fail."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from climate.db.engine import triggers
from climate.db.engine.database import Database
from climate.db.tables.leases import ResourceRow
from tests.conftest import NOON

pytestmark = pytest.mark.parametrize("backend", ["mariadb"], indirect=True)
_UPDATE = "UPDATE resources SET reservable = NOT reservable"
# A few rounds are usually enough.
_ROUNDS = 1000


def _add(session: Session) -> None:
    session.execute(
        sa.insert(ResourceRow).values(
            type="physical:host", external_id="host", reservable=True, created_at=NOON
        )
    )


@contextmanager
def _repeating(step: Callable[[], object]) -> Iterator[None]:
    """Repeat ``step`` in a thread until the end of the context."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _meets_broken_trigger(connection: Any) -> bool:
    try:
        connection.cursor().execute(_UPDATE)
    except connection.Error as error:
        return triggers.is_broken(*error.args)
    return False


def _break_trigger(database: Database) -> None:
    """Interrupt statements until MariaDB keeps an open table with a broken trigger."""
    engine = database.engine.execution_options(isolation_level="AUTOCOMMIT")
    with ExitStack() as stack:
        victim, killer, flusher = (stack.enter_context(engine.connect()) for _ in range(3))
        raw: Any = victim.connection.dbapi_connection
        kill = f"KILL QUERY {raw.thread_id()}"
        for _ in range(_ROUNDS):
            with (
                _repeating(lambda: killer.exec_driver_sql(kill)),
                _repeating(lambda: flusher.exec_driver_sql("FLUSH TABLES resources")),
            ):
                for _ in range(20):
                    _meets_broken_trigger(raw)
            if _meets_broken_trigger(raw):
                return
    pytest.fail(f"{_ROUNDS} rounds of interruptions broke no trigger")


def test_a_write_repairs_a_broken_trigger(database: Database) -> None:
    database.write(_add)
    _break_trigger(database)
    database.write(lambda session: session.execute(sa.text(_UPDATE)))


def test_a_user_without_reload_repairs_a_broken_trigger(database: Database) -> None:
    url = database.engine.url
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP USER IF EXISTS climate_limited")
        connection.exec_driver_sql("CREATE USER climate_limited IDENTIFIED BY 'x'")
        connection.exec_driver_sql(f"GRANT ALL ON {url.database}.* TO climate_limited")
    limited = Database(
        url.set(username="climate_limited", password="x").render_as_string(hide_password=False)
    )
    try:
        database.write(_add)
        _break_trigger(database)
        limited.write(lambda session: session.execute(sa.text(_UPDATE)))
    finally:
        limited.dispose()
        with database.engine.begin() as connection:
            connection.exec_driver_sql("DROP USER climate_limited")
