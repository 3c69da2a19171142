"""Redaction: errors of the database contain no values, as errors are logged.

``hide_parameters`` of SQLAlchemy hides parameters. Servers also quote values in their messages:
PostgreSQL in the lines after the first ("Key (id)=(...)", "Failing row contains (...)"), MariaDB in
"Duplicate entry '...' for key ...".
"""

import re

import sqlalchemy as sa
from sqlalchemy import event

_MARIADB_VALUE = re.compile(r"'.*' for ", re.DOTALL)


def watch(engine: sa.Engine) -> None:
    """Remove values from the errors of an engine."""
    event.listen(engine, "handle_error", _redact)


def _redact(context: sa.engine.ExceptionContext) -> None:
    error, wrapped = context.original_exception, context.sqlalchemy_exception
    message = str(error)
    if context.dialect.name == "postgresql" and getattr(error, "sqlstate", None):
        error.args = (message.partition("\n")[0],)
    elif context.dialect.name == "mysql":
        error.args = tuple(
            _MARIADB_VALUE.sub("a value for ", part) if isinstance(part, str) else part
            for part in error.args
        )
    if wrapped is not None:
        wrapped.args = (wrapped.args[0].replace(message, str(error)),)
