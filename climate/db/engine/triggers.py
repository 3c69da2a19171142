"""Repair of triggers that MariaDB failed to read.

MariaDB parses the triggers of a table each time it opens the table, and keeps the open table for
later statements. If something interrupts the parsing, MariaDB keeps the open table with a broken
trigger, although the stored trigger is sound. From then on, each write that uses this open table
fails with error 1064, "... has an error in its body", until the server closes the table.

Interruptions are a schema change or a change by another node on Galera, which aborts transactions
in its way, and an administrator's KILL QUERY. Source: ``Table_triggers_list::check_n_load`` in
MariaDB's sql/sql_trigger.cc; seen with MariaDB 10.11.
"""

import logging
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

LOG = logging.getLogger(__name__)
_PARSE_ERROR = 1064
# "Trigger 'NAME' has an error ..." and "Unknown trigger has an error ..."; ``redaction`` may remove
# the rest. The message about an error in a statement begins with "You have an error".
_BEGINNINGS = ("Trigger ", "Unknown trigger ")
# The tables that have triggers.
_TABLES = ("allocations", "resources", "resource_properties")
# Limits the wait for statements that use the tables, in seconds.
_WAIT = 3


def is_broken(code: Any, message: Any) -> bool:  # noqa: ANN401 - arguments of a driver's error
    """Return whether an error of MariaDB means that an open table has a broken trigger."""
    return code == _PARSE_ERROR and str(message).startswith(_BEGINNINGS)


def reopen(engine: sa.Engine) -> None:
    """Let MariaDB close all tables that have triggers, so that it reads the triggers again.

    On Galera, all nodes do. A change of the comments closes the tables. FLUSH TABLES would do it
    too, but on Galera it locks the tables before its turn comes. A node that first has to apply the
    write of another node to these tables then waits for ever, and so does the whole cluster.

    Log a failure: the next write may fail then. Do nothing on other databases.
    """
    if engine.dialect.name != "mysql":
        return
    try:
        with engine.connect() as connection:
            for table in _TABLES:
                connection.exec_driver_sql(
                    f"SET STATEMENT lock_wait_timeout = {_WAIT} FOR ALTER TABLE {table} COMMENT ''"
                )
    except exc.DBAPIError:
        LOG.exception("MariaDB could not close the tables that have triggers")
