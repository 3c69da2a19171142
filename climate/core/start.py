"""The start of a lease: what it waits for, and how far it has come. Pure."""

from datetime import datetime
from enum import StrEnum

from climate.core.record import record


class StartWhen(StrEnum):
    """What a start waits for: its time alone, or also for its hosts to be ready."""

    SCHEDULED = "scheduled"
    READY = "ready"


@record(frozen=True, slots=True, kw_only=True)
class Start:
    """The start of a lease; each moment is None until it has come.

    At ``ready_at`` the last host was ready, at ``delayed_at`` a notification announced that the
    start waits for hosts, at ``started_at`` everything was handed over.
    """

    when: StartWhen = StartWhen.SCHEDULED
    ready_at: datetime | None = None
    delayed_at: datetime | None = None
    started_at: datetime | None = None
