import datetime as dt
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from climate.core import limits
from climate.core.limits import Excess, Limits, Rules, Scope, Use, excess_of_dates, excess_of_use
from climate.core.window import Window
from tests.support.cases import each_case

NOON = dt.datetime(2030, 1, 15, 12, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
LAST = 24


def use(start: int, end: int, hosts: int = 1, vcpus: int = 0) -> Use:
    return Use(start=NOON + start * HOUR, end=NOON + end * HOUR, hosts=hosts, vcpus=vcpus)


@st.composite
def _use(draw: st.DrawFn) -> Use:
    start = draw(st.integers(0, LAST - 1))
    end = draw(st.integers(start, LAST))
    return use(start, end, draw(st.integers(0, 4)), draw(st.integers(0, 9)))


several = st.lists(_use(), max_size=5)


def at(uses: Sequence[Use], hour: int, amount: str) -> int:
    """Return the use during the hour that begins ``hour`` hours after noon."""
    now = NOON + hour * HOUR
    return sum(getattr(item, amount) for item in uses if item.start <= now < item.end)


def added(before: Sequence[Use], after: Sequence[Use], amount: str) -> list[int]:
    """Return the hours in which a change adds use."""
    return [h for h in range(LAST) if at(after, h, amount) > at(before, h, amount)]


def hours_in(uses: Sequence[Use], first: int, length: int) -> int:
    return sum(at(uses, hour, "hosts") for hour in range(first, first + length))


class TestPeak:
    @given(several, several, several, st.sampled_from(["hosts", "vcpus"]))
    def test_equals_the_maximum_over_every_hour(
        self, others: list[Use], before: list[Use], after: list[Use], amount: str
    ) -> None:
        all_uses = [*others, *after]
        result = [at(all_uses, hour, amount) for hour in added(before, after, amount)]
        assert limits.peak(others, before, after, amount)[0] == max(result, default=0)

    def test_does_not_add_up_uses_at_different_times(self) -> None:
        assert limits.peak([use(0, 1), use(1, 2)], [], [use(0, 2)], "hosts") == (2, 1)

    def test_does_not_add_up_leases_that_touch(self) -> None:
        assert limits.peak([use(0, 1)], [], [use(1, 2)], "hosts") == (1, 1)


class TestHostHours:
    @given(several, several, several, st.integers(1, LAST))
    def test_equal_the_maximum_over_every_window(
        self, others: list[Use], before: list[Use], after: list[Use], length: int
    ) -> None:
        windows = {
            first
            for hour in added(before, after, "hosts")
            for first in range(hour - length, hour + 2)
        }
        all_uses = [*others, *after]
        worst = max((hours_in(all_uses, first, length) for first in windows), default=0)
        assert limits.host_hours(others, before, after, length * HOUR)[0] == worst

    @given(several, st.integers(1, LAST), st.integers(0, LAST))
    def test_the_reported_usage_is_the_maximum_of_windows_not_yet_over(
        self, uses: list[Use], length: int, now: int
    ) -> None:
        worst = max(hours_in(uses, first, length) for first in range(now - length, LAST + 1))
        assert limits.most_hours(uses, NOON + now * HOUR, length * HOUR) == worst

    def test_an_addition_may_begin_where_no_use_begins_or_ends(self) -> None:
        # From the fifth hour on a window reaches what is added in the tenth.
        others, before, after = [use(0, 6)], [use(0, 10)], [use(0, 20)]
        assert limits.host_hours(others, before, after, 5 * HOUR) == (6, 5)

    def test_a_window_may_begin_anywhere(self) -> None:
        # Half of each lease is in the window from 00:30 to 02:30 only.
        uses = [use(0, 1, 2), use(2, 3, 2)]
        assert limits.host_hours([], [], uses, 2 * HOUR) == (2, 2)
        assert limits.host_hours([], [], [*uses, use(1, 2, 1)], 2 * HOUR) == (3, 3)


class TestExcessOfUse:
    @given(several, several, st.integers(1, LAST))
    def test_accepts_a_change_that_adds_nothing(
        self, others: list[Use], before: list[Use], length: int
    ) -> None:
        nothing = Limits(hosts=0, vcpus=0, host_hours=0)
        assert excess_of_use(nothing, length * HOUR, others, before, before[1:]) is None
        assert excess_of_use(nothing, length * HOUR, others, before, before) is None

    def test_reports_used_and_requested_amounts(self) -> None:
        result = excess_of_use(Limits(hosts=4), HOUR, [use(0, 2, 3)], [], [use(1, 3, 2)])
        assert result == Excess(limit="hosts", allowed=4, used=3, requested=2)

    def test_accepts_use_up_to_the_limit(self) -> None:
        allowed = Limits(hosts=5, vcpus=50, host_hours=10)
        others, requested = [use(0, 2, 3, 30)], [use(0, 2, 2, 20)]
        assert excess_of_use(allowed, 24 * HOUR, others, [], requested) is None

    @each_case("name", ["hosts", "vcpus", "host_hours"])
    def test_enforces_each_limit(self, name: str) -> None:
        result = excess_of_use(Limits(**{name: 1}), 24 * HOUR, [], [], [use(0, 2, 2, 2)])
        assert result is not None
        assert result.limit == name


class TestExcessOfDates:
    LIMITS = Limits(duration=7200, horizon=36_000, extension_window=1800, extension=3600)
    NOW = NOON + HOUR / 2

    def excess(
        self, before: tuple[float, float] | None, after: tuple[float, float], started: bool = False
    ) -> str | None:
        windows = [Window(NOON + s * HOUR, NOON + e * HOUR) for s, e in (before or after, after)]
        was = windows[0] if before else None
        result = excess_of_dates(self.LIMITS, was, windows[1], self.NOW, started=started)
        return result.limit if result else None

    def test_limits_the_duration_and_the_end_of_a_new_lease(self) -> None:
        assert self.excess(None, (1, 3)) is None
        assert self.excess(None, (1, 3.01)) == "duration"
        assert self.excess(None, (9, 10.5)) is None
        assert self.excess(None, (9, 10.6)) == "horizon"

    def test_accepts_a_change_towards_the_limit(self) -> None:
        assert self.excess((0, 20), (0, 19)) is None
        assert self.excess((0, 20), (0, 20)) is None
        assert self.excess((0, 20), (0, 21)) == "duration"
        assert self.excess((19, 20), (18, 19)) is None
        assert self.excess((19, 20), (20, 21)) == "horizon"

    def test_a_running_lease_can_be_extended_shortly_before_its_end(self) -> None:
        assert self.excess((0, 1), (0, 1.5), started=True) is None
        assert self.excess((0, 1.01), (0, 1.5), started=True) == "extension_window"
        assert self.excess((0, 1.01), (0, 0.9), started=True) is None
        assert self.excess((0, 1.01), (0, 1.5), started=False) is None

    def test_limits_the_length_of_an_extension(self) -> None:
        assert self.excess((0, 0.9), (0, 1.9), started=True) is None
        assert self.excess((0, 0.9), (0, 1.91), started=True) == "extension"


class TestOverrides:
    def test_replace_or_lift_defaults(self) -> None:
        defaults = Limits(hosts=4, leases=2)
        assert defaults.overridden({"hosts": -1, "vcpus": 8}) == Limits(leases=2, vcpus=8)

    def test_a_negative_value_means_no_limit(self) -> None:
        assert Limits().overridden({"hosts": -1, "leases": 0}) == Limits(leases=0)


class TestRules:
    RULES = Rules(
        enabled=True,
        defaults={scope: Limits() for scope in Scope},
        exempt_projects=frozenset({"ops"}),
        exempt_users=frozenset({"root"}),
        exempt_roles=frozenset({"admin"}),
    )

    def test_projects_users_and_roles_can_be_exempt(self) -> None:
        assert self.RULES.apply_to("lab", "alice", ["member"])
        assert not self.RULES.apply_to("ops", "alice", ["member"])
        assert not self.RULES.apply_to("lab", "root", ["member"])
        assert not self.RULES.apply_to("lab", "alice", ["member", "admin"])

    def test_limits_apply_only_if_enabled(self) -> None:
        assert not limits.NO_RULES.apply_to("lab", "alice", [])


def test_the_error_has_a_message_and_machine_readable_details() -> None:
    excess = Excess(limit="hosts", allowed=4, used=3, requested=2)
    error = limits.limit_exceeded(Scope.PROJECT, "lab", HOUR, excess)
    assert "4 hosts at any one time are allowed, 3 are taken, this lease needs 2" in error.message
    assert (error.code, error.status) == ("limit_exceeded", 403)
    assert error.details == {
        "limit": "hosts",
        "scope": "project",
        "owner_id": "lab",
        "unit": "hosts",
        "allowed": 4,
        "used": 3,
        "asked": 2,
    }


@each_case("limit", limits.NAMES)
def test_every_limit_has_an_error_message(limit: str) -> None:
    error = limits.limit_exceeded(
        Scope.USER, "eve", HOUR, Excess(limit=limit, allowed=1, used=2, requested=3)
    )
    assert error.message.startswith(f"Limit {limit} of user eve: ")
