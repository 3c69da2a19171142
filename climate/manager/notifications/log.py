"""The log of notifications: read it from a number on, wait for new ones, remove old ones.

Each notification has a number, which grows from one notification to the next.
"""

import time

from sqlalchemy.orm import Session

from climate.core.errors import NotificationsRemoved
from climate.core.notifications.message import Matches, NotificationFilter
from climate.core.settings import Settings
from climate.db.notifications import outbox, subscriptions
from climate.manager.process.runtime import Runtime, Store, reading

# Rows per transaction, so that none locks rows for long, and transactions per call.
_BATCH = 500
_BATCHES = 10

last_seq = reading(outbox.last_seq)


def find_after(
    runtime: Runtime, wanted: NotificationFilter, after: int | None, limit: int
) -> Matches:
    """Return up to ``limit`` notifications that match ``wanted``, the oldest first.

    The function searches the notifications whose numbers are above ``after``. Raises
    NotificationsRemoved if some of these have been removed.

    If ``after`` is None, the function searches all stored notifications. To skip all notifications
    up to now, call it with ``after`` None and ``limit`` 0: then the result is empty, and its field
    ``after`` is the number of the last notification.
    """
    with runtime.database.read() as session:
        if after is None and limit == 0:
            return Matches(notifications=[], after=outbox.last_seq(session))
        part = outbox.find_after(session, wanted, after or 0, limit)
        removed = outbox.removed_seq(session)
    if after is not None and after < removed:
        raise NotificationsRemoved(
            f"Notifications up to {removed} are not kept any more, so some after {after} may be"
            f" missing: go on with after={removed}, and look at the leases themselves",
            {"oldest": removed + 1},
        )
    return part


def wait_after(
    runtime: Runtime,
    wanted: NotificationFilter,
    after: int | None,
    limit: int,
    *,
    seconds: float,
    project_id: str,
) -> Matches:
    """Return the result of ``find_after``; if nothing matches, first wait for a match.

    The wait lasts at most ``seconds``; if no match comes in that time, the result is empty.
    ``project_id`` is the requester's project. Raises NotificationsRemoved. Raises TooManyFollowers
    if too many requests are waiting already.
    """
    part = find_after(runtime, wanted, after, limit)
    if part.notifications or seconds <= 0:
        return part
    deadline = time.monotonic() + seconds
    with runtime.latest.place(project_id):
        while not part.notifications and runtime.latest.wait(
            part.after, deadline - time.monotonic()
        ):
            part = find_after(runtime, wanted, part.after, limit)
    return part


def forget_old(store: Store, settings: Settings) -> None:
    """Remove published notifications that are older than the setting ``notifications_kept``.

    If this setting is None, remove nothing. A call removes at most 5,000 notifications; the next
    call continues.
    """
    age = settings.notifications_kept
    if age is None:
        return
    before = store.clock.now() - age
    with store.database.read() as session:
        if not outbox.is_old(session, before):
            return

    def remove(session: Session) -> bool:
        through = outbox.removable(session, before, _BATCH)
        if through is None:
            return False
        subscriptions.catch_up(session, through)
        outbox.remove(session, through)
        return True

    for _ in range(_BATCHES):
        if not store.database.write(remove):
            return
