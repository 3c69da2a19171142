"""What an owner may have, and whether a change of a lease goes too far: pure rules.

One rule for all of them: what a change does not make worse is never refused, so that a lease can
be shortened or given back however low a limit was set meanwhile.

Hosts and vcpus are counted as a peak, the most at one instant. Host-hours are counted in every
window of the period's length, wherever it begins. The hours in a window are a piecewise linear
function of where it begins, so their maximum is where the window's edge meets an edge of some
use: these places are looked at, and no others.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate, pairwise

from climate.core.errors import LimitExceeded
from climate.core.window import Window

UNLIMITED = -1
_TICK = timedelta(microseconds=1)
_DAWN = datetime.min.replace(tzinfo=UTC)
_HOUR = timedelta(hours=1) // _TICK


class Scope(StrEnum):
    """Whose use is counted; locks are taken in the order of these names."""

    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a project or a user may have; None is as much as there is.

    ``leases`` that are not over, ``hosts`` and ``vcpus`` at any one time, ``host_hours`` in any
    window of the period; in seconds: the ``duration`` of a lease, how far ahead one may end
    (``horizon``), how long before its end a running one may be prolonged (``extension_window``)
    and by how much at once (``extension``).
    """

    leases: int | None = None
    hosts: int | None = None
    vcpus: int | None = None
    host_hours: int | None = None
    duration: int | None = None
    horizon: int | None = None
    extension_window: int | None = None
    extension: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, int]) -> "Limits":
        """Return the limits that ``values`` name; negative ones are none."""
        known = {name: value for name, value in values.items() if name in NAMES}
        return cls(**{name: None if value < 0 else value for name, value in known.items()})

    def overridden(self, values: Mapping[str, int]) -> "Limits":
        """Return these limits, with those in ``values`` instead of what they are here."""
        own = asdict(Limits.of(values))
        return replace(self, **{name: own[name] for name in values if name in own})

    @property
    def is_none(self) -> bool:
        """Tell whether nothing is limited."""
        return self == Limits()

    @property
    def counts(self) -> bool:
        """Tell whether anything must be counted, dates alone need not be."""
        return self.leases is not None or self.counts_use

    @property
    def counts_use(self) -> bool:
        """Tell whether the resources of leases must be counted."""
        return not (self.hosts is None and self.vcpus is None and self.host_hours is None)


NAMES = tuple(field.name for field in fields(Limits))
_UNITS = {"leases": "leases", "hosts": "hosts", "vcpus": "vcpus", "host_hours": "host-hours"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The operator's defaults, who is exempt from all limits, and the rolling period."""

    enabled: bool = False
    defaults: Mapping[Scope, Limits]
    period: timedelta = timedelta(days=30)
    exempt_projects: frozenset[str] = frozenset()
    exempt_users: frozenset[str] = frozenset()
    exempt_roles: frozenset[str] = frozenset()

    def apply_to(self, project_id: str, user_id: str, roles: Iterable[str]) -> bool:
        """Tell whether limits hold for what this user asks for this project."""
        return (
            self.enabled
            and project_id not in self.exempt_projects
            and user_id not in self.exempt_users
            and self.exempt_roles.isdisjoint(roles)
        )


NO_RULES = Rules(defaults={scope: Limits() for scope in Scope})


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """So many hosts, with so many vcpus, from ``start`` to ``end``."""

    start: datetime
    end: datetime
    hosts: int
    vcpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A limit that would be exceeded: what is allowed, what is used without, what is asked."""

    limit: str
    allowed: int
    used: float
    asked: float


def excess_of_dates(
    limits: Limits, before: Window | None, after: Window, now: datetime, *, started: bool
) -> Excess | None:
    """Return what is wrong with new dates; ``before`` is None for a new lease."""
    length = after.end - after.start
    ahead = after.end - now
    more = after.end - before.end if before else timedelta(0)
    longer = before is None or length > before.end - before.start
    later = before is None or more > timedelta(0)
    if longer and _above(length, limits.duration):
        return _excess("duration", limits.duration, length)
    if later and _above(ahead, limits.horizon):
        return _excess("horizon", limits.horizon, ahead)
    if before is None or not (started and later):
        return None
    if _above(before.end - now, limits.extension_window):
        return _excess("extension_window", limits.extension_window, before.end - now)
    if _above(more, limits.extension):
        return _excess("extension", limits.extension, more)
    return None


def _above(span: timedelta, seconds: int | None) -> bool:
    return seconds is not None and span.total_seconds() > seconds


def _excess(limit: str, allowed: int | None, asked: timedelta) -> Excess:
    return Excess(limit=limit, allowed=allowed or 0, used=0, asked=asked.total_seconds())


def excess_of_leases(limits: Limits, others: int) -> Excess | None:
    """Return what is wrong with one more lease beside ``others``."""
    if limits.leases is None or others < limits.leases:
        return None
    return Excess(limit="leases", allowed=limits.leases, used=others, asked=1)


def excess_of_use(
    limits: Limits,
    period: timedelta,
    others: Sequence[Use],
    before: Sequence[Use],
    after: Sequence[Use],
) -> Excess | None:
    """Return what is wrong if a lease uses ``after`` instead of ``before``, beside ``others``."""
    for name in ("hosts", "vcpus"):
        allowed = getattr(limits, name)
        if allowed is not None:
            total, own = peak(others, before, after, name)
            if total > allowed:
                return Excess(limit=name, allowed=allowed, used=total - own, asked=own)
    if limits.host_hours is not None:
        total, own = host_hours(others, before, after, period)
        if total > limits.host_hours:
            allowed = limits.host_hours
            return Excess(limit="host_hours", allowed=allowed, used=total - own, asked=own)
    return None


def peak(
    others: Sequence[Use], before: Sequence[Use], after: Sequence[Use], amount: str
) -> tuple[float, float]:
    """Return the most in use where the change adds something, and the lease's own part of it."""
    all_, mine = _course([*others, *after], amount), _course(after, amount)
    found = [
        (all_.at(start), mine.at(start)) for start, _ in _growth(others, before, after, amount)
    ]
    return max(found, default=(0, 0))


def host_hours(
    others: Sequence[Use], before: Sequence[Use], after: Sequence[Use], period: timedelta
) -> tuple[float, float]:
    """Return the most host-hours in any window in which the change adds some, and the own part."""
    length = period // _TICK
    growth = _growth([], before, after, "hosts")
    all_, mine = _course([*others, *after], "hosts"), _course(after, "hosts")
    edges = {edge - shift for edge in all_.edges for shift in (0, length)}
    edges |= {at for start, end in growth for at in (start - length, end)}
    found = [
        (all_.total(at, at + length) / _HOUR, mine.total(at, at + length) / _HOUR)
        for at in edges
        if any(start - length <= at <= end for start, end in growth)
    ]
    return max(found, default=(0, 0))


def most_hours(uses: Sequence[Use], now: datetime, period: timedelta) -> float:
    """Return the most host-hours in any window that is not over."""
    course, length = _course(uses, "hosts"), period // _TICK
    first = (now - _DAWN) // _TICK - length
    edges = {edge - shift for edge in course.edges for shift in (0, length)} | {first}
    return max(course.total(at, at + length) / _HOUR for at in edges if at >= first)


def _growth(
    others: Sequence[Use], before: Sequence[Use], after: Sequence[Use], amount: str
) -> list[tuple[int, int]]:
    """Return the spans in which a lease has more ``after`` than ``before``, cut at all edges."""
    old, new = _course(before, amount), _course(after, amount)
    edges = sorted({*old.edges, *new.edges, *_course(others, amount).edges})
    return [(start, end) for start, end in pairwise(edges) if new.at(start) > old.at(start)]


class _Course:
    """An amount over time, constant between edges: at an instant, and added up over a span."""

    def __init__(self, steps: Mapping[int, float]) -> None:
        self.edges = sorted(steps)
        self._levels = list(accumulate(steps[edge] for edge in self.edges))
        spans = (end - start for start, end in pairwise(self.edges))
        areas = (span * level for span, level in zip(spans, self._levels, strict=False))
        self._sums = list(accumulate(areas, initial=0))

    def at(self, when: int) -> float:
        """Return the amount from ``when`` on, up to the next edge."""
        index = bisect_right(self.edges, when)
        return self._levels[index - 1] if index else 0

    def total(self, start: int, end: int) -> float:
        """Return the amount times ticks from ``start`` to ``end``."""
        return self._until(end) - self._until(start)

    def _until(self, when: int) -> float:
        index = bisect_right(self.edges, when)
        if not index:
            return 0
        return self._sums[index - 1] + self._levels[index - 1] * (when - self.edges[index - 1])


def _course(uses: Iterable[Use], amount: str) -> _Course:
    steps: dict[int, float] = {}
    for use in uses:
        if use.start < use.end:
            for when, sign in ((use.start, 1), (use.end, -1)):
                tick = (when - _DAWN) // _TICK
                steps[tick] = steps.get(tick, 0) + sign * getattr(use, amount)
    return _Course(steps)


def refusal(scope: Scope, owner_id: str, period: timedelta, excess: Excess) -> LimitExceeded:
    """Return what to say about an excess."""
    unit = _UNITS.get(excess.limit, "seconds")
    allowed, used, asked = excess.allowed, round(excess.used, 2), round(excess.asked, 2)
    hours = f"in {period.total_seconds() / 3600:g} hours"
    when = {"leases": "at once", "host_hours": hours}.get(excess.limit, "at any one time")
    sentences = {
        "duration": f"a lease may last {allowed} seconds, this one would last {asked:g}",
        "horizon": f"a lease may end {allowed} seconds from now, this one would in {asked:g}",
        "extension_window": (
            f"a running lease may be prolonged in the last {allowed} seconds before its end,"
            f" which are still {asked - allowed:g} seconds away"
        ),
        "extension": f"a running lease may be prolonged by {allowed} seconds, not by {asked:g}",
    }
    counted = f"{allowed} {unit} {when} are allowed, {used:g} are taken, this asks for {asked:g}"
    details = {"limit": excess.limit, "scope": scope.value, "owner_id": owner_id, "unit": unit}
    return LimitExceeded(
        f"Limit {excess.limit} of {scope.value} {owner_id}: {sentences.get(excess.limit, counted)}",
        {**details, "allowed": allowed, "used": used, "asked": asked},
    )
