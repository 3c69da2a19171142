"""Power saving for any hosts, bookings and policies: hosts to switch off, hours saved."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.errors import ClimateError
from climate.core.provisioning import shutdown
from climate.core.provisioning.energy import FreeHost, Policy, ahead, saved, to_switch_off, to_wake
from climate.core.provisioning.readiness import Period, begin_of, next_begin
from climate.core.provisioning.shutdown import OPEN, Shutdown, ShutdownState

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
    warm = Counter(item.hardware for item in hosts if stays_long(item, policy))
    left = warm - Counter(item.hardware for item in off)
    for hardware, count in warm.items():
        assert left[hardware] >= min(count, policy.spare)
    idle = timedelta(seconds=policy.idle_time)
    for item in hosts:
        if item not in off and stays_long(item, policy) and NOW - item.idle_since >= idle:
            assert left[item.hardware] <= policy.spare


@given(some_hosts, policies, st.randoms(use_true_random=False))
def test_the_order_of_hosts_does_not_matter(
    hosts: list[FreeHost], policy: Policy, random: object
) -> None:
    shuffled = sorted(hosts, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert {item.id for item in to_switch_off(hosts, policy, NOW)} == {
        item.id for item in to_switch_off(shuffled, policy, NOW)
    }


@given(some_hosts, policies)
def test_a_second_run_switches_off_nothing_more(hosts: list[FreeHost], policy: Policy) -> None:
    off = to_switch_off(hosts, policy, NOW)
    assert to_switch_off([item for item in hosts if item not in off], policy, NOW) == []


@given(some_hosts, policies)
def test_switches_off_the_host_needed_last_first(hosts: list[FreeHost], policy: Policy) -> None:
    off = {item.id for item in to_switch_off(hosts, policy, NOW)}
    idle = timedelta(seconds=policy.idle_time)
    able = [item for item in hosts if stays_long(item, policy) and NOW - item.idle_since >= idle]
    for gone in (item for item in able if item.id in off):
        for left in (
            item for item in able if item.id not in off and item.hardware == gone.hardware
        ):
            assert gone.next_start is None or (
                left.next_start is not None and left.next_start <= gone.next_start
            )


@given(some_hosts, policies, st.lists(st.sampled_from(["gpu", "plain"]), max_size=4))
def test_wakes_as_many_hosts_as_spares_are_missing(
    hosts: list[FreeHost], policy: Policy, coming: list[str]
) -> None:
    asleep = [
        replace(recorded(NOW - timedelta(minutes=number), None, name), id=f"{name} {number}")
        for number in range(2)
        for name in ("gpu", "plain")
    ]
    woken = to_wake(hosts, coming, asleep, policy, NOW)
    for name in ("gpu", "plain"):
        warm = sum(stays_long(item, policy) for item in hosts if item.hardware == name)
        missing = max(policy.spare - warm - coming.count(name), 0)
        current = [item.id for item in woken if item.hardware == name]
        assert current == [f"{name} 1", f"{name} 0"][: min(missing, 2)]
    if woken:
        left = {item.hardware for item in to_switch_off(hosts, policy, NOW)}
        assert not left & {item.hardware for item in woken}


def recorded(off_at: datetime | None, over_at: datetime | None, hardware: str = "gpu") -> Shutdown:
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
    rows: list[tuple[datetime, datetime | None, str]], period: Period
) -> None:
    shutdowns = [recorded(*item) for item in rows if item[1] is None or item[1] >= item[0]]
    off = [min(item.over_at or NOW, NOW) - max(item.off_at or NOW, SINCE) for item in shutdowns]
    whole = sum((max(item, timedelta()) for item in off), timedelta())
    shares = saved(shutdowns, SINCE, NOW, period)
    total = sum(item.host_hours for item in shares)
    assert total == pytest.approx(whole / timedelta(hours=1))
    keys = [(item.hardware, item.since or SINCE) for item in shares]
    assert keys == sorted(set(keys))
    counted = [
        item for item in shutdowns if item.off_at and SINCE <= item.off_at < (item.over_at or NOW)
    ]
    assert sum(item.shutdowns for item in shares) == len(counted)


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


def after_step(current: Shutdown, step: str, owner: str, now: datetime) -> Shutdown:
    """Return the shutdown after a step; unchanged if the step is rejected."""
    try:
        match step:
            case "accept":
                return shutdown.accept(current, owner, now, now + timedelta(seconds=60))
            case "off":
                return shutdown.off(current, owner, now)
            case "kept":
                return shutdown.kept(current, owner, "no answer")
            case _:
                return shutdown.released(current, owner)
    except ClimateError:
        return current


@given(steps)
def test_one_owner_at_a_time_and_a_begun_shutdown_is_never_unclaimed(
    rows: list[tuple[str, str, int]],
) -> None:
    now, current = NOW, replace(recorded(None, None), progress=ShutdownState.WANTED)
    for step, owner, seconds in rows:
        now += timedelta(seconds=seconds)
        before, current = current, after_step(current, step, owner, now)
        if before.claimed_until and before.claimed_until > now and before.owner != owner:
            assert current == before
        if before.attempt:
            assert current.progress is not ShutdownState.WANTED
        if before.progress not in OPEN:
            assert current == before
        assert (current.off_at is not None) is (current.progress is ShutdownState.OFF)
