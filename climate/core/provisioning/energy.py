"""Which hosts are switched off while nobody needs them, and what that saves. Pure.

Per hardware class a spare pool stays on. A host is only switched off if it can stay off for a
while and be back in time, so that none goes off and on and off.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.core.provisioning.readiness import Period, begin_of, next_begin
from climate.core.provisioning.shutdown import Shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an operator decides.

    A host goes off that nobody has had for ``idle_time`` seconds, and if it can stay off for as
    long; ``spare`` of each class stay on.
    """

    idle_time: float = 1800.0
    spare: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeHost:
    """A host that works, has power, and that nobody has or is getting ready.

    ``idle_since`` is when that was first seen. Its next booking, if any, begins at ``next_start``;
    ``lead`` is the seconds before, at which it is asked for again once it is off.
    """

    id: int
    hardware: str
    idle_since: datetime
    next_start: datetime | None = None
    lead: float = 0.0


@dataclass(slots=True, kw_only=True)
class Saved:
    """How long hosts of a class were off in a period from ``since`` on, and how often they went."""

    hardware: str
    since: datetime | None
    host_hours: float = 0.0
    shutdowns: int = 0


def ahead(host: FreeHost, policy: Policy) -> timedelta:
    """Return how far its next booking must be away for a host to go off."""
    return timedelta(seconds=host.lead + policy.idle_time)


def to_switch_off(hosts: Iterable[FreeHost], policy: Policy, now: datetime) -> list[FreeHost]:
    """Return the hosts that go off, of all those that are free and on.

    Those go first that are needed the latest, of these those that were idle the longest. A host
    that somebody needs soon is no spare.
    """
    by_class: dict[str, list[FreeHost]] = {}
    for host in hosts:
        if _is_spare(host, policy, now):
            by_class.setdefault(host.hardware, []).append(host)
    return [one for warm in by_class.values() for one in _beyond_spare(warm, policy, now)]


def to_wake(
    hosts: Iterable[FreeHost],
    coming: Iterable[str],
    resting: Iterable[Shutdown],
    policy: Policy,
    now: datetime,
) -> list[Shutdown]:
    """Return which of the hosts that are off are to be on again, for spares that are missing.

    ``hosts`` are free and on; ``coming`` are the classes of those that will be soon. Those wake
    first that were off the longest.
    """
    warm = Counter(coming)
    warm.update(one.hardware for one in hosts if _is_spare(one, policy, now))
    chosen = []
    for one in sorted(resting, key=lambda one: (one.off_at or now, one.id)):
        if warm[one.hardware] < policy.spare:
            warm[one.hardware] += 1
            chosen.append(one)
    return chosen


def _is_spare(host: FreeHost, policy: Policy, now: datetime) -> bool:
    return host.next_start is None or host.next_start - now > ahead(host, policy)


def _beyond_spare(warm: Sequence[FreeHost], policy: Policy, now: datetime) -> list[FreeHost]:
    idle = timedelta(seconds=policy.idle_time)
    rested = sorted((one for one in warm if now - one.idle_since >= idle), key=_order)
    return rested[: max(len(warm) - policy.spare, 0)]


def _order(host: FreeHost) -> tuple[bool, float, datetime, int]:
    start = host.next_start
    return start is not None, -start.timestamp() if start else 0.0, host.idle_since, host.id


def saved(
    shutdowns: Iterable[Shutdown], since: datetime, until: datetime, period: Period
) -> list[Saved]:
    """Return what shutdowns saved from ``since`` to ``until``, by class and period.

    A shutdown is counted where the host went off; its hours are where they were.
    """
    found: dict[tuple[str, datetime | None], Saved] = {}
    for one in sorted(shutdowns, key=lambda one: (one.hardware, one.off_at or until)):
        for begin, end in _parts(one, since, until, period):
            key = one.hardware, begin_of(period, begin)
            share = found.setdefault(key, Saved(hardware=key[0], since=key[1]))
            share.host_hours += (end - begin) / timedelta(hours=1)
            share.shutdowns += begin == one.off_at
    return [share for _, share in sorted(found.items(), key=_by_key)]


def _by_key(item: tuple[tuple[str, datetime | None], Saved]) -> tuple[str, float]:
    (hardware, since), _ = item
    return hardware, since.timestamp() if since else 0.0


def _parts(
    one: Shutdown, since: datetime, until: datetime, period: Period
) -> Iterator[tuple[datetime, datetime]]:
    """Divide the time that a host was off where periods begin."""
    if one.off_at is None:
        return
    begin, end = max(one.off_at, since), min(one.over_at or until, until)
    while begin < end:
        following = next_begin(period, begin)
        stop = end if following is None else min(following, end)
        yield begin, stop
        begin = stop
