"""Reading the log of notifications from a cursor on."""

from climate.core.notification import Notification
from climate.db import outbox
from climate.manager.runtime import Runtime


def find_after(
    runtime: Runtime, after: int, limit: int, project_id: str | None
) -> list[Notification]:
    """Return up to ``limit`` notifications later than ``after``, of a project or of all."""
    with runtime.database.read() as session:
        return outbox.find_after(session, after, limit, project_id)
