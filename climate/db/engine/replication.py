"""Detection of commits on PostgreSQL that the synchronous standby has not confirmed.

If something interrupts the wait for the standby (a statement time-out, an administrator),
PostgreSQL commits on the primary alone, sends a warning, and reports success. If the standby is
then promoted to primary, the commit is lost. So climate treats the warning as a failure: the API
answers the request with 503. Source: PostgreSQL's ``SyncRepWaitForLSN``
(src/backend/replication/syncrep.c).
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from sqlalchemy import exc

_SOURCE = "SyncRepWaitForLSN"
# The driver calls the handler in the thread that commits.
_here = threading.local()


def watch(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI is untyped
    """Let a new connection store the warning that the standby has not confirmed a commit.

    ``confirmed_commit`` reads the stored warning.
    """
    connection.add_notice_handler(_note)


def _note(diagnostic: Any) -> None:  # noqa: ANN401 - DBAPI is untyped
    if diagnostic.source_function == _SOURCE:  # the text of the warning depends on the language
        _here.warning = diagnostic.message_primary


@contextlib.contextmanager
def confirmed_commit() -> Iterator[None]:
    """Return a context for a commit; raise OperationalError if the standby does not confirm it.

    The caller commits inside the context. The error is raised at the end of the context.
    """
    _here.warning = None
    yield
    if _here.warning is not None:
        reason = RuntimeError(f"only the primary has the commit: {_here.warning}")
        raise exc.OperationalError("COMMIT", None, reason)
