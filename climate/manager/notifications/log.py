"""The log of notifications: read from a cursor on, waited at, and cut off at its old end."""

import time
from datetime import datetime

from sqlalchemy.orm import Session

from climate.core.errors import NotificationsRemoved
from climate.core.notification import Found, NotificationFilter
from climate.db import outbox, subscriptions
from climate.manager.process.runtime import Runtime

# What is removed at once, and how often in one go.
_BATCH = 500
_BATCHES = 10


def find_after(
    runtime: Runtime, wanted: NotificationFilter, after: int | None, limit: int
) -> Found:
    """Return up to ``limit`` notifications later than ``after`` (None: all that is kept).

    Raises NotificationsRemoved if some later than ``after`` are not kept any more.
    """
    with runtime.database.read() as session:
        found = outbox.find_after(session, wanted, after or 0, limit)
        removed = outbox.removed_seq(session)
    if after is not None and after < removed:
        raise NotificationsRemoved(
            f"Notifications up to {removed} are not kept any more, so some after {after} may be"
            f" missing: go on with after={removed}, and look at the leases themselves",
            {"oldest": removed + 1},
        )
    return found


def wait_after(
    runtime: Runtime, wanted: NotificationFilter, after: int | None, limit: int, seconds: float
) -> Found:
    """Return what ``find_after`` does, as soon as there is any, at the latest after ``seconds``.

    Raises NotificationsRemoved, and TooManyFollowers if there is nothing yet and no place to wait.
    """
    found = find_after(runtime, wanted, after, limit)
    if found.notifications or seconds <= 0:
        return found
    deadline = time.monotonic() + seconds
    with runtime.latest.place():
        while not found.notifications and runtime.latest.wait(
            found.after, deadline - time.monotonic()
        ):
            found = find_after(runtime, wanted, found.after, limit)
    return found


def last_seq(runtime: Runtime) -> int:
    """Return the last number that was given."""
    with runtime.database.read() as session:
        return outbox.last_seq(session)


def forget_old(runtime: Runtime) -> int:
    """Remove published notifications of long ago; return in how many small batches."""
    kept = runtime.settings.notifications_kept
    if kept is None:
        return 0
    before = runtime.clock.now() - kept
    with runtime.database.read() as session:
        if not outbox.is_old(session, before):
            return 0

    for removed in range(_BATCHES):
        if runtime.database.write(lambda session: _remove(session, before)) is None:
            return removed
    return _BATCHES


def _remove(session: Session, before: datetime) -> int | None:
    """Remove a batch; return through which number, None if there was nothing."""
    through = outbox.removable(session, before, _BATCH)
    if through is not None:
        subscriptions.catch_up(session, through)
        outbox.remove(session, through)
    return through
