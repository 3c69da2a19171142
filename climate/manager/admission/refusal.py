"""Refusal: why a lease was refused, and what would be admitted instead.

The explanation examines a sample of the matching resources, as it must not cost more than the
refusal. For a new lease it runs after the transaction; for a change within it, where the lease's
own bookings are released already. It names the project's own leases that are in the way; of other
leases it tells the times only.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy.orm import Session

from climate.core.errors import NotEnoughResources
from climate.core.lease.change import has_started
from climate.core.lease.model import PART, Lease, Reservation
from climate.core.matching import calendar
from climate.core.matching.packing import Units
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.window import Window, minute_of
from climate.db.resources import calendar as bookings
from climate.db.resources.calendar import Blocker
from climate.manager.admission.admission import InsufficientResources, dry_run
from climate.manager.admission.availability import Sought, matching, offers
from climate.manager.admission.candidates import Demand
from climate.manager.admission.gates import Gate
from climate.manager.admission.requirements import occupied_window
from climate.manager.process.runtime import Runtime

# Resources in a sample (or twice as many as are needed), and how far ahead windows are searched.
_SAMPLE = 50
_AHEAD = timedelta(days=28)
_BLOCKERS = 5
_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True)
class Alternative:
    """A variant of the refused lease that would be admitted now, and how it differs."""

    differs: str
    window: Window
    units: int

    def as_json(self) -> dict[str, Any]:
        """Return the alternative as clients see it."""
        return {
            "differs": self.differs,
            "start": _utc(self.window.start),
            "end": _utc(self.window.end),
            "amount": self.units,
        }

    def sentence(self) -> str:
        """Return the alternative as part of a sentence."""
        window = f"from {_minute(self.window.start)} to {_minute(self.window.end)}"
        return {
            "later": f"later, {window}",
            "shorter": f"shorter, {window}",
            "fewer": f"fewer, {self.units}",
            "other": "with other properties",
        }[self.differs]


def explain(
    runtime: Runtime,
    session: Session,
    shortage: InsufficientResources,
    lease: Lease,
    gates: Collection[Gate],
    present: Lease | None = None,
) -> NotEnoughResources:
    """Return the refusal with its reasons: numbers, the leases in the way, alternatives.

    ``lease`` is as requested, ``present`` as it is stored (None: it is new). ``session`` does not
    see its own bookings. The ``gates`` decide which alternatives it may have.
    """
    inquiry = _Inquiry(runtime, session, shortage, lease, gates, present)
    project_id = lease.project_id
    blockers = inquiry.blockers()
    alternatives = inquiry.alternatives()
    own = [blocker for blocker in blockers if blocker.project_id == project_id]
    others = [blocker for blocker in blockers if blocker.project_id != project_id]
    parts = [_of_part(lease, shortage)]
    if own:
        parts.append(f"Taken by your own {', '.join(_named(blocker) for blocker in own)}")
    if others:
        parts.append(f"Taken by others {', '.join(_span(blocker.window) for blocker in others)}")
    if alternatives:
        sentences = "; ".join(alternative.sentence() for alternative in alternatives)
        parts.append(f"What would fit now: {sentences}")
    details = {
        **shortage.details,
        "reservation": _number(lease, shortage),
        "blocked_by": [_blocker(blocker, project_id) for blocker in blockers],
        "alternatives": [alternative.as_json() for alternative in alternatives],
    }
    return NotEnoughResources(". ".join(parts), details)


def _short(lease: Lease, shortage: InsufficientResources) -> Reservation | None:
    """Return the reservation that lacks resources; None if only all of them together do."""
    if shortage.index is None:
        return None
    id_ = shortage.demands[shortage.index].reservation_id
    return next((one for one in lease.reservations if one.id == id_), None)


def _number(lease: Lease, shortage: InsufficientResources) -> int | None:
    """Return the number of that reservation, or of the stack it is a part of, in the request."""
    short = _short(lease, shortage)
    requested = short and (short.stack_id or short.id)
    ids = [one.id for one in lease.reservations]
    return ids.index(requested) if requested in ids else shortage.details["reservation"]


def _of_part(lease: Lease, shortage: InsufficientResources) -> str:
    """Return the refusal's message; it names the part, if a part of a stack lacks resources."""
    short = _short(lease, shortage)
    if short is None or short.stack_id is None:
        return shortage.message
    return f"For the {short.params[PART]} in the stack: {shortage.message}"


class _Inquiry:
    """The search for the reasons of a refusal, and for alternatives."""

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        shortage: InsufficientResources,
        lease: Lease,
        gates: Collection[Gate],
        present: Lease | None,
    ) -> None:
        self._runtime = runtime
        self._session = session
        self._demands = shortage.demands
        self._short = shortage.index
        self._in_use = shortage.in_use
        # The free units of what the lease lacks.
        self._available: int = shortage.details.get("free", 0)
        self._lease = lease
        self._window = lease.window
        self._gates = gates
        self._now = now = runtime.clock.now()
        self._can_move = present is None or not has_started(present, now)
        self._occupied = occupied_window(lease.window, now, runtime.settings)
        self._preference = runtime.preference()

    @property
    def _requirement(self) -> Requirement:
        """The requirement that fails (the first one, if only all of them together do)."""
        return self._demands[self._short or 0].requirement

    def blockers(self) -> list[Blocker]:
        """Return some of the leases that occupy matching resources."""
        ids = self._matching(self._requirement)
        if not ids:
            return []
        return bookings.blockers(
            self._session, ids, self._occupied, self._lease.project_id, _BLOCKERS
        )

    def alternatives(self) -> list[Alternative]:
        """Return variants of the lease that would be admitted now."""
        others = [] if self._in_use else [self._later(), self._fewer(), self._other()]
        variants = [*others[:1], self._shorter(), *others[1:]]
        return [variant for variant in variants if variant is not None][:_ALTERNATIVES]

    def _later(self) -> Alternative | None:
        if not self._can_move or not _is_before_the_end_of_time(self._window, _AHEAD):
            return None
        start = max(self._window.start, self._now)
        length = self._window.end - start
        requirements = [demand.requirement for demand in self._demands]
        within = Window(start, start + _AHEAD + length)
        sought = Sought(requirements, length, within)
        sample = max(_sample(requirement) for requirement in requirements)
        for offer in islice(offers(self._runtime, self._session, sought, sample), 1):
            demands = [replace(demand, kept={}) for demand in self._demands]
            return self._if_admitted("later", offer.window, demands)
        return None

    def _shorter(self) -> Alternative | None:
        concerned = (
            [self._requirement] if self._in_use else [one.requirement for one in self._demands]
        )
        ends = [self._lasting(requirement) for requirement in concerned]
        end = min((end for end in ends if end is not None), default=None)
        if end is None or None in ends:
            return None
        end = minute_of(end - self._runtime.settings.cleaning_time)
        if end <= max(self._window.start, self._now):
            return None
        window = Window(self._window.start, end)
        demands: Sequence[Demand] | None = self._demands
        if self._in_use:
            occupied = occupied_window(window, self._now, self._runtime.settings)
            demands = self._in_use.demands_over(occupied)
        return self._if_admitted("shorter", window, demands) if demands else None

    def _fewer(self) -> Alternative | None:
        available = self._available
        if not 0 < available < self._requirement.minimum:
            return None
        fewer = replace(self._requirement, minimum=available, maximum=available)
        return self._if_admitted("fewer", self._window, self._with(fewer))

    def _other(self) -> Alternative | None:
        if isinstance(self._requirement.query, Everything):
            return None
        other = replace(self._requirement, query=Everything())
        return self._if_admitted("other", self._window, self._with(other))

    def _units(self, demands: Sequence[Demand]) -> int:
        """Return the units, of all its parts, that the reservation which lacks some would get."""
        id_ = demands[self._short or 0].reservation_id
        return sum(one.requirement.minimum for one in demands if one.reservation_id == id_)

    def _with(self, requirement: Requirement) -> list[Demand]:
        changed = list(self._demands)
        changed[self._short or 0] = replace(changed[self._short or 0], requirement=requirement)
        return changed

    def _if_admitted(
        self, differs: str, window: Window, demands: Sequence[Demand]
    ) -> Alternative | None:
        occupied = occupied_window(window, self._now, self._runtime.settings)
        more = dry_run(self._session, demands, occupied, self._preference)
        if more is None or not self._is_allowed(window, demands, more):
            return None
        return Alternative(differs, window, self._units(demands))

    def _is_allowed(self, window: Window, demands: Sequence[Demand], more: Sequence[Units]) -> bool:
        """Return whether the gates allow what would be taken, and what is kept."""
        taken = [
            (demand.requirement, units)
            for demand, others in zip(demands, more, strict=True)
            for units in (demand.kept, others)
        ]
        lease = replace(self._lease, window=window)
        return all(gate.allows(self._session, lease, taken, self._now) for gate in self._gates)

    def _lasting(self, requirement: Requirement) -> datetime | None:
        timelines = bookings.timelines(
            self._session, requirement, self._matching(requirement), self._occupied
        )
        return calendar.lasting(requirement, timelines, self._occupied.start, self._occupied.end)

    def _matching(self, requirement: Requirement) -> Sequence[int]:
        if self._in_use:
            return list(self._in_use.ids)
        return matching(self._session, requirement, self._preference, _sample(requirement))


def _sample(requirement: Requirement) -> int:
    return max(_SAMPLE, 2 * requirement.minimum)


def _is_before_the_end_of_time(window: Window, ahead: timedelta) -> bool:
    """Return whether a lease of that length could start so much later: calendars end in 9999."""
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
