"""Limits of projects and users, and whether a change of a lease exceeds them. Pure.

A change is rejected only if it increases a use, such as the number of hosts, to more than the limit
of this use. So a lease can be shortened or deleted even if the operator has set a limit below the
present use.

The use of hosts, vcpus and so on is the highest use at one instant. The use of host-hours is the
highest sum in any window of the length ``period``, which the operator sets. If the window moves,
the sum changes linearly until an edge of the window meets the begin or end of a use. So the highest
sum is in a window that begins or ends when a use begins or ends, and only those windows are
examined.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    """Whether a limit is that of a project or of a user.

    To avoid deadlocks, a transaction locks in the order of these values: first projects, then
    users.
    """

    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a project or a user. None means unlimited.

    - ``leases``: the number of leases that are not over.
    - ``hosts``, ``vcpus``: the hosts and vcpus that all leases together may use at the same time.
    - ``gigabytes``, ``floatingips``, ``networks``: the GiB of volumes, the floating IPs and the
      networks that all leases together may use at the same time.
    - ``host_hours``: the sum of host-hours in any window of the operator's period.
    - ``duration``: the length of a lease, in seconds.
    - ``horizon``: how many seconds from now a lease may end.
    - ``extension_window``: how many seconds before its end an active lease may be prolonged.
    - ``extension``: by how many seconds one request may prolong an active lease.
    """

    leases: int | None = None
    hosts: int | None = None
    vcpus: int | None = None
    gigabytes: int | None = None
    floatingips: int | None = None
    networks: int | None = None
    host_hours: int | None = None
    duration: int | None = None
    horizon: int | None = None
    extension_window: int | None = None
    extension: int | None = None

    def overridden(self, values: Mapping[str, int]) -> "Limits":
        """Return these limits with some of them replaced by ``values``, such as ``{"hosts": 8}``.

        A negative value means unlimited.
        """
        changes = {
            name: limit if limit >= 0 else None for name, limit in values.items() if name in NAMES
        }
        return replace(self, **changes)

    @property
    def counts(self) -> bool:
        """Whether a check must count the other leases of the project or user.

        False if there are no limits, or only limits on the dates of a lease.
        """
        return self.leases is not None or self.counts_use

    @property
    def counts_use(self) -> bool:
        """Whether a check must add up what the other leases use."""
        return any(getattr(self, name) is not None for name in (*AMOUNTS, "host_hours"))


NAMES = tuple(field.name for field in fields(Limits))
#: The limits on what leases use at one time.
AMOUNTS = ("hosts", "vcpus", "gigabytes", "floatingips", "networks")
_UNITS = {name: name for name in ("leases", *AMOUNTS)} | {
    "gigabytes": "GiB",
    "floatingips": "floating IPs",
    "host_hours": "host-hours",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The operator's default limits, who is exempt from them, and the period for host-hours.

    If ``enabled`` is false, only the number of leases of a project is limited, and only if this
    limit has a default. ``is_active`` is false if no limit is enforced.
    """

    enabled: bool = False
    defaults: Mapping[Scope, Limits]
    period: timedelta = timedelta(days=30)
    exempt_projects: frozenset[str] = frozenset()
    exempt_users: frozenset[str] = frozenset()
    exempt_roles: frozenset[str] = frozenset()
    is_active: bool = field(init=False)

    def __post_init__(self) -> None:
        active = self.enabled or self.defaults[Scope.PROJECT].leases is not None
        object.__setattr__(self, "is_active", active)

    def effective(self, scope: Scope, overrides: Mapping[str, int]) -> Limits:
        """Return the limits of a project or user: the defaults, changed by ``overrides``.

        ``overrides`` are stored limits, such as ``{"hosts": 8}``. If ``is_active`` is true, the
        result contains only the limits that climate enforces. If ``is_active`` is false, climate
        enforces no limit, and the result contains all limits, to show operators what would apply.
        """
        limits = self.defaults[scope].overridden(overrides)
        if self.enabled or not self.is_active:
            return limits
        return Limits(leases=limits.leases if scope is Scope.PROJECT else None)

    def enforces(self, scope: Scope, name: str) -> bool:
        """Return whether climate enforces the limit ``name`` of projects or users."""
        return self.enabled or (self.is_active and (scope, name) == (Scope.PROJECT, "leases"))

    def apply_to(self, project_id: str, user_id: str, roles: Iterable[str]) -> bool:
        """Return whether limits apply to a request of this user in this project."""
        return (
            self.is_active
            and project_id not in self.exempt_projects
            and user_id not in self.exempt_users
            and self.exempt_roles.isdisjoint(roles)
        )


NO_RULES = Rules(defaults={scope: Limits() for scope in Scope})


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a reservation uses from ``start`` to ``end``.

    ``hosts`` counts only whole hosts. ``vcpus`` counts vcpus of whole hosts and of parts of hosts.
    ``gigabytes`` are GiB of volumes.
    """

    start: datetime
    end: datetime
    hosts: int
    vcpus: float
    gigabytes: int = 0
    floatingips: int = 0
    networks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """A limit that a request would exceed, with the numbers for the error message.

    ``allowed`` is the limit, ``used`` the use without the request, ``requested`` what the request
    adds.
    """

    limit: str
    allowed: int
    used: float
    requested: float


def excess_of_dates(
    limits: Limits, before: Window | None, after: Window, now: datetime, *, started: bool
) -> Excess | None:
    """Return the first limit on dates that a request would exceed; None if it exceeds none.

    ``before`` is the stored window of the lease (None: a new lease). ``after`` is its window after
    the request. ``started`` is whether the lease has started.
    """
    length = after.end - after.start
    spans = {}
    if before is None or length > before.end - before.start:
        spans["duration"] = length
    if before is None or after.end > before.end:
        spans["horizon"] = after.end - now
    if before and started and after.end > before.end:
        spans["extension_window"] = before.end - now
        spans["extension"] = after.end - before.end
    for name, span in spans.items():
        allowed, seconds = getattr(limits, name), span.total_seconds()
        if allowed is not None and seconds > allowed:
            return Excess(limit=name, allowed=allowed, used=0, requested=seconds)
    return None


def excess_of_leases(limits: Limits, others: int) -> Excess | None:
    """Return the limit on the number of leases if one more lease would exceed it; otherwise None.

    ``others`` is the number of leases that the project or user has now.
    """
    if limits.leases is None or others < limits.leases:
        return None
    return Excess(limit="leases", allowed=limits.leases, used=others, requested=1)


def excess_of_use(
    limits: Limits,
    period: timedelta,
    others: Sequence[Use],
    before: Sequence[Use],
    after: Sequence[Use],
) -> Excess | None:
    """Return the first limit on what leases use that a change of a lease would exceed.

    Returns None if it exceeds none. ``before`` is the use of the lease before the change, ``after``
    the use after it. ``others`` is the use of the other leases of the project or user. ``period``
    is the length of the window in which host-hours are summed.
    """
    for name in (*AMOUNTS, "host_hours"):
        if (allowed := getattr(limits, name)) is None:
            continue
        if name == "host_hours":
            total, own = host_hours(others, before, after, period)
        else:
            total, own = peak(others, before, after, name)
        if total > allowed:
            return Excess(limit=name, allowed=allowed, used=total - own, requested=own)
    return None


def peak(
    others: Sequence[Use], before: Sequence[Use], after: Sequence[Use], amount: str
) -> tuple[float, float]:
    """Return the highest total use at one time, and the changed lease's part of this total.

    ``before`` and ``after`` are the use of the lease before and after the change; ``others`` is the
    use of other leases. ``amount`` is one of AMOUNTS. The function examines only the times at
    which the change adds use. If there are none, both results are 0.
    """
    total, own = _course([*others, *after], amount), _course(after, amount)
    levels = [
        (total.at(start), own.at(start)) for start, _ in _growth(others, before, after, amount)
    ]
    return max(levels, default=(0, 0))


def host_hours(
    others: Sequence[Use], before: Sequence[Use], after: Sequence[Use], period: timedelta
) -> tuple[float, float]:
    """Return the highest sum of host-hours in a window, and the changed lease's part of this sum.

    Each window has the length ``period``. ``before`` and ``after`` are the use of the lease before
    and after the change; ``others`` is the use of other leases. The function examines only the
    windows in which the change adds use. If there are none, both results are 0.
    """
    length = period // _TICK
    growth = _growth([], before, after, "hosts")
    total, own = _course([*others, *after], "hosts"), _course(after, "hosts")
    edges = {edge - shift for edge in total.edges for shift in (0, length)}
    edges |= {at for start, end in growth for at in (start - length, end)}
    hours = [
        (total.sum(at, at + length) / _HOUR, own.sum(at, at + length) / _HOUR)
        for at in edges
        if any(start - length <= at <= end for start, end in growth)
    ]
    return max(hours, default=(0, 0))


def most_hours(uses: Sequence[Use], now: datetime, period: timedelta) -> float:
    """Return the highest sum of host-hours in any window of the length ``period``.

    The function ignores windows that end before ``now``.
    """
    course, length = _course(uses, "hosts"), period // _TICK
    first = (now - _DAWN) // _TICK - length
    edges = {edge - shift for edge in course.edges for shift in (0, length)} | {first}
    return max(course.sum(at, at + length) / _HOUR for at in edges if at >= first)


def _growth(
    others: Sequence[Use], before: Sequence[Use], after: Sequence[Use], amount: str
) -> list[tuple[int, int]]:
    """Return the spans (start, end) in which a change of a lease adds use, in microseconds.

    ``before`` and ``after`` are the use of the lease before and after the change. ``amount`` is one
    of AMOUNTS. The spans are split at each time at which the use of any lease changes, including
    ``others``.
    """
    old, new = _course(before, amount), _course(after, amount)
    edges = sorted({*old.edges, *new.edges, *_course(others, amount).edges})
    return [(start, end) for start, end in pairwise(edges) if new.at(start) > old.at(start)]


class _Course:
    """The use of hosts, or of another amount, at each time.

    It changes only at the times in ``edges``.

    Times are integers in microseconds.
    """

    def __init__(self, steps: Mapping[int, float]) -> None:
        self.edges = sorted(steps)
        self._levels = list(accumulate(steps[edge] for edge in self.edges))
        spans = (end - start for start, end in pairwise(self.edges))
        areas = (span * level for span, level in zip(spans, self._levels, strict=False))
        self._sums = list(accumulate(areas, initial=0))

    def at(self, when: int) -> float:
        index = bisect_right(self.edges, when)
        return self._levels[index - 1] if index else 0

    def sum(self, start: int, end: int) -> float:
        """Return the use summed over time, in hosts (or vcpus) times microseconds."""
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


def limit_exceeded(scope: Scope, owner_id: str, period: timedelta, excess: Excess) -> LimitExceeded:
    """Return the error that tells the client which limit it would exceed, and by how much.

    ``scope`` and ``owner_id`` name the project or user that has the limit. ``period`` is the length
    of the window in which host-hours are summed.
    """
    unit = _UNITS.get(excess.limit, "seconds")
    allowed, used, asked = excess.allowed, round(excess.used, 2), round(excess.requested, 2)
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
    counted = f"{allowed} {unit} {when} are allowed, {used:g} are taken, this lease needs {asked:g}"
    details = {"limit": excess.limit, "scope": scope.value, "owner_id": owner_id, "unit": unit}
    return LimitExceeded(
        f"Limit {excess.limit} of {scope.value} {owner_id}: {sentences.get(excess.limit, counted)}",
        {**details, "allowed": allowed, "used": used, "asked": asked},
    )
