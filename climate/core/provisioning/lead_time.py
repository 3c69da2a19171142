"""Lead time: how long before a lease the preparation of a host must start. Pure.

climate learns it from the durations (in seconds) of earlier preparations. It compares logarithms,
because a slow host is slower by a factor, and a boot sometimes takes several times as long.

The usual duration of a host is the weighted median of its recent durations. While there are few of
these, the median of its hardware class counts, too. The spread of the durations comes from the
whole class, as a single host has too few durations to show an event of one in five hundred. It is
the distribution of each duration divided by the duration that was predicted at that time (its
*surprise*).
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

# Half-life of a duration in number of later ones; only the last 32 are kept.
_HALF_LIFE = 4.0
REMEMBERED = 32
# The median of the class counts as much as this number of own durations.
_CLASS_WEIGHT = 1.0
# This number of durations in a row above this quantile: the host has changed.
_DRIFT, _DRIFTED = 3, 0.95
# With fewer values than this above a quantile, the tail is extrapolated from the upper fifth.
_NEEDED = 10
_UPPER = 0.8
# Prior of the tail: mean excess over the upper fifth, and the number of values that it counts as.
_PRIOR_EXCESS, _PRIOR_COUNT = 0.35, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's settings for lead times: bounds in seconds, and a safety factor (``margin``).

    ``prior`` is the duration in seconds that is assumed before any is known.
    """

    prior: float = 1800.0
    margin: float = 1.1
    shortest: float = 60.0
    longest: float = 7200.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What climate has learned about the preparation of hosts of a hardware class.

    ``usual`` is the logarithm of the usual duration in seconds. ``surprises`` are the sorted
    logarithms of duration divided by predicted duration. They are in three groups, by the number of
    durations that were known of the host before: 0, 1, or more. Without durations, the groups are
    empty.
    """

    usual: float
    surprises: tuple[tuple[float, ...], ...] = field(default=((), (), ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """The lead time of a host in seconds, and how it was computed.

    ``usual`` is the usual duration of a preparation, ``allowance`` a factor on it for slow cases.
    ``own_times`` and ``class_times`` are the numbers of known durations of the host and its
    hardware class.
    """

    seconds: float
    usual: float
    allowance: float
    own_times: int
    class_times: int


def profile(times: Iterable[Sequence[float]], policy: Policy) -> Profile:
    """Return the profile of a hardware class, from the durations of preparations.

    ``times`` has the durations of each host, the oldest first.
    """
    known = [[math.log(value) for value in own[-REMEMBERED:]] for own in times if own]
    if not known:
        return Profile(math.log(policy.prior))
    usual = _middle([(_middle([(value, 1.0) for value in own]), 1.0) for own in known])
    surprises: tuple[list[float], ...] = ([], [], [])
    for own in known:
        for number, value in enumerate(own):
            surprises[min(number, 2)].append(value - _usual(own[:number], usual))
    return Profile(usual, tuple(tuple(sorted(values)) for values in surprises))


def lead(times: Sequence[float], like: Profile, quantile: float, policy: Policy) -> Lead:
    """Return the lead time that suffices to get a host ready in the share ``quantile`` of cases.

    ``times`` are the durations of the host, the oldest first. ``like`` is the profile of its
    hardware class.
    """
    own = [math.log(value) for value in times[-REMEMBERED:]]
    known = like.surprises[min(len(own), 2)]
    recent = own[-_DRIFT:] if _has_drifted(own, like) else own
    usual = _usual(recent, like.usual)
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
    """Return how likely each host must be ready, so that all are ready in ``share`` of all cases.

    ``hosts`` is the number of hosts. The result is a probability (0..1).
    """
    return float(share ** (1 / max(hosts, 1)))


def surprise(known: Sequence[float], quantile: float) -> float:
    """Return the logarithm of (duration / predicted duration) at a quantile; ``known`` is sorted.

    If there are too few values, assume a Pareto tail with the exponent of Hill's estimator, and
    extrapolate the tail with Weissman's estimator (1978).
    """
    count = len(known)
    if count * (1 - quantile) >= _NEEDED:
        return known[min(math.ceil((count + 1) * quantile), count) - 1]
    start = bisect_left(range(count), _UPPER * count)
    threshold = known[start - 1] if start else 0.0
    excess = math.fsum(value - threshold for value in known[start:])
    mean = (excess + _PRIOR_EXCESS * _PRIOR_COUNT) / (count - start + _PRIOR_COUNT)
    return threshold + mean * max(math.log((1 - _UPPER) / (1 - quantile)), 0.0)


def _usual(own: Sequence[float], in_class: float) -> float:
    """Return the weighted median of a host's durations and the median of its hardware class.

    Recent durations of the host weigh more.
    """
    newest = len(own) - 1
    weighted = [(value, 0.5 ** ((newest - age) / _HALF_LIFE)) for age, value in enumerate(own)]
    return _middle([*weighted, (in_class, _CLASS_WEIGHT)])


def _has_drifted(own: Sequence[float], like: Profile) -> bool:
    """Return whether the last durations of a host were all far longer than predicted."""
    before, last = own[:-_DRIFT], own[-_DRIFT:]
    if not before:
        return False
    limit = _usual(before, like.usual) + surprise(like.surprises[2], _DRIFTED)
    return all(value > limit for value in last)


def _middle(weighted: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median of pairs (value, weight)."""
    ordered = sorted(weighted)
    sums = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(sums, sums[-1] / 2)][0]


def profiles(
    times: Mapping[str, Sequence[float]], classes: Mapping[str, str], policy: Policy
) -> Mapping[str, Profile]:
    """Return for each hardware class what is known about the durations of its preparations.

    ``times`` has the durations of preparations by host, ``classes`` the hardware class by host.
    """
    by_class: dict[str, list[Sequence[float]]] = {name: [] for name in set(classes.values())}
    for host, name in classes.items():
        by_class[name].append(times.get(host, ()))
    return {name: profile(times_of_class, policy) for name, times_of_class in by_class.items()}
