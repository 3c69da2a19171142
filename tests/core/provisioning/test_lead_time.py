"""The lead time of a host: properties for any times, and adaptation to new ones."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climate.core.provisioning.lead_time import Policy, lead, of_all, profile, profiles, surprise

seconds = st.floats(20.0, 5000.0)
histories = st.lists(st.lists(seconds, max_size=12), max_size=6)
quantiles = st.floats(0.5, 0.9999)
WIDE = Policy(shortest=1e-6, longest=1e9)


def _seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a simulation


def _boots(usual: float, count: int, rng: random.Random) -> list[float]:
    return [usual * rng.lognormvariate(0.0, 0.2) for _ in range(count)]


def _lead(own: Sequence[float], peers: Sequence[Sequence[float]], policy: Policy = WIDE) -> float:
    return lead(own, profile(peers, policy), 0.99, policy).seconds


@given(st.lists(seconds, max_size=12), histories, quantiles)
def test_stays_within_the_operators_bounds(
    own: list[float], peers: list[list[float]], quantile: float
) -> None:
    policy = Policy(shortest=300.0, longest=900.0)
    result = lead(own, profile(peers, policy), quantile, policy)
    assert 300.0 <= result.seconds <= 900.0
    assert result.allowance >= 1.0
    assert result.own_times == len(own)


@given(st.lists(seconds, max_size=12), histories, quantiles, quantiles)
def test_a_higher_quantile_is_never_shorter(
    own: list[float], peers: list[list[float]], value: float, other: float
) -> None:
    like = profile(peers, WIDE)
    less, more = sorted((value, other))
    at_most = lead(own, like, more, WIDE).seconds
    assert lead(own, like, less, WIDE).seconds <= at_most * (1 + 1e-9)


@given(st.lists(seconds, min_size=1, max_size=12), histories, st.floats(0.1, 10.0))
def test_scales_with_the_observed_times(
    own: list[float], peers: list[list[float]], times: float
) -> None:
    slower = replace(WIDE, prior=WIDE.prior * times)
    scaled = _lead(
        [value * times for value in own], [[o * times for o in h] for h in peers], slower
    )
    assert math.isclose(scaled, _lead(own, peers) * times, rel_tol=1e-6)


@given(histories)
def test_the_order_of_hosts_does_not_matter(peers: list[list[float]]) -> None:
    assert profile(peers, WIDE) == profile(peers[::-1], WIDE)


def test_an_unknown_class_uses_the_prior() -> None:
    result = lead([], profile([], WIDE), 0.99, WIDE)
    assert result.usual == pytest.approx(WIDE.prior)
    assert result.seconds > WIDE.prior
    assert result.class_times == 0


def test_a_new_host_uses_the_times_of_its_class() -> None:
    rng = _seeded(1)
    peers = [_boots(200.0, 20, rng) for _ in range(50)]
    new = _lead([], peers)
    assert 200.0 < new < 600.0
    assert _lead(_boots(200.0, 20, rng), peers) < new


def test_suffices_in_the_requested_share_of_cases() -> None:
    rng = _seeded(2)
    pace = [rng.lognormvariate(0.0, 0.2) for _ in range(200)]
    peers = [_boots(300.0 * value, 12, rng) for value in pace]
    like = profile(peers, WIDE)
    exact = replace(WIDE, margin=1.0)
    enough = [
        _boots(300.0 * value, 1, rng)[0] <= lead(own, like, 0.95, exact).seconds
        for own, value in zip(peers, pace, strict=True)
        for _ in range(20)
    ]
    assert 0.93 < sum(enough) / len(enough) < 0.97


def test_follows_a_slow_host_after_three_times_but_not_after_one() -> None:
    rng = _seeded(3)
    peers = [_boots(200.0, 20, rng) for _ in range(50)]
    before = peers[0]
    once = _lead([*before, 600.0], peers)
    thrice = _lead([*before, 600.0, 620.0, 610.0], peers)
    assert once < 1.2 * _lead(before, peers)
    assert thrice > 600.0


def test_extrapolates_only_beyond_the_observed_quantiles() -> None:
    rng = _seeded(4)
    few = sorted(rng.gauss(0.0, 0.2) for _ in range(50))
    assert surprise(few, 0.999) > few[-1]
    many = sorted(rng.gauss(0.0, 0.2) for _ in range(20_000))
    assert surprise(many, 0.99) == pytest.approx(0.2 * 2.326, rel=0.05)


def test_several_hosts_are_ready_together_with_the_requested_probability() -> None:
    assert of_all(0.99, 1) == 0.99
    assert of_all(0.99, 10) ** 10 == pytest.approx(0.99)


def test_classes_are_learned_separately() -> None:
    times = {"a": [100.0], "b": [1000.0], "c": []}
    result = profiles(times, {"a": "fast", "b": "slow", "c": "slow", "d": "new"}, WIDE)
    assert math.exp(result["fast"].usual) == pytest.approx(100.0)
    assert math.exp(result["slow"].usual) == pytest.approx(1000.0)
    assert math.exp(result["new"].usual) == pytest.approx(WIDE.prior)
