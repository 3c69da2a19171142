"""Search for windows in which a lease would fit, and that the limits of the requester allow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from climate.core.errors import LimitExceeded
from climate.core.window import Window
from climate.db import limits as rows
from climate.manager.admission.admission import dry_run
from climate.manager.admission.availability import (
    Offer,
    WindowSearch,
    check_time,
    offers,
    window_search,
)
from climate.manager.admission.candidates import Demand
from climate.manager.admission.limits import Guard, guard_without_lock
from climate.manager.admission.requirements import ReservationRequest, check_queries, needs_of
from climate.manager.process.runtime import Runtime

# The search ends after so many windows that limits forbid.
_MOST_FORBIDDEN = 50
# Start times to try in each range of starts, if limits forbid the earliest one.
_TRIES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeker:
    """The user who searches. With ``sees_private``, the queries may name private properties."""

    project_id: str
    user_id: str
    roles: tuple[str, ...]
    sees_private: bool


@dataclass(frozen=True, slots=True)
class ForbiddenWindow:
    """A window in which the lease would fit, but that a limit forbids; ``reason`` is for people."""

    window: Window
    reason: str


@dataclass(frozen=True, slots=True)
class FoundWindows:
    """The result of a search: windows that the limits allow, and windows that they forbid."""

    windows: Sequence[Offer]
    forbidden: Sequence[ForbiddenWindow]


def search_allowed(
    runtime: Runtime,
    requests: Sequence[ReservationRequest],
    length: timedelta,
    within: Window,
    limit: int,
    seeker: Seeker,
) -> FoundWindows:
    """Return up to ``limit`` windows in which all requests fit at once, the earliest first.

    Windows that limits forbid are listed apart, also up to ``limit``. Raises the errors of
    ``availability.search``.
    """
    requirements = needs_of(runtime.catalog, requests, seeker.project_id)
    query = window_search(runtime, requirements, length, within)
    windows: list[Offer] = []
    forbidden: list[ForbiddenWindow] = []
    with runtime.database.read() as session:
        check_queries(session, runtime.catalog, requirements, private=seeker.sees_private)
        owner = (seeker.project_id, seeker.user_id)
        guard = guard_without_lock(session, runtime.settings.limits, *owner, seeker.roles)
        judge = _Judge(runtime, session, query, guard)
        for offer in offers(runtime, session, query):
            verdict = judge.allowed(offer)
            if isinstance(verdict, Offer):
                windows.append(verdict)
            else:
                forbidden.append(verdict)
            if len(windows) == limit or len(forbidden) == _MOST_FORBIDDEN:
                break
    return FoundWindows(windows, forbidden[:limit])


class _Judge:
    """Decides which offered windows the limits allow."""

    def __init__(
        self, runtime: Runtime, session: Session, query: WindowSearch, guard: Guard
    ) -> None:
        self._runtime, self._session, self._query, self._guard = runtime, session, query, guard
        self._now = runtime.clock.now()
        self._demands = [
            Demand(reservation_id=str(number), requirement=requirement)
            for number, requirement in enumerate(query.requirements)
        ]
        self._ends = self._ends_of_use() if guard.limits else []

    def _ends_of_use(self) -> list[datetime]:
        """Return when the requester's other leases end, or count less for a limit on hours."""
        within, period = self._query.within, self._guard.period
        parties = list(self._guard.limits)
        uses = rows.uses(self._session, parties, within.start - period, within.end, past_too=True)
        ends = {entry.use.end for entry in uses}
        spans = (timedelta(0), period - self._query.length, period)
        return sorted({end + span for end in ends for span in spans})

    def allowed(self, offer: Offer) -> Offer | ForbiddenWindow:
        """Return the earliest start in the offer that the limits allow, or why they forbid it."""
        if not self._guard.limits:
            return offer
        reason = ""
        for start in self._starts(offer):
            check_time(self._runtime, self._query)
            window = Window(start, start + self._query.length)
            try:
                if self._fits(window):
                    return replace(offer, window=window)
            except LimitExceeded as error:
                reason = reason or error.message
        return ForbiddenWindow(offer.window, reason)

    def _starts(self, offer: Offer) -> Iterator[datetime]:
        yield offer.window.start
        later = (end for end in self._ends if offer.window.start < end <= offer.latest_start)
        yield from (start for start, _ in zip(later, range(_TRIES), strict=False))

    def _fits(self, window: Window) -> bool:
        """Return whether resources are free in ``window``. Raises LimitExceeded."""
        self._guard.check_dates(None, window, self._now)
        self._guard.check_count(self._session, None, self._now)
        with_cleaning = window.busy(self._runtime.settings.cleaning_time)
        preference = self._runtime.preference()
        units = dry_run(self._session, self._demands, with_cleaning, preference)
        if units is None:
            return False
        taken = zip(self._query.requirements, units, strict=True)
        use = rows.use_of(self._session, taken, window.start, window.end)
        self._guard.check_use(self._session, None, window, [], [use])
        return True
