"""What operators watch: use of the capacity, manager processes, and overdue events."""

from collections.abc import Iterator
from datetime import datetime

from climate.client.models import Model
from climate.client.transport import Transport

Time = datetime | str


class UtilisationSeries(Model, frozen=True, kw_only=True):
    """The occupied part of a group of resources, from 0 to 1, in each period."""

    name: str
    capacity: int
    values: list[float]


class Utilisation(Model, frozen=True, kw_only=True):
    """The part of the capacity that leases occupy; ``period`` is ``hour``, ``day`` or ``week``."""

    start: datetime
    end: datetime
    period: str
    series: list[UtilisationSeries]


class Loop(Model, frozen=True, kw_only=True):
    """A periodic task of a manager: seconds since its last good run, and between two runs."""

    age: float
    interval: float


class Manager(Model, frozen=True, kw_only=True):
    """A manager process. ``stalled`` has the seconds since the last good run of stalled loops."""

    id: str
    started_at: datetime
    beat_at: datetime
    alive: bool
    loops: dict[str, Loop]
    stalled: dict[str, float]


class Lateness(Model, frozen=True, kw_only=True):
    """The work that waits for managers: due events by type, and unpublished notifications."""

    due: dict[str, int]
    oldest_due_at: datetime | None = None
    unpublished: int = 0
    unpublished_since: datetime | None = None


class Managers(Model, frozen=True, kw_only=True):
    """The managers with a heartbeat in the last day, and the work that waits for them."""

    managers: list[Manager]
    lateness: Lateness
    warnings: list[str]
    now: datetime


class BlockingLease(Model, frozen=True, kw_only=True):
    """A lease that must end first; it occupies ``resource``."""

    lease_id: str
    lease_name: str
    resource: str


class OverdueEvent(Model, frozen=True, kw_only=True):
    """An event of a lease that should have run by now, and why it has not.

    ``cause`` is for programs, ``reason`` for people. ``lease_id`` is None if the lease was deleted.
    """

    id: str
    lease_id: str | None = None
    lease_name: str | None = None
    project_id: str | None = None
    type: str
    due_at: datetime
    late_seconds: float
    attempt: int
    next_attempt_at: datetime
    owner: str | None = None
    last_error: str | None = None
    cause: str
    reason: str
    blocked_by: BlockingLease | None = None


class Operations:
    """What operators watch. All methods raise the errors of ``Transport.send``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def utilisation(
        self,
        *,
        start: Time,
        end: Time,
        period: str | None = None,
        by: str | None = None,
        resource_type: str | None = None,
        property: str | None = None,  # noqa: A002 - the name in the API
    ) -> Utilisation:
        """Return which part of the capacity leases occupy in each period.

        ``by`` groups the result by ``type``, ``project`` or ``property``. The latter two need a
        ``resource_type``.
        """
        query = {
            "start": start,
            "end": end,
            "period": period,
            "by": by,
            "resource_type": resource_type,
            "property": property,
        }
        return self._transport.get("/utilisation", Utilisation, query)

    def managers(self) -> Managers:
        """Return the managers with a heartbeat in the last day, and the work that waits."""
        return self._transport.get("/managers", Managers)

    def overdue_events(self, *, limit: int | None = None) -> Iterator[OverdueEvent]:
        """Yield the overdue events of all leases; ``limit`` is the size of a page."""
        return self._transport.pages("/overdue-events", "events", OverdueEvent, {"limit": limit})
