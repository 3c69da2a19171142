"""Refusal: why climate rejects a lease, and which similar leases it would accept.

If a new lease is rejected, climate computes the explanation after the failed transaction, or from
the calendar in memory. If a change is rejected, climate computes the explanation within the
transaction of the change, which has deleted the lease's own bookings. The explanation names the
blocking leases of the requester's project. For leases of other projects, the explanation states
only the times.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from climate.core.errors import NotEnoughResources
from climate.core.lease.change import has_started
from climate.core.lease.model import PART, Lease
from climate.core.matching.packing import Units
from climate.core.matching.query import Everything
from climate.core.matching.requirement import Requirement
from climate.core.window import Window, in_words, merged, minute_of
from climate.db.resources import allocations
from climate.db.resources.calendar import Blocker
from climate.manager.admission.admission import InsufficientResources
from climate.manager.admission.candidates import Demand
from climate.manager.admission.gates import Gate
from climate.manager.admission.refusal.bookings import Bookings
from climate.manager.admission.requirements import can_wait, margins_of, may_fit, occupied_window
from climate.manager.admission.window_search import WindowSearch

# The span of the search for a later window.
_AHEAD = timedelta(days=28)
_BLOCKERS = 5
# Windows of other projects on one resource, before windows that touch are merged.
_MAX_WINDOWS = 1000
_ALTERNATIVES = 3
_UTC = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A lease similar to the rejected one, which climate would accept now.

    ``differs`` states the difference: "later", "shorter", "fewer" (units) or "other" (properties).
    ``window`` is the start and end of the similar lease. ``units`` is the minimum number of units
    (hosts, instances and so on) in the reservation that lacked resources.
    """

    differs: str
    window: Window
    units: int

    def as_json(self) -> dict[str, Any]:
        """Return the alternative as the API shows it, with times as strings in UTC."""
        return {
            "differs": self.differs,
            **_times(self.window),
            "amount": self.units,
        }

    def sentence(self) -> str:
        """Return the alternative as a phrase for the error message, for example "fewer, 3"."""
        window = in_words(self.window)
        return {
            "later": f"later, {window}",
            "shorter": f"shorter, {window}",
            "fewer": f"fewer, {self.units}",
            "other": "with other properties",
        }[self.differs]


class Refusal(NotEnoughResources):
    """The error for the API if resources are missing, with reasons and alternatives.

    ``reasons`` are sentences about what is missing and who has it. ``details`` are further members
    of the answer.
    """

    def __init__(
        self,
        reasons: Sequence[str],
        alternatives: Sequence[Alternative],
        details: Mapping[str, Any],
    ) -> None:
        sentences = [*reasons]
        if alternatives:
            variants = "; ".join(alternative.sentence() for alternative in alternatives)
            sentences.append(f"What would fit now: {variants}")
        offered = [alternative.as_json() for alternative in alternatives]
        super().__init__(". ".join(sentences), {**details, "alternatives": offered})
        self._reasons, self._alternatives = reasons, alternatives

    def in_no_window(self, within: Window, length: timedelta) -> "Refusal":
        """Return the error for a lease of the duration ``length`` that fits nowhere in ``within``.

        ``self`` is the error for a lease that begins at the start of ``within``. The result repeats
        it, but offers only alternatives that end by the end of ``within``.
        """
        what = (
            f"The lease fits nowhere for {length.total_seconds():.0f} seconds {in_words(within)}"
            " UTC (cleaning time included)"
        )
        first, *others = self._reasons
        possible = [each for each in self._alternatives if each.window.end <= within.end]
        reasons = [what, f"At the first moment: {first}", *others]
        return Refusal(reasons, possible, self.details)


def explain(
    bookings: Bookings,
    shortage: InsufficientResources,
    lease: Lease,
    gates: Collection[Gate],
    present: Lease | None = None,
) -> Refusal:
    """Return the error for the API, with numbers, blocking leases and alternatives.

    ``bookings`` answers questions about bookings. ``shortage`` is the error of the admission.
    ``lease`` is the requested lease, ``present`` the stored one (None for a new lease); the caller
    has deleted its bookings in the transaction of ``bookings.session``. ``gates`` are the checks of
    optional features, such as limits. The error offers only alternatives that all gates allow.
    """
    inquiry = _Inquiry(bookings, shortage, lease, gates, present)
    own, others = inquiry.blockers()
    alternatives = inquiry.alternatives()
    number, message = _located(lease, shortage)
    sentences = [message]
    if lease.start.lead and inquiry.can_move:
        seconds = round(lease.start.lead.total_seconds())
        sentences.append(
            f"The capacity must be free from {seconds} seconds before the start on, because climate"
            " needs this time to create what must be ready at the start"
        )
    if own:
        named = (f"lease {b.lease_name} ({b.lease_id}) {in_words(b.window)}" for b in own)
        sentences.append(f"Taken by your own {', '.join(named)}")
    if others:
        sentences.append(f"Taken by others {', '.join(map(in_words, others))}")
    details = {
        **shortage.details,
        "reservation": number,
        "blocked_by": [*map(_blocker, own), *map(_times, others)],
        "can_wait": present is None and _can_wait(bookings, lease, shortage),
    }
    return Refusal(sentences, alternatives, details)


def _can_wait(bookings: Bookings, lease: Lease, shortage: InsufficientResources) -> bool:
    """Return whether a new lease could wait in the wait list for what it lacks."""
    if not can_wait(bookings.runtime.catalog, lease.reservations):
        return False
    if shortage.index is None:
        return True  # each reservation would fit alone
    return all(
        may_fit(
            demand.requirement,
            shortage.details["matching"]
            if index == shortage.index
            else allocations.count(bookings.session, demand.requirement),
        )
        for index, demand in enumerate(shortage.demands)
    )


def _located(lease: Lease, shortage: InsufficientResources) -> tuple[int | None, str]:
    """Return which reservation of the request lacks resources, and the error message.

    The first value is the position of the reservation in the request, from 0. If the reservation is
    for a part of a stack, the value is the position of the stack, and the message names the part.
    The first value is None if each reservation would fit alone, but not all of them together.
    """
    if shortage.index is None:
        return None, shortage.message
    reservations = {reservation.id: reservation for reservation in lease.reservations}
    short = reservations[shortage.demands[shortage.index].reservation_id]
    number = list(reservations).index(short.stack_id or short.id)
    if short.stack_id is None:
        return number, shortage.message
    return number, f"For the {short.params[PART]} in the stack: {shortage.message}"


class _Inquiry:
    """The search for the reasons of one rejection, and for similar leases that would fit."""

    def __init__(
        self,
        bookings: Bookings,
        shortage: InsufficientResources,
        lease: Lease,
        gates: Collection[Gate],
        present: Lease | None,
    ) -> None:
        self._bookings = bookings
        self._runtime = runtime = bookings.runtime
        self._session = bookings.session
        self._demands = shortage.demands
        # The requirement that fails; the first one if only all of them together fail.
        self._index = shortage.index or 0
        self._requirement = shortage.demands[self._index].requirement
        self._available: int = shortage.details.get("free", 0)
        self._in_use = shortage.in_use
        self._demands_over = shortage.demands_over
        self._lease = lease
        self._window = lease.window
        self._gates = gates
        self._now = now = runtime.clock.now()
        self._present = present
        self.can_move = present is None or not has_started(present, now)
        # The margins for another start: less than the lead may be left until the requested one.
        staying = [reservation for reservation in lease.reservations if reservation.stays]
        needs = [demand.requirement for demand in shortage.demands]
        self._margins = margins_of(runtime, bookings.session, staying, needs, now)
        self._occupied = self._occupied_in(lease.window)

    def _occupied_in(self, window: Window) -> Window:
        """Return when the lease would occupy resources, if it had this ``window``."""
        is_moved = window.start != self._window.start
        present = self._lease.margins(self._runtime.settings.cleaning_time)
        return occupied_window(window, self._now, self._margins if is_moved else present)

    def blockers(self) -> tuple[list[Blocker], list[Window]]:
        """Return what blocks the requested lease, at most ``_BLOCKERS`` items in all.

        The first item contains leases of the same project. The second one contains the windows in
        which other projects have booked resources that match the unmet requirement, sorted by
        start, without duplicates. Bookings of one resource without a gap between them are merged
        into one window, so that the requester cannot see where one lease ends and the next begins.
        """
        project_id = self._lease.project_id
        own, found = self._bookings.blockers(
            self._requirement, self._occupied, project_id, _BLOCKERS
        )
        different = {tuple(windows) for windows in found.values()}  # many hosts have the same
        runs = {run for windows in different for run in merged(windows, _MAX_WINDOWS)}
        others = sorted(runs, key=lambda run: (run.start, run.end))
        return own, others[: _BLOCKERS - len(own)]

    def alternatives(self) -> list[Alternative]:
        """Return up to three variants of the lease that climate would accept now."""
        others = [] if self._in_use else [self._later(), self._fewer(), self._other()]
        variants = [*others[:1], self._shorter(), *others[1:]]
        return [variant for variant in variants if variant is not None][:_ALTERNATIVES]

    def _later(self) -> Alternative | None:
        if not self.can_move or not _can_search_ahead(self._window, _AHEAD):
            return None
        start = max(self._window.start, self._now)
        # The whole length: a window that starts now began before this search.
        length = self._window.end - self._window.start
        requirements = [demand.requirement for demand in self._demands]
        within = Window(start, start + _AHEAD + length)
        deadline = self._runtime.clock.elapsed() + self._runtime.settings.search_timeout
        query = WindowSearch(requirements, length, within, deadline, self._margins)
        window = self._bookings.earliest(query)
        if window is None:
            return None
        return self._if_admitted("later", window, self._demands_in(window))

    def _shorter(self) -> Alternative | None:
        all_requirements = [demand.requirement for demand in self._demands]
        requirements = [self._requirement] if self._in_use else all_requirements
        ends = [self._bookings.lasting(part, self._occupied) for part in requirements]
        end = min((end for end in ends if end is not None), default=None)
        if end is None or None in ends:
            return None
        end = minute_of(end - self._lease.margins(self._runtime.settings.cleaning_time).cleaning)
        if end <= max(self._window.start, self._now) or self._takes_time(end):
            return None
        window = Window(self._window.start, end)
        with suppress(InsufficientResources):
            return self._if_admitted("shorter", window, self._demands_in(window))
        return None

    def _demands_in(self, window: Window) -> Sequence[Demand]:
        """Return what the lease would require in another ``window``, and what it would keep."""
        if self._demands_over is None:
            return self._demands  # they keep nothing
        return self._demands_over(self._occupied_in(window))

    def _takes_time(self, end: datetime) -> bool:
        """Return whether a request to extend the lease would get a lease that ends earlier."""
        if self._present is None:
            return False
        return end < self._present.window.end <= self._window.end

    def _fewer(self) -> Alternative | None:
        if not 0 < self._available < self._requirement.minimum or self._gains_named():
            return None
        fewer = replace(self._requirement, minimum=self._available, maximum=self._available)
        return self._if_admitted("fewer", self._window, self._with(fewer))

    def _gains_named(self) -> bool:
        """Return whether the reservation that lacks resources gains resources by name.

        A number would not say which name to leave out.
        """
        id_ = self._demands[self._index].reservation_id
        return any(d.requirement.named for d in self._demands if d.reservation_id == id_)

    def _other(self) -> Alternative | None:
        if isinstance(self._requirement.query, Everything):
            return None
        other = replace(self._requirement, query=Everything())
        return self._if_admitted("other", self._window, self._with(other))

    def _with(self, requirement: Requirement) -> list[Demand]:
        changed = list(self._demands)
        changed[self._index] = replace(changed[self._index], requirement=requirement)
        return changed

    def _if_admitted(
        self, differs: str, window: Window, demands: Sequence[Demand]
    ) -> Alternative | None:
        occupied = self._occupied_in(window)
        more = self._bookings.choose(demands, occupied)
        if more is None or not self._is_allowed(window, demands, more):
            return None
        id_ = demands[self._index].reservation_id
        units = sum(d.requirement.minimum for d in demands if d.reservation_id == id_)
        return Alternative(differs, window, units)

    def _is_allowed(self, window: Window, demands: Sequence[Demand], more: Sequence[Units]) -> bool:
        """Return whether limits and other optional features allow the lease with this ``window``.

        A demand is what a reservation requires. The lease would book the units that each demand
        keeps from the stored lease, and the new units in ``more`` (one mapping per demand).
        """
        taken = [
            (demand.requirement, units)
            for demand, others in zip(demands, more, strict=True)
            for units in (demand.kept, others)
        ]
        lease = replace(self._lease, window=window)
        return all(gate.allows(self._session, lease, taken, self._now) for gate in self._gates)


def _can_search_ahead(window: Window, ahead: timedelta) -> bool:
    """Return whether a search for a later window stays within the range of Python's ``datetime``.

    The search begins with ``window``, the requested start and end, and covers the time ``ahead``
    after it.
    """
    length = window.end - window.start
    return window.end < datetime.max.replace(tzinfo=UTC) - length - 2 * ahead


def _blocker(blocker: Blocker) -> dict[str, Any]:
    names = {"lease_id": blocker.lease_id, "lease_name": blocker.lease_name}
    return {**names, **_times(blocker.window)}


def _times(window: Window) -> dict[str, Any]:
    return {"start": f"{window.start:{_UTC}}", "end": f"{window.end:{_UTC}}"}
