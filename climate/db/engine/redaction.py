"""Redaction: remove values from the error messages of the database, because climate logs them.

SQLAlchemy's option ``hide_parameters`` keeps SQL parameters out of error messages. But servers also
quote values in their messages. PostgreSQL quotes values in the lines after the first ("Key
(id)=(...)", "Failing row contains (...)"). If a value itself is invalid, PostgreSQL quotes this
value in the first line ("invalid input syntax for type uuid: ..."). MariaDB writes values in quotes
("Duplicate entry '...' for key ...").
"""

import re

import sqlalchemy as sa
from sqlalchemy import event

# A quoted value; the name of a key or a column after it stays.
_MARIADB_VALUE = re.compile(r"'.*'(?= for | at (?:row|line) )|(?<=: )'.*'$", re.DOTALL)
# SQLSTATE class 22: data exception.
_DATA = "22"


def watch(engine: sa.Engine) -> None:
    """Remove values from the message of each error that ``engine`` raises from now on."""
    event.listen(engine, "handle_error", _redact)


def _redact(context: sa.engine.ExceptionContext) -> None:
    error, wrapped = context.original_exception, context.sqlalchemy_exception
    message = str(error)
    redact(error, context.dialect.name)
    if wrapped is not None:
        wrapped.args = (wrapped.args[0].replace(message, str(error)),)


def redact(error: BaseException, dialect: str) -> None:
    """Remove values from the message of an error that the driver raised."""
    state = getattr(error, "sqlstate", None)
    if dialect == "postgresql" and state:
        is_about_data = state.startswith(_DATA)
        error.args = (type(error).__name__ if is_about_data else str(error).partition("\n")[0],)
    elif dialect == "mysql":
        error.args = tuple(
            _MARIADB_VALUE.sub("a value", part) if isinstance(part, str) else part
            for part in error.args
        )
