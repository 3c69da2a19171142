"""Why a lease was refused, and what would be admitted instead.

Looked at after the refusal, on a sample of the resources that match: the explanation must not cost
more than the refusal. For a new lease that is outside the transaction; for a change within it,
where what the lease had is given up already. Own leases in the way are named, of others only the
times are told.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from climate.core import calendar
from climate.core.change import has_started
from climate.core.errors import NotEnoughResources
from climate.core.lease import PART, Lease, Reservation
from climate.core.packing import Units
from climate.core.query import Everything
from climate.core.requirement import Requirement
from climate.core.window import Window, minute_of
from climate.db import calendar as bookings
from climate.db.calendar import Blocker
from climate.manager.admission.admission import Shortage, would_take
from climate.manager.admission.availability import Sought, matching, offers
from climate.manager.admission.candidates import Wanted
from climate.manager.admission.limits import Leeway
from climate.manager.admission.requirements import taken_window
from climate.manager.runtime import Runtime

# Resources that are looked at (or twice as many as are needed), and how far ahead.
_SAMPLE = 50
_AHEAD = timedelta(days=28)
_BLOCKERS = 5
_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Alternative:
    """A lease like the one refused that would be admitted now, and how it differs."""

    differs: str
    window: Window
    units: int

    def as_json(self) -> dict[str, Any]:
        """Return it as clients see it."""
        return {
            "differs": self.differs,
            "start": _utc(self.window.start),
            "end": _utc(self.window.end),
            "amount": self.units,
        }

    def sentence(self) -> str:
        """Return it as part of a sentence."""
        window = f"from {_minute(self.window.start)} to {_minute(self.window.end)}"
        return {
            "later": f"later, {window}",
            "shorter": f"shorter, {window}",
            "fewer": f"fewer, {self.units}",
            "other": "with other properties",
        }[self.differs]


def explained(
    runtime: Runtime, session: Session, shortage: Shortage, lease: Lease, leeway: Leeway
) -> NotEnoughResources:
    """Return the refusal with all that helps: numbers, what is in the way, alternatives.

    ``lease`` is as it was to be. Its own bookings, if it has any, are not there in ``session``.
    """
    look = _Look(runtime, session, shortage, lease, leeway)
    project_id = lease.project_id
    in_the_way = look.blockers()
    found = look.alternatives()
    mine = [one for one in in_the_way if one.project_id == project_id]
    others = [one for one in in_the_way if one.project_id != project_id]
    parts = [_of_part(lease, shortage)]
    if mine:
        parts.append(f"Taken by your own {', '.join(_named(one) for one in mine)}")
    if others:
        parts.append(f"Taken by others {', '.join(_span(one.window) for one in others)}")
    if found:
        parts.append(f"What would fit now: {'; '.join(one.sentence() for one in found)}")
    details = {
        **shortage.details,
        "reservation": _number(lease, shortage),
        "blocked_by": [_blocker(one, project_id) for one in in_the_way],
        "alternatives": [one.as_json() for one in found],
    }
    return NotEnoughResources(". ".join(parts), details)


def _short(lease: Lease, shortage: Shortage) -> Reservation | None:
    """Return the reservation that there is too little for; None if only all together fail."""
    if shortage.index is None:
        return None
    id_ = shortage.wanted[shortage.index].reservation_id
    return next((one for one in lease.reservations if one.id == id_), None)


def _number(lease: Lease, shortage: Shortage) -> int | None:
    """Return which reservation of those that were asked for that is."""
    short = _short(lease, shortage)
    asked_for = short and (short.stack_id or short.id)
    ids = [one.id for one in lease.reservations]
    return ids.index(asked_for) if asked_for in ids else shortage.details["reservation"]


def _of_part(lease: Lease, shortage: Shortage) -> str:
    """Return the refusal; what somebody asked for as part of something is named."""
    short = _short(lease, shortage)
    if short is None or short.stack_id is None:
        return shortage.message
    return f"For the {short.params[PART]} in the stack: {shortage.message}"


class _Look:
    """A look around after a refusal."""

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        shortage: Shortage,
        lease: Lease,
        leeway: Leeway,
    ) -> None:
        self._runtime = runtime
        self._session = session
        self._wanted = shortage.wanted
        self._short = shortage.index
        self._in_use = shortage.in_use
        # How many units there are of what there is too little of.
        self._there: int = shortage.details.get("free", 0)
        self._lease = lease
        self._window = lease.window
        self._leeway = leeway
        self._now = now = runtime.clock.now()
        self._can_move = leeway.before is None or not has_started(leeway.before, now)
        self._busy = taken_window(lease.window, now, runtime.settings)
        self._preference = runtime.preference()

    @property
    def _requirement(self) -> Requirement:
        """What there is too little of (the first of all, if only together there is)."""
        return self._wanted[self._short or 0].requirement

    def blockers(self) -> list[Blocker]:
        """Return some of the leases that have what was asked for."""
        ids = self._matching(self._requirement)
        if not ids:
            return []
        return bookings.blockers(self._session, ids, self._busy, self._lease.project_id, _BLOCKERS)

    def alternatives(self) -> list[Alternative]:
        """Return what would be admitted now."""
        others = [] if self._in_use else [self._later(), self._fewer(), self._other()]
        found = [*others[:1], self._shorter(), *others[1:]]
        return [one for one in found if one is not None][:_ALTERNATIVES]

    def _later(self) -> Alternative | None:
        if not self._can_move or not _is_before_the_end_of_time(self._window, _AHEAD):
            return None
        start = max(self._window.start, self._now)
        length = self._window.end - start
        requirements = [want.requirement for want in self._wanted]
        within = Window(start, start + _AHEAD + length)
        sought = Sought(requirements, length, within)
        sample = max(_sample(requirement) for requirement in requirements)
        for offer in islice(offers(self._runtime, self._session, sought, sample), 1):
            anew = [replace(want, kept={}) for want in self._wanted]
            return self._if_admitted("later", offer.window, anew)
        return None

    def _shorter(self) -> Alternative | None:
        concerned = (
            [self._requirement] if self._in_use else [one.requirement for one in self._wanted]
        )
        ends = [self._lasting(requirement) for requirement in concerned]
        end = min((end for end in ends if end is not None), default=None)
        if end is None or None in ends:
            return None
        end = minute_of(end - self._runtime.settings.cleaning_time)
        if end <= max(self._window.start, self._now):
            return None
        window = Window(self._window.start, end)
        wanted: Sequence[Wanted] | None = self._wanted
        if self._in_use:
            busy = taken_window(window, self._now, self._runtime.settings)
            wanted = self._in_use.wanted_over(busy)
        return self._if_admitted("shorter", window, wanted) if wanted else None

    def _fewer(self) -> Alternative | None:
        there = self._there
        if not 0 < there < self._requirement.minimum:
            return None
        fewer = replace(self._requirement, minimum=there, maximum=there)
        return self._if_admitted("fewer", self._window, self._with(fewer))

    def _other(self) -> Alternative | None:
        if isinstance(self._requirement.query, Everything):
            return None
        other = replace(self._requirement, query=Everything())
        return self._if_admitted("other", self._window, self._with(other))

    def _units(self, wanted: Sequence[Wanted]) -> int:
        """Return how many units the reservation would get that gets too few, of all its parts."""
        mine = wanted[self._short or 0].reservation_id
        return sum(one.requirement.minimum for one in wanted if one.reservation_id == mine)

    def _with(self, requirement: Requirement) -> list[Wanted]:
        changed = list(self._wanted)
        changed[self._short or 0] = replace(changed[self._short or 0], requirement=requirement)
        return changed

    def _if_admitted(
        self, differs: str, window: Window, wanted: Sequence[Wanted]
    ) -> Alternative | None:
        busy = taken_window(window, self._now, self._runtime.settings)
        more = would_take(self._session, wanted, busy, self._preference)
        if more is None or not self._is_allowed(window, wanted, more):
            return None
        return Alternative(differs, window, self._units(wanted))

    def _is_allowed(self, window: Window, wanted: Sequence[Wanted], more: Sequence[Units]) -> bool:
        """Tell whether limits allow what would be taken, and what is kept."""
        taken = [
            (want.requirement, units)
            for want, others in zip(wanted, more, strict=True)
            for units in (want.kept, others)
        ]
        lease = replace(self._lease, window=window)
        return self._leeway.allows(self._session, lease, taken, self._now)

    def _lasting(self, requirement: Requirement) -> datetime | None:
        there = bookings.timelines(
            self._session, requirement, self._matching(requirement), self._busy
        )
        return calendar.lasting(requirement, there, self._busy.start, self._busy.end)

    def _matching(self, requirement: Requirement) -> Sequence[int]:
        if self._in_use:
            return list(self._in_use.ids)
        return matching(self._session, requirement, self._preference, _sample(requirement))


def _sample(requirement: Requirement) -> int:
    return max(_SAMPLE, 2 * requirement.minimum)


def _is_before_the_end_of_time(window: Window, ahead: timedelta) -> bool:
    """Tell whether a lease of that length could be so much later: calendars end in 9999."""
    length = window.end - window.start
    return window.end < datetime.max.replace(tzinfo=UTC) - length - 2 * ahead


def _blocker(one: Blocker, project_id: str) -> dict[str, Any]:
    window = {"start": _utc(one.window.start), "end": _utc(one.window.end)}
    if one.project_id != project_id:
        return window
    return {"lease_id": one.lease_id, "lease_name": one.lease_name, **window}


def _named(one: Blocker) -> str:
    return f"lease {one.lease_name} ({one.lease_id}) {_span(one.window)}"


def _span(window: Window) -> str:
    return f"from {_minute(window.start)} to {_minute(window.end)}"


def _minute(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
