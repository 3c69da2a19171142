"""Broken triggers of MariaDB: an interrupted statement must not make later ones fail."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from climate.db.engine import triggers
from climate.db.engine.database import Database, is_unavailable
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


def _update(session: Session) -> None:
    session.execute(sa.text(_UPDATE))


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
    database.write(_update)


@pytest.fixture
def limited(database: Database) -> Iterator[Callable[[str], Database]]:
    """Return a function that opens the database as a user with certain privileges on its tables."""
    url = database.engine.url.set(username="climate_limited", password="x")
    opened = []

    def as_user(privileges: str) -> Database:
        with database.engine.begin() as connection:
            connection.exec_driver_sql("DROP USER IF EXISTS climate_limited")
            connection.exec_driver_sql("CREATE USER climate_limited IDENTIFIED BY 'x'")
            connection.exec_driver_sql(f"GRANT {privileges} ON {url.database}.* TO climate_limited")
        opened.append(Database(url.render_as_string(hide_password=False)))
        return opened[-1]

    yield as_user
    for each in opened:
        each.dispose()
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP USER IF EXISTS climate_limited")
    triggers.reopen(database.engine)


def test_a_broken_trigger_that_stays_is_an_outage(
    database: Database, limited: Callable[[str], Database]
) -> None:
    database.write(_add)
    _break_trigger(database)
    with pytest.raises(ProgrammingError) as caught:
        limited("SELECT, UPDATE").write(_update)
    assert is_unavailable(caught.value), "the API answers 503"
