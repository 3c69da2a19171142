"""Power saving: which idle hosts to switch off, and how long they were off. Pure.

climate switches off a host that no lease has needed for a while, if the host can be ready again in
time for its next booking. In each hardware class, a few free hosts (spare hosts) stay on, for
leases that start at once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.core.provisioning.readiness import Period, begin_of, next_begin
from climate.core.provisioning.shutdown import Shutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's settings of power saving.

    A host is switched off after ``idle_time`` seconds without a lease, if it can then stay off for
    at least another ``idle_time`` seconds. In each hardware class, ``spare`` free hosts stay on.
    """

    idle_time: float = 1800.0
    spare: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeHost:
    """A host that works and is on, and that nothing has used since ``idle_since``.

    Since ``idle_since``, the host had no lease and no task of a provisioner (preparation or
    shutdown). ``next_start`` is the start of its next booking (None: there is none). ``lead`` is
    how many seconds a provisioner needs to prepare it.
    """

    id: int
    hardware: str
    idle_since: datetime
    next_start: datetime | None = None
    lead: float = 0.0


@dataclass(slots=True, kw_only=True)
class Saved:
    """How many host-hours the hosts of a hardware class were off, in the period from ``since`` on.

    ``shutdowns`` is how often these hosts were switched off. ``since`` is None for the period
    "all".
    """

    hardware: str
    since: datetime | None
    host_hours: float = 0.0
    shutdowns: int = 0


def ahead(host: FreeHost, policy: Policy) -> timedelta:
    """Return how far away the next booking of a host must be, so that the host may be switched off.

    This is the time to prepare the host plus the minimum time to stay off.
    """
    return timedelta(seconds=host.lead + policy.idle_time)


def to_switch_off(hosts: Iterable[FreeHost], policy: Policy, now: datetime) -> list[FreeHost]:
    """Return which of the free hosts to switch off. ``hosts`` are all free hosts that are on.

    Spare hosts stay on. Hosts without a next booking are chosen first, then hosts with the latest
    next booking, then hosts that have been idle the longest. A host whose next booking begins soon
    (within ``ahead``) is neither switched off nor counted as a spare.
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
    """Return the shutdowns whose hosts must be switched on again, so that there are enough spares.

    ``resting`` are the shutdowns to choose from. Hosts that have been off the longest are chosen
    first. ``hosts`` are the free hosts that are on. ``coming`` contains the hardware class of each
    host that is booting to become a spare.
    """
    warm = Counter(coming)
    warm.update(host.hardware for host in hosts if _is_spare(host, policy, now))
    chosen = []
    for task in sorted(resting, key=lambda task: (task.off_at or now, task.id)):
        if warm[task.hardware] < policy.spare:
            warm[task.hardware] += 1
            chosen.append(task)
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
    """Return how many host-hours hosts were off from ``since`` to ``until``.

    The result contains one item for each hardware class and each ``period``, such as each week. An
    item counts the shutdowns whose host went off in its period, and the hours during which hosts
    were off in its period.
    """
    shares: dict[tuple[str, datetime | None], Saved] = {}
    for task in sorted(shutdowns, key=lambda task: (task.hardware, task.off_at or until)):
        for begin, end in _parts(task, since, until, period):
            key = task.hardware, begin_of(period, begin)
            share = shares.setdefault(key, Saved(hardware=key[0], since=key[1]))
            share.host_hours += (end - begin) / timedelta(hours=1)
            share.shutdowns += begin == task.off_at
    return list(shares.values())


def _parts(
    task: Shutdown, since: datetime, until: datetime, period: Period
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the spans in which the host of ``task`` was off, from ``since`` to ``until``.

    The spans are split where a new ``period`` begins, such as a new week.
    """
    if task.off_at is None:
        return
    begin, end = max(task.off_at, since), min(task.over_at or until, until)
    while begin < end:
        following = next_begin(period, begin)
        stop = end if following is None else min(following, end)
        yield begin, stop
        begin = stop
