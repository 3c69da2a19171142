"""Which idle hosts to switch off, which to switch on, and how much that saves. Pure.

A number of spare hosts per hardware class stays on. A host is only switched off if it can stay
off for a while and be ready in time again, so that hosts do not flap.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.core.provisioning.readiness import Period, begin_of, next_begin
from climate.core.provisioning.shutdown import Shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's policy.

    A host is switched off after ``idle_time`` seconds without a lease, if it can stay off for as
    long again. ``spare`` hosts of each hardware class stay on.
    """

    idle_time: float = 1800.0
    spare: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeHost:
    """A working host with power, without a lease or a preparation.

    It is idle since ``idle_since``. Its next booking, if any, begins at ``next_start``; its
    preparation begins ``lead`` seconds before.
    """

    id: int
    hardware: str
    idle_since: datetime
    next_start: datetime | None = None
    lead: float = 0.0


@dataclass(slots=True, kw_only=True)
class Saved:
    """Host-hours without power and number of shutdowns of a class, in a period from ``since``."""

    hardware: str
    since: datetime | None
    host_hours: float = 0.0
    shutdowns: int = 0


def ahead(host: FreeHost, policy: Policy) -> timedelta:
    """Return the minimum time to its next booking at which a host may be switched off."""
    return timedelta(seconds=host.lead + policy.idle_time)


def to_switch_off(hosts: Iterable[FreeHost], policy: Policy, now: datetime) -> list[FreeHost]:
    """Return which of the free hosts with power to switch off.

    Hosts that are needed latest come first, then those that were idle longest. A host that is
    needed soon does not count as spare.
    """
    by_class: dict[str, list[FreeHost]] = {}
    for host in hosts:
        if _is_spare(host, policy, now):
            by_class.setdefault(host.hardware, []).append(host)
    return [host for warm in by_class.values() for host in _beyond_spare(warm, policy, now)]


def to_wake(
    hosts: Iterable[FreeHost],
    coming: Iterable[str],
    resting: Iterable[Shutdown],
    policy: Policy,
    now: datetime,
) -> list[Shutdown]:
    """Return which hosts without power to switch on, to fill up the spare hosts.

    ``hosts`` are free and on; ``coming`` are the classes of hosts that will be soon. Hosts that
    were off longest come first.
    """
    warm = Counter(coming)
    warm.update(host.hardware for host in hosts if _is_spare(host, policy, now))
    chosen = []
    for shutdown in sorted(resting, key=lambda shutdown: (shutdown.off_at or now, shutdown.id)):
        if warm[shutdown.hardware] < policy.spare:
            warm[shutdown.hardware] += 1
            chosen.append(shutdown)
    return chosen


def _is_spare(host: FreeHost, policy: Policy, now: datetime) -> bool:
    return host.next_start is None or host.next_start - now > ahead(host, policy)


def _beyond_spare(warm: Sequence[FreeHost], policy: Policy, now: datetime) -> list[FreeHost]:
    idle = timedelta(seconds=policy.idle_time)
    rested = sorted((host for host in warm if now - host.idle_since >= idle), key=_order)
    return rested[: max(len(warm) - policy.spare, 0)]


def _order(host: FreeHost) -> tuple[bool, float, datetime, int]:
    start = host.next_start
    return start is not None, -start.timestamp() if start else 0.0, host.idle_since, host.id


def saved(
    shutdowns: Iterable[Shutdown], since: datetime, until: datetime, period: Period
) -> list[Saved]:
    """Return the savings of shutdowns from ``since`` to ``until``, by class and period.

    A shutdown counts in the period in which it began; its hours count in the periods they fall in.
    """
    shares: dict[tuple[str, datetime | None], Saved] = {}
    for shutdown in sorted(shutdowns, key=lambda item: (item.hardware, item.off_at or until)):
        for begin, end in _parts(shutdown, since, until, period):
            key = shutdown.hardware, begin_of(period, begin)
            share = shares.setdefault(key, Saved(hardware=key[0], since=key[1]))
            share.host_hours += (end - begin) / timedelta(hours=1)
            share.shutdowns += begin == shutdown.off_at
    return [share for _, share in sorted(shares.items(), key=_by_key)]


def _by_key(item: tuple[tuple[str, datetime | None], Saved]) -> tuple[str, float]:
    (hardware, since), _ = item
    return hardware, since.timestamp() if since else 0.0


def _parts(
    shutdown: Shutdown, since: datetime, until: datetime, period: Period
) -> Iterator[tuple[datetime, datetime]]:
    """Split the time that a host was off at the beginnings of periods."""
    if shutdown.off_at is None:
        return
    begin, end = max(shutdown.off_at, since), min(shutdown.over_at or until, until)
    while begin < end:
        following = next_begin(period, begin)
        stop = end if following is None else min(following, end)
        yield begin, stop
        begin = stop
