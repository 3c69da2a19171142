"""Limit how long a migration waits for tables that other transactions use.

A schema change needs the table for itself. While the schema change waits for the transactions that
use the table, every new statement on the table waits behind the schema change.

By default, MariaDB lets a schema change wait for a day. In a migration, it waits for ``WAIT``
seconds. Then it fails with error 1205, the requests behind it go on, and after a pause the
migration repeats the statement. That is safe: a schema change that fails changes nothing.

On PostgreSQL, the migration is one transaction, which keeps the locks of its earlier statements. So
a second attempt would not let the requests go on. ``lock_timeout`` ends the migration instead.

On a Galera cluster, a schema change aborts the transactions in its way, and all nodes make it at
the same moment. So there is no limit: the change must not fail on a single node.

Only migrations set this limit on MariaDB. Other programs wait for a table only while a schema
change has it or waits for it, and the read timeout of their connections limits that.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

from climate.core.errors import OperatorError
from climate.db.engine import galera

LOG = logging.getLogger(__name__)
#: Seconds that a statement of a migration waits for a table on MariaDB, in each attempt.
WAIT = 3
#: Seconds between two attempts, in which requests can use the table.
PAUSE = 3.0
#: Attempts of one statement. This is not a limit of time: an attempt may copy a large table, and
#: wait for the table only then.
ATTEMPTS = 50

_LOCK_WAIT_TIMEOUT = 1205  # MariaDB
_LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL
_TABLE = re.compile(
    r"\b(?:TABLE(?: IF(?: NOT)? EXISTS)?|(?:AFTER \w+|INDEX(?: IF NOT EXISTS)? \w+) ON"
    r"|INTO|FROM|UPDATE)\s+(\w+)"
)
# MariaDB and PostgreSQL also lock the tables that the foreign keys of a new table lead to.
_REFERENCED = re.compile(r"\bREFERENCES (\w+)")
_ADVICE = {
    "mysql": (
        "'SHOW PROCESSLIST' lists the sessions; one that sleeps can have an open transaction. End"
        " the session, or wait for its end, and run the command again: it continues with the"
        " migration that it did not complete"
    ),
    "postgresql": (
        "'SELECT pid, state, xact_start, query FROM pg_stat_activity ORDER BY xact_start' lists the"
        " transactions. End the oldest ones, or wait for their end, and run the command again: it"
        " has changed nothing"
    ),
}


class TableInUse(OperatorError):
    """Raised if a migration did not get a table, because other transactions use the table."""


@contextmanager
def limited(connection: sa.Connection) -> Iterator[None]:
    """Return a context in which statements of ``connection`` wait for tables as described above.

    Raises TableInUse if a statement does not get its table.
    """
    try:
        if connection.dialect.name == "mysql" and not galera.is_galera(connection):
            with _repeated(connection):
                yield
        else:
            yield
    except exc.OperationalError as error:
        if not _is_timeout(error.orig):
            raise
        raise TableInUse(
            f"cannot lock {described(error.statement or '')}, which other transactions use."
            f" {_ADVICE[connection.dialect.name]}"
        ) from error


@contextmanager
def _repeated(connection: sa.Connection) -> Iterator[None]:
    """Return a context in which ``connection`` repeats statements that do not get their table."""

    def execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:  # noqa: ANN401
        if context.root_connection is not connection:
            return False
        attempts = Retrying(
            retry=retry_if_exception(_is_timeout),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_fixed(PAUSE),
            before_sleep=lambda state: _report(statement, state.attempt_number),
            reraise=True,
        )
        attempts(context.dialect.do_execute, cursor, statement, parameters, context)
        return True

    connection.detach()  # the pool must not lend a session with this setting to others
    connection.exec_driver_sql(f"SET lock_wait_timeout = {WAIT}")
    event.listen(connection.engine, "do_execute", execute)
    try:
        yield
    finally:
        event.remove(connection.engine, "do_execute", execute)


def _report(statement: str, attempt: int) -> None:
    if attempt == 1:
        LOG.warning("Waiting for %s, which other transactions use", described(statement))


def _is_timeout(error: BaseException | None) -> bool:
    """Return whether a driver's error means that a statement waited too long for a lock."""
    is_mariadb = error is not None and error.args[:1] == (_LOCK_WAIT_TIMEOUT,)
    return is_mariadb or getattr(error, "sqlstate", None) == _LOCK_NOT_AVAILABLE


def described(statement: str) -> str:
    """Return the tables that a statement of a migration locks, such as "the table leases"."""
    changed = _TABLE.search(statement)
    if changed is None:
        return f"the table of '{statement}'"
    names = dict.fromkeys([changed[1], *_REFERENCED.findall(statement)])
    return f"the table{'s' if len(names) > 1 else ''} {', '.join(names)}"
