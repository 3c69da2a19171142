"""Whether the hosts of a lease are ready, and how often hosts were ready in time. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from climate.core.provisioning.preparation import Preparation, PreparationState


class Readiness(StrEnum):
    """Whether a host, or all hosts of a lease, are ready for use."""

    PREPARING = "preparing"
    READY = "ready"
    LATE = "late"
    FAILED = "failed"


class Period(StrEnum):
    """The length of the periods into which a summary is divided."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    ALL = "all"


class Outcome(StrEnum):
    """Whether the hosts of a lease were ready at its start.

    SHORT_NOTICE means that they were not, because the lease was created too late to prepare them.
    NEVER means that the lease did not start.
    """

    READY = "ready"
    LATE = "late"
    SHORT_NOTICE = "short_notice"
    NEVER = "never"


# Starts of leases that are made for now are rounded down to the second (v2) or the minute (v1).
_ROUNDING = timedelta(minutes=1)
# A preparation that had less than this share of its lead time counts as short notice.
_SHORT_NOTICE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The readiness of a lease or a host, as the API shows it.

    ``state`` is None if there is no preparation yet. ``hosts`` and ``ready`` are numbers of hosts.
    ``early`` is how much earlier than needed a host was ready, in seconds (negative: late). If
    there are several hosts, ``early`` is the smallest of their values. ``reasons`` says why
    preparations failed, or that no provisioner has claimed them. ``waiting_for`` names the hosts
    for which the start of the lease waits.
    """

    state: Readiness | None
    hosts: int = 0
    ready: int = 0
    ready_at: datetime | None = None
    early: float | None = None
    reasons: Sequence[str] = ()
    waiting_for: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Whether the cloud reported a host as up, and the time of the report.

    A cloud that uses heartbeats still reports a host as up for some time after the host lost power.
    """

    up: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKnown:
    """What climate knows about a host: earlier preparations, quarantine, and whether it is up.

    ``times`` are the durations of preparations in seconds, the oldest first. ``set_aside`` is the
    reason of the quarantine (None: there is none). ``up`` is what the cloud reported at
    ``seen_at``.
    """

    resource_id: int
    hardware: str = ""
    times: Sequence[float] = ()
    set_aside: str | None = None
    set_aside_at: datetime | None = None
    up: bool | None = None
    seen_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class Share:
    """How many leases and hosts needed preparation, and how many of them were ready.

    The numbers are for one hardware class and the period from ``since`` on (None: all time).
    ``short_notice`` is the number of leases that were not ready because they were created too late.
    ``early`` contains, for each host that was ready in time, how many seconds before the lease it
    was ready.
    """

    hardware: str
    since: datetime | None
    leases: int = 0
    ready_leases: int = 0
    short_notice: int = 0
    hosts: int = 0
    ready_hosts: int = 0
    early: list[float] = field(default_factory=list)

    @property
    def ready_share(self) -> float:
        """The fraction (0 to 1) of leases whose hosts were ready in time.

        Leases that were created too late are left out. If no leases are left, the result is 1.
        """
        possible = self.leases - self.short_notice
        return self.ready_leases / possible if possible else 1.0

    @property
    def mean_early(self) -> float | None:
        """How many seconds hosts were ready before they were needed, on average.

        Hosts that were ready too late are left out. None if no host was ready in time.
        """
        return sum(self.early) / len(self.early) if self.early else None


def shown(
    tasks: Sequence[Preparation], now: datetime, unclaimed: Collection[str] = frozenset()
) -> Shown:
    """Return the readiness of some hosts at ``now``.

    ``tasks`` are the preparations of these hosts that are not over. ``unclaimed`` contains the ids
    of those that no provisioner claims.
    """
    done = [task.ready_at for task in tasks if task.ready_at is not None]
    all_ready = len(done) == len(tasks)
    earlies = [task.early for task in tasks if task.early is not None]
    return Shown(
        state=_state(tasks, now),
        hosts=len(tasks),
        ready=len(done),
        ready_at=max(done) if done and all_ready else None,
        early=min(earlies) if earlies and all_ready else None,
        reasons=tuple(_reasons(tasks, unclaimed)),
    )


def _reasons(tasks: Sequence[Preparation], unclaimed: Collection[str]) -> Iterator[str]:
    for task in tasks:
        if task.reason:
            yield f"{task.node}: {task.reason}"
        if task.id in unclaimed:
            yield (
                f"{task.node}: no provisioner has claimed its preparation; a provisioner with"
                f" {task.node} in its nodes file must run"
            )


def _state(tasks: Sequence[Preparation], now: datetime) -> Readiness | None:
    if not tasks:
        return None
    if any(task.progress is PreparationState.FAILED for task in tasks):
        return Readiness.FAILED
    if all(task.was_ready for task in tasks):
        return Readiness.READY
    late = any(not task.was_ready and task.needed_at <= now for task in tasks)
    return Readiness.LATE if late else Readiness.PREPARING


def summary(preparations: Iterable[Preparation], period: Period) -> list[Share]:
    """Return how many leases had ready hosts, as a ``Share`` per hardware class and period.

    The caller must pass only preparations whose time ``needed_at`` has passed. A lease that needs
    hosts of two hardware classes, or at two times, is counted twice.
    """
    starts: dict[tuple[str, datetime, str], list[Preparation]] = {}
    for task in preparations:
        starts.setdefault((task.hardware, task.needed_at, task.lease_id), []).append(task)
    shares: dict[tuple[str, datetime | None], Share] = {}
    for (hardware, needed_at, _), hosts in sorted(starts.items(), key=lambda item: item[0]):
        since = begin_of(period, needed_at)
        share = shares.setdefault((hardware, since), Share(hardware=hardware, since=since))
        _count(share, hosts, needed_at)
    return list(shares.values())


def outcomes(preparations: Iterable[Preparation], start: datetime) -> dict[str, Outcome]:
    """Return, by hardware class, whether the hosts of a lease were ready at its ``start``.

    ``preparations`` are those of the lease.
    """
    classes: dict[str, list[Preparation]] = {}
    for task in preparations:
        classes.setdefault(task.hardware, []).append(task)
    return {hardware: _outcome(hosts, start) for hardware, hosts in classes.items()}


def _outcome(hosts: Sequence[Preparation], start: datetime) -> Outcome:
    if all(task.ready_at is not None and task.ready_at <= start for task in hosts):
        return Outcome.READY
    # A replacement after the start is not the cause of the delay. If a lease is made for now, its
    # start is rounded down, but its hosts are needed from now on.
    due = [task for task in hosts if task.needed_at < start + _ROUNDING]
    return Outcome.SHORT_NOTICE if any(map(_is_short_notice, due)) else Outcome.LATE


def _count(share: Share, hosts: Sequence[Preparation], start: datetime) -> None:
    ready = [task for task in hosts if task.was_ready]
    outcome = _outcome(hosts, start)
    share.leases += 1
    share.ready_leases += outcome is Outcome.READY
    share.short_notice += outcome is Outcome.SHORT_NOTICE
    share.hosts += len(hosts)
    share.ready_hosts += len(ready)
    share.early += [task.early for task in ready if task.early is not None]


def _is_short_notice(task: Preparation) -> bool:
    return (task.needed_at - task.wanted_at).total_seconds() < _SHORT_NOTICE * task.lead


def begin_of(period: Period, moment: datetime) -> datetime | None:
    """Return the begin of the period that contains ``moment``; None for the period ``all``."""
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begins = {
        Period.DAY: day,
        Period.WEEK: day - timedelta(days=day.weekday()),
        Period.MONTH: day.replace(day=1),
    }
    return begins.get(period)


def next_begin(period: Period, moment: datetime) -> datetime | None:
    """Return the begin of the first period after ``moment``; None for the period ``all``."""
    begin = begin_of(period, moment)
    most_days = {Period.DAY: 1, Period.WEEK: 7, Period.MONTH: 31}
    return begin_of(period, begin + timedelta(days=most_days[period])) if begin else None
