"""How ready hosts are: of one lease now, and of all leases over a time. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from climate.core.provisioning.preparation import Preparation, PreparationState


class Readiness(StrEnum):
    """How ready a lease or a host is."""

    PREPARING = "preparing"
    READY = "ready"
    LATE = "late"
    FAILED = "failed"


class Period(StrEnum):
    """What a summary is divided into."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    ALL = "all"


class Outcome(StrEnum):
    """Whether the hosts of a lease were ready at its start; what was never ready never started."""

    READY = "ready"
    LATE = "late"
    SHORT_NOTICE = "short_notice"
    NEVER = "never"


# Of what was asked for later than this share of the time that it should have had, nobody is to
# blame.
_SHORT_NOTICE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How ready a lease or a host is; None: nobody has been asked to get anything ready.

    ``early`` is the seconds before the start that all was ready; negative: after it. The lease
    cannot start before the hosts in ``waiting_for`` are ready.
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
    """Whether the cloud says that a host is up, and as of when.

    A cloud that hears of its hosts from time to time says so of one that has just lost its power.
    """

    up: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKnown:
    """What is known of how a host gets ready.

    ``times`` are the seconds that it took before, the oldest first. One that is ``set_aside`` is
    booked for nobody, for that reason. ``up`` is what the cloud said of it at ``seen_at``.
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
    """How many leases, and hosts, were ready when they started; of a class in a period.

    ``short_notice`` are leases that were asked for too late for their hosts to be ready.
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
        """The share of leases that were ready, of those that could be; 1 if there are none."""
        could = self.leases - self.short_notice
        return self.ready_leases / could if could else 1.0

    @property
    def mean_early(self) -> float | None:
        """How many seconds before they were needed hosts were ready, on average."""
        return sum(self.early) / len(self.early) if self.early else None


def shown(mine: Sequence[Preparation], now: datetime) -> Shown:
    """Return how ready hosts are of which these are the preparations that are not over."""
    done = [one.ready_at for one in mine if one.ready_at is not None]
    all_ready = len(done) == len(mine)
    earlies = [one.early for one in mine if one.early is not None]
    return Shown(
        state=_state(mine, now),
        hosts=len(mine),
        ready=len(done),
        ready_at=max(done) if done and all_ready else None,
        early=min(earlies) if earlies and all_ready else None,
        reasons=tuple(f"{one.node}: {one.reason}" for one in mine if one.reason),
    )


def _state(mine: Sequence[Preparation], now: datetime) -> Readiness | None:
    if not mine:
        return None
    if any(one.progress is PreparationState.FAILED for one in mine):
        return Readiness.FAILED
    if all(one.was_ready for one in mine):
        return Readiness.READY
    late = any(not one.was_ready and one.needed_at <= now for one in mine)
    return Readiness.LATE if late else Readiness.PREPARING


def summary(found: Iterable[Preparation], period: Period) -> list[Share]:
    """Return the shares by class and period; ``found`` are those whose time has come.

    A lease counts for each class of which it had hosts, at each time that it needed some.
    """
    starts: dict[tuple[str, datetime, str], list[Preparation]] = {}
    for one in found:
        starts.setdefault((one.hardware, one.needed_at, one.lease_id), []).append(one)
    shares: dict[tuple[str, datetime | None], Share] = {}
    for (hardware, needed_at, _), hosts in sorted(starts.items(), key=lambda item: item[0]):
        since = begin_of(period, needed_at)
        share = shares.setdefault((hardware, since), Share(hardware=hardware, since=since))
        _count(share, hosts, needed_at)
    return list(shares.values())


def outcomes(found: Iterable[Preparation], start: datetime) -> dict[str, Outcome]:
    """Return by class whether the hosts of one lease were ready at its start."""
    classes: dict[str, list[Preparation]] = {}
    for one in found:
        classes.setdefault(one.hardware, []).append(one)
    return {hardware: _outcome(hosts, start) for hardware, hosts in classes.items()}


def _outcome(hosts: Sequence[Preparation], start: datetime) -> Outcome:
    if all(one.ready_at is not None and one.ready_at <= start for one in hosts):
        return Outcome.READY
    # What was taken instead of others after the start is not what they were late for.
    due = [one for one in hosts if one.needed_at <= start]
    return Outcome.SHORT_NOTICE if any(map(_is_short_notice, due)) else Outcome.LATE


def _count(share: Share, hosts: Sequence[Preparation], start: datetime) -> None:
    ready = [one for one in hosts if one.was_ready]
    outcome = _outcome(hosts, start)
    share.leases += 1
    share.ready_leases += outcome is Outcome.READY
    share.short_notice += outcome is Outcome.SHORT_NOTICE
    share.hosts += len(hosts)
    share.ready_hosts += len(ready)
    share.early += [one.early for one in ready if one.early is not None]


def _is_short_notice(one: Preparation) -> bool:
    return (one.needed_at - one.wanted_at).total_seconds() < _SHORT_NOTICE * one.lead


def begin_of(period: Period, moment: datetime) -> datetime | None:
    """Return when the period begins that a moment is in; None if there is but one."""
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
    """Return when the next period begins after a moment; None if there is none."""
    begin = begin_of(period, moment)
    return None if begin is None else begin_of(period, begin + _BEYOND[period])


# Added to the begin of a period, it is in the next one.
_BEYOND = {
    Period.DAY: timedelta(days=1),
    Period.WEEK: timedelta(days=7),
    Period.MONTH: timedelta(days=31),
}
