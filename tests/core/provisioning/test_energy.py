"""Which hosts go off, and what that saves: for any hosts, bookings and policies."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core import shutdown
from climate.core.energy import FreeHost, Policy, ahead, saved, to_switch_off, to_wake
from climate.core.errors import ClimateError
from climate.core.readiness import Period, begin_of, next_begin
from climate.core.shutdown import OPEN, Shutdown, ShutdownState

NOW = datetime(2030, 3, 1, 12, tzinfo=UTC)
SINCE = NOW - timedelta(days=70)

minutes = st.integers(0, 600).map(lambda count: timedelta(minutes=count))
policies = st.builds(
    Policy, idle_time=st.sampled_from([60.0, 1800.0, 7200.0]), spare=st.integers(0, 3)
)
some_hosts = st.lists(
    st.builds(
        FreeHost,
        id=st.integers(1, 99),
        hardware=st.sampled_from(["gpu", "plain"]),
        idle_since=minutes.map(lambda ago: NOW - ago),
        next_start=st.none() | minutes.map(lambda ahead: NOW + ahead),
        lead=st.floats(60, 7200),
    ),
    max_size=12,
    unique_by=lambda host: host.id,
)


def stays_long(host: FreeHost, policy: Policy) -> bool:
    return host.next_start is None or host.next_start - NOW > ahead(host, policy)


@given(some_hosts, policies)
def test_switches_off_only_idle_hosts_that_can_be_back_in_time(
    hosts: list[FreeHost], policy: Policy
) -> None:
    for host in to_switch_off(hosts, policy, NOW):
        assert (NOW - host.idle_since).total_seconds() >= policy.idle_time
        if host.next_start is not None:
            away = (host.next_start - NOW).total_seconds()
            assert away > host.lead + policy.idle_time


@given(some_hosts, policies)
def test_keeps_exactly_the_spare_hosts_of_each_class(hosts: list[FreeHost], policy: Policy) -> None:
    off = to_switch_off(hosts, policy, NOW)
    warm = Counter(one.hardware for one in hosts if stays_long(one, policy))
    left = warm - Counter(one.hardware for one in off)
    for hardware, count in warm.items():
        assert left[hardware] >= min(count, policy.spare)
    idle = timedelta(seconds=policy.idle_time)
    for one in hosts:
        if one not in off and stays_long(one, policy) and NOW - one.idle_since >= idle:
            assert left[one.hardware] <= policy.spare


@given(some_hosts, policies, st.randoms(use_true_random=False))
def test_the_order_of_hosts_does_not_matter(
    hosts: list[FreeHost], policy: Policy, random: object
) -> None:
    shuffled = sorted(hosts, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert {one.id for one in to_switch_off(hosts, policy, NOW)} == {
        one.id for one in to_switch_off(shuffled, policy, NOW)
    }


@given(some_hosts, policies)
def test_a_second_run_switches_off_nothing_more(hosts: list[FreeHost], policy: Policy) -> None:
    off = to_switch_off(hosts, policy, NOW)
    assert to_switch_off([one for one in hosts if one not in off], policy, NOW) == []


@given(some_hosts, policies)
def test_switches_off_the_host_needed_last_first(hosts: list[FreeHost], policy: Policy) -> None:
    off = {one.id for one in to_switch_off(hosts, policy, NOW)}
    idle = timedelta(seconds=policy.idle_time)
    able = [one for one in hosts if stays_long(one, policy) and NOW - one.idle_since >= idle]
    for gone in (one for one in able if one.id in off):
        for left in (one for one in able if one.id not in off and one.hardware == gone.hardware):
            assert gone.next_start is None or (
                left.next_start is not None and left.next_start <= gone.next_start
            )


@given(some_hosts, policies, st.lists(st.sampled_from(["gpu", "plain"]), max_size=4))
def test_wakes_as_many_hosts_as_spares_are_missing(
    hosts: list[FreeHost], policy: Policy, coming: list[str]
) -> None:
    asleep = [
        replace(made(NOW - timedelta(minutes=number), None, name), id=f"{name} {number}")
        for number in range(2)
        for name in ("gpu", "plain")
    ]
    woken = to_wake(hosts, coming, asleep, policy, NOW)
    for name in ("gpu", "plain"):
        warm = sum(stays_long(one, policy) for one in hosts if one.hardware == name)
        missing = max(policy.spare - warm - coming.count(name), 0)
        mine = [one.id for one in woken if one.hardware == name]
        assert mine == [f"{name} 1", f"{name} 0"][: min(missing, 2)]
    if woken:
        left = {one.hardware for one in to_switch_off(hosts, policy, NOW)}
        assert not left & {one.hardware for one in woken}


def made(off_at: datetime | None, over_at: datetime | None, hardware: str = "gpu") -> Shutdown:
    return Shutdown(
        id="1",
        resource_id=1,
        node="node",
        hardware=hardware,
        progress=ShutdownState.OFF,
        wanted_at=NOW,
        ahead=60.0,
        off_at=off_at,
        over_at=over_at,
    )


moments = st.integers(-100 * 24 * 60, 0).map(lambda count: NOW + timedelta(minutes=count))


@given(
    st.lists(st.tuples(moments, st.none() | moments, st.sampled_from(["gpu", "plain"]))),
    st.sampled_from(list(Period)),
)
def test_saved_hours_add_up_for_every_period(
    given_: list[tuple[datetime, datetime | None, str]], period: Period
) -> None:
    found = [made(*one) for one in given_ if one[1] is None or one[1] >= one[0]]
    off = [min(one.over_at or NOW, NOW) - max(one.off_at or NOW, SINCE) for one in found]
    whole = sum((max(one, timedelta()) for one in off), timedelta())
    shares = saved(found, SINCE, NOW, period)
    total = sum(one.host_hours for one in shares)
    assert total == pytest.approx(whole / timedelta(hours=1))
    assert len({(one.hardware, one.since) for one in shares}) == len(shares)
    counted = [one for one in found if one.off_at and SINCE <= one.off_at < (one.over_at or NOW)]
    assert sum(one.shutdowns for one in shares) == len(counted)


@given(moments, st.sampled_from([Period.DAY, Period.WEEK, Period.MONTH]))
def test_a_period_ends_where_the_next_begins(moment: datetime, period: Period) -> None:
    begin, following = begin_of(period, moment), next_begin(period, moment)
    assert begin is not None
    assert following is not None
    assert begin <= moment < following
    assert begin_of(period, following) == following
    assert begin_of(period, following - timedelta(microseconds=1)) == begin


steps = st.lists(
    st.tuples(
        st.sampled_from(["accept", "off", "kept", "released"]),
        st.sampled_from(["p1", "p2"]),
        st.integers(0, 90),
    ),
    max_size=12,
)


def taken(mine: Shutdown, step: str, owner: str, now: datetime) -> Shutdown:
    """Return what a shutdown is after a step; as it was, if that is refused."""
    try:
        match step:
            case "accept":
                return shutdown.accept(mine, owner, now, now + timedelta(seconds=60))
            case "off":
                return shutdown.off(mine, owner, now)
            case "kept":
                return shutdown.kept(mine, owner, "no answer")
            case _:
                return shutdown.released(mine, owner)
    except ClimateError:
        return mine


@given(steps)
def test_one_owner_at_a_time_and_a_begun_shutdown_is_never_unclaimed(
    given_: list[tuple[str, str, int]],
) -> None:
    now, mine = NOW, replace(made(None, None), progress=ShutdownState.WANTED)
    for step, owner, seconds in given_:
        now += timedelta(seconds=seconds)
        before, mine = mine, taken(mine, step, owner, now)
        if before.claimed_until and before.claimed_until > now and before.owner != owner:
            assert mine == before
        if before.attempt:
            assert mine.progress is not ShutdownState.WANTED
        if before.progress not in OPEN:
            assert mine == before
        assert (mine.off_at is not None) is (mine.progress is ShutdownState.OFF)
