"""Readiness of hosts: of one lease now, and statistics of all leases. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from climate.core.provisioning.preparation import Preparation, PreparationState


class Readiness(StrEnum):
    """Readiness of a lease or a host."""

    PREPARING = "preparing"
    READY = "ready"
    LATE = "late"
    FAILED = "failed"


class Period(StrEnum):
    """The period of each entry of a summary."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    ALL = "all"


class Outcome(StrEnum):
    """Whether the hosts of a lease were ready at its start; NEVER if it never started."""

    READY = "ready"
    LATE = "late"
    SHORT_NOTICE = "short_notice"
    NEVER = "never"


# A preparation that was requested with less than this share of its lead time is short notice.
_SHORT_NOTICE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Readiness of a lease or a host for the API; None if nothing was requested.

    ``early`` is how many seconds before the start all hosts were ready, negative if after it. The
    lease cannot start before the hosts in ``waiting_for`` are ready.
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
    """Whether the cloud reports a host as up, and as of when.

    Clouds poll their hosts, so a host that has just lost its power may still be reported as up.
    """

    up: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKnown:
    """What is known about the preparation of a host.

    ``times`` are the seconds that earlier preparations took, oldest first. A host with a reason in
    ``set_aside`` is in quarantine and gets no bookings. ``up`` is the cloud's report at
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
    """Number of leases and hosts that were ready at their start, of a class in a period.

    ``short_notice`` counts leases that were requested too late for their hosts to be ready.
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
        """The share of ready leases among those with enough notice; 1 if there are none."""
        could = self.leases - self.short_notice
        return self.ready_leases / could if could else 1.0

    @property
    def mean_early(self) -> float | None:
        """How many seconds hosts were ready before they were needed, on average."""
        return sum(self.early) / len(self.early) if self.early else None


def shown(preparations: Sequence[Preparation], now: datetime) -> Shown:
    """Return the readiness that follows from preparations that are not over."""
    done = [each.ready_at for each in preparations if each.ready_at is not None]
    all_ready = len(done) == len(preparations)
    earlies = [each.early for each in preparations if each.early is not None]
    return Shown(
        state=_state(preparations, now),
        hosts=len(preparations),
        ready=len(done),
        ready_at=max(done) if done and all_ready else None,
        early=min(earlies) if earlies and all_ready else None,
        reasons=tuple(f"{each.node}: {each.reason}" for each in preparations if each.reason),
    )


def _state(preparations: Sequence[Preparation], now: datetime) -> Readiness | None:
    if not preparations:
        return None
    if any(each.progress is PreparationState.FAILED for each in preparations):
        return Readiness.FAILED
    if all(each.was_ready for each in preparations):
        return Readiness.READY
    late = any(not each.was_ready and each.needed_at <= now for each in preparations)
    return Readiness.LATE if late else Readiness.PREPARING


def summary(preparations: Iterable[Preparation], period: Period) -> list[Share]:
    """Return the shares by class and period; ``preparations`` are those whose start has passed.

    A lease counts once per hardware class and per time at which it needed hosts.
    """
    starts: dict[tuple[str, datetime, str], list[Preparation]] = {}
    for each in preparations:
        starts.setdefault((each.hardware, each.needed_at, each.lease_id), []).append(each)
    shares: dict[tuple[str, datetime | None], Share] = {}
    for (hardware, needed_at, _), hosts in sorted(starts.items(), key=lambda item: item[0]):
        since = begin_of(period, needed_at)
        share = shares.setdefault((hardware, since), Share(hardware=hardware, since=since))
        _count(share, hosts, needed_at)
    return list(shares.values())


def outcomes(preparations: Iterable[Preparation], start: datetime) -> dict[str, Outcome]:
    """Return, by class, whether the hosts of one lease were ready at its start."""
    classes: dict[str, list[Preparation]] = {}
    for each in preparations:
        classes.setdefault(each.hardware, []).append(each)
    return {hardware: _outcome(hosts, start) for hardware, hosts in classes.items()}


def _outcome(hosts: Sequence[Preparation], start: datetime) -> Outcome:
    if all(each.ready_at is not None and each.ready_at <= start for each in hosts):
        return Outcome.READY
    # Replacements that were added after the start do not explain why the start was late.
    due = [each for each in hosts if each.needed_at <= start]
    return Outcome.SHORT_NOTICE if any(map(_is_short_notice, due)) else Outcome.LATE


def _count(share: Share, hosts: Sequence[Preparation], start: datetime) -> None:
    ready = [each for each in hosts if each.was_ready]
    outcome = _outcome(hosts, start)
    share.leases += 1
    share.ready_leases += outcome is Outcome.READY
    share.short_notice += outcome is Outcome.SHORT_NOTICE
    share.hosts += len(hosts)
    share.ready_hosts += len(ready)
    share.early += [each.early for each in ready if each.early is not None]


def _is_short_notice(late: Preparation) -> bool:
    return (late.needed_at - late.wanted_at).total_seconds() < _SHORT_NOTICE * late.lead


def begin_of(period: Period, moment: datetime) -> datetime | None:
    """Return the begin of the period that contains a moment; None for ALL."""
    day = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case Period.DAY:
            return day
        case Period.WEEK:
            return day - timedelta(days=day.weekday())
        case Period.MONTH:
            return day.replace(day=1)
    return None


def next_begin(period: Period, moment: datetime) -> datetime | None:
    """Return the begin of the next period after a moment; None for ALL."""
    begin = begin_of(period, moment)
    return None if begin is None else begin_of(period, begin + _BEYOND[period])


# The begin of a period plus this is inside the next period.
_BEYOND = {
    Period.DAY: timedelta(days=1),
    Period.WEEK: timedelta(days=7),
    Period.MONTH: timedelta(days=31),
}
