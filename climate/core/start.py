"""When a lease begins: what was asked for, and what came of it. Pure."""

from datetime import datetime
from enum import StrEnum

from climate.core.record import record


class StartWhen(StrEnum):
    """What a start waits for: its time alone, or also for its hosts to be ready."""

    SCHEDULED = "scheduled"
    READY = "ready"


@record(frozen=True, slots=True, kw_only=True)
class Start:
    """How a lease begins; each moment is None as long as it has not come.

    At ``ready_at`` the last of its hosts was ready, at ``delayed_at`` it was told that the start
    has to wait for some, at ``started_at`` all was handed over.
    """

    when: StartWhen = StartWhen.SCHEDULED
    ready_at: datetime | None = None
    delayed_at: datetime | None = None
    started_at: datetime | None = None
