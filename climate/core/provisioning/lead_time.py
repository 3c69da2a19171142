"""Lead time: how long before a lease the preparation of a host must start. Pure.

climate learns the lead time from the durations (in seconds) of earlier preparations. It computes
with the logarithms of durations, because slow hosts and slow boots take longer by a factor.

The usual duration of a host is the weighted median of its recent durations and of one more value,
the median of its hardware class. So the class matters only while the host has few durations. A
single host has too few durations to show a rare delay. So rare delays are measured over the whole
class: each duration is divided by the duration that had been predicted before it. The logarithm of
this ratio is called the *surprise*.
"""

import math
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

# Half-life of a duration in number of later ones; only the last 32 are kept.
_HALF_LIFE = 4.0
REMEMBERED = 32
# This number of durations in a row above this quantile: the host has changed.
_DRIFT, _DRIFTED = 3, 0.95
# With fewer values than this above a quantile, the tail is extrapolated from the upper fifth.
_NEEDED = 10
_UPPER = 0.8
# Prior of the tail: mean excess over the upper fifth, and the number of values that it counts as.
_PRIOR_EXCESS, _PRIOR_COUNT = 0.35, 4

# What identifies a host, or what else is created.
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's settings for lead times.

    ``prior`` is the duration in seconds that climate assumes until it knows a real duration. Each
    lead time is multiplied by the safety factor ``margin``. A lead time is at least ``shortest``
    and at most ``longest`` seconds. The median of a class counts as much as ``class_weight`` own
    durations of a host.
    """

    prior: float = 1800.0
    margin: float = 1.1
    shortest: float = 60.0
    longest: float = 7200.0
    class_weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Profile:
    """How long the preparation of hosts of a hardware class takes.

    ``usual`` is the logarithm of the usual duration in seconds. ``surprises`` are the logarithms of
    (duration / predicted duration), in three sorted groups: the prediction used none, one, or
    several earlier durations of the same host.
    """

    usual: float
    surprises: tuple[tuple[float, ...], ...] = field(default=((), (), ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The lead time of a host in seconds, and how it was computed.

    ``usual`` is the usual duration of a preparation in seconds. ``allowance`` is the factor by
    which ``usual`` is multiplied for slow cases. ``own_times`` and ``class_times`` are how many
    durations of the host and of its hardware class are known.
    """

    seconds: float
    usual: float
    allowance: float
    own_times: int
    class_times: int


def profile(times: Iterable[Sequence[float]], policy: Policy) -> Profile:
    """Return the profile of a hardware class from the durations of earlier preparations.

    ``times`` contains one list for each host: its durations in seconds, the oldest first.
    """
    known = [[math.log(value) for value in own[-REMEMBERED:]] for own in times if own]
    if not known:
        return Profile(math.log(policy.prior))
    usual = _middle([(_middle([(value, 1.0) for value in own]), 1.0) for own in known])
    surprises: tuple[list[float], ...] = ([], [], [])
    for own in known:
        for number, value in enumerate(own):
            predicted = _usual(own[:number], usual, policy)
            surprises[min(number, 2)].append(value - predicted)
    return Profile(usual, tuple(tuple(sorted(values)) for values in surprises))


def lead(times: Sequence[float], like: Profile, quantile: float, policy: Policy) -> Lead:
    """Return the lead time of a host that is long enough with the given probability.

    ``quantile`` is this probability, such as 0.99. ``times`` are the earlier durations of the host
    in seconds, the oldest first. ``like`` is the profile of its hardware class.
    """
    own = [math.log(value) for value in times[-REMEMBERED:]]
    known = like.surprises[min(len(own), 2)]
    recent = own[-_DRIFT:] if _has_drifted(own, like, policy) else own
    usual = _usual(recent, like.usual, policy)
    allowance = max(surprise(known, quantile), 0.0)
    seconds = math.exp(usual + allowance) * policy.margin
    return Lead(
        seconds=min(max(seconds, policy.shortest), policy.longest),
        usual=math.exp(usual),
        allowance=math.exp(allowance),
        own_times=len(own),
        class_times=sum(map(len, like.surprises)),
    )


def of_all(share: float, hosts: int) -> float:
    """Return the probability with which each single host of a lease must be ready.

    ``share`` is the wanted probability that all ``hosts`` hosts of the lease are ready.
    """
    return float(share ** (1 / max(hosts, 1)))


def surprise(known: Sequence[float], quantile: float) -> float:
    """Return the value below which the fraction ``quantile``, such as 0.99, of all surprises lies.

    A surprise is the logarithm of (duration / predicted duration). ``known`` contains the known
    surprises, sorted. If there are too few of them, the function extrapolates: it assumes a Pareto
    tail, with the exponent from Hill's estimator and the quantile from Weissman's (1978).
    """
    count = len(known)
    if count * (1 - quantile) >= _NEEDED:
        return known[min(math.ceil((count + 1) * quantile), count) - 1]
    start = bisect_left(range(count), _UPPER * count)
    threshold = known[start - 1] if start else 0.0
    excess = math.fsum(value - threshold for value in known[start:])
    mean = (excess + _PRIOR_EXCESS * _PRIOR_COUNT) / (count - start + _PRIOR_COUNT)
    return threshold + mean * max(math.log((1 - _UPPER) / (1 - quantile)), 0.0)


def _usual(own: Sequence[float], in_class: float, policy: Policy) -> float:
    """Return the usual duration of a host. All durations here are logarithms.

    It is the weighted median of the host's durations ``own``, the oldest first, and of the value
    ``in_class``, the median of its hardware class. Recent durations weigh more.
    """
    newest = len(own) - 1
    weighted = [(value, 0.5 ** ((newest - age) / _HALF_LIFE)) for age, value in enumerate(own)]
    return _middle([*weighted, (in_class, policy.class_weight)])


def _has_drifted(own: Sequence[float], like: Profile, policy: Policy) -> bool:
    """Return whether the last durations of a host were all far longer than predicted.

    If so, the host has probably changed, and its older durations do not help to predict the next
    one. ``own`` are the logarithms of the host's durations, the oldest first. ``like`` is the
    profile of its hardware class.
    """
    before, last = own[:-_DRIFT], own[-_DRIFT:]
    if not before:
        return False
    limit = _usual(before, like.usual, policy) + surprise(like.surprises[2], _DRIFTED)
    return all(value > limit for value in last)


def _middle(weighted: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median of pairs (value, weight)."""
    ordered = sorted(weighted)
    sums = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(sums, sums[-1] / 2)][0]


def profiles(
    times: Mapping[Key, Sequence[float]], classes: Mapping[Key, str], policy: Policy
) -> Mapping[str, Profile]:
    """Return the profile of each hardware class: how long the preparation of its hosts takes.

    ``times`` maps each host to the durations of its preparations in seconds. ``classes`` maps each
    host to its hardware class.
    """
    by_class: dict[str, list[Sequence[float]]] = {name: [] for name in set(classes.values())}
    for host, name in classes.items():
        by_class[name].append(times.get(host, ()))
    return {name: profile(times_of_class, policy) for name, times_of_class in by_class.items()}
