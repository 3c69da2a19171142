"""The lead time of a host: how long before a lease its preparation must begin. Learned, pure.

The input is how many seconds earlier preparations took. They are compared as logarithms, because
what slows a host down multiplies its times, and now and then a boot takes several times as long.
The usual time of a host is the weighted median of its recent times and, while they are few, of its
hardware class. How far a single time may exceed it (its *surprise*) is learned from the whole
class, because a host alone has too few times to show what happens once in five hundred. Each time
is compared with the estimate that was possible before it.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

# The weight of a time halves after four newer times; only the last 32 count.
_HALF_LIFE = 4.0
REMEMBERED = 32
# The usual time of the class weighs as much as this many times of the host.
_CLASS_WEIGHT = 1.0
# After 3 times in a row beyond the 95 % quantile the host counts as changed.
_DRIFT, _DRIFTED = 3, 0.95
# With fewer observations beyond a quantile, the tail is extrapolated from the upper fifth.
_NEEDED = 10
_UPPER = 0.8
# The prior of the tail: as if 4 surprises exceeded the upper fifth by a mean of 0.35.
_PRIOR_EXCESS, _PRIOR_COUNT = 0.35, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's policy: seconds, and ``margin``, a factor on the learned time."""

    prior: float = 1800.0
    margin: float = 1.1
    shortest: float = 60.0
    longest: float = 7200.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Statistics of a hardware class.

    ``usual`` is the logarithm of seconds. ``surprises`` are sorted logarithms of (actual time /
    expected time), in three groups: no, one, or more earlier times of the host were known.
    """

    usual: float
    surprises: tuple[tuple[float, ...], ...] = field(default=((), (), ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Seconds before the start, and why: the usual time and the allowance (a factor)."""

    seconds: float
    usual: float
    allowance: float
    own_times: int
    class_times: int


def profile(times: Iterable[Sequence[float]], policy: Policy) -> Profile:
    """Return the profile of a class; ``times`` has the times of each host, oldest first."""
    logs = [[math.log(time) for time in host[-REMEMBERED:]] for host in times if host]
    if not logs:
        return Profile(math.log(policy.prior))
    usual = _median([(_median([(log, 1.0) for log in host]), 1.0) for host in logs])
    surprises: tuple[list[float], ...] = ([], [], [])
    for host in logs:
        for number, log in enumerate(host):
            surprises[min(number, 2)].append(log - _usual(host[:number], usual))
    return Profile(usual, tuple(tuple(sorted(group)) for group in surprises))


def lead(times: Sequence[float], like: Profile, quantile: float, policy: Policy) -> Lead:
    """Return the lead time with which the host is ready in ``quantile`` (0..1) of all cases.

    ``times`` are the earlier times of the host, oldest first.
    """
    logs = [math.log(time) for time in times[-REMEMBERED:]]
    known = like.surprises[min(len(logs), 2)]
    recent = logs[-_DRIFT:] if _has_drifted(logs, like) else logs
    usual = _usual(recent, like.usual)
    allowance = max(surprise(known, quantile), 0.0)
    seconds = math.exp(usual + allowance) * policy.margin
    return Lead(
        seconds=min(max(seconds, policy.shortest), policy.longest),
        usual=math.exp(usual),
        allowance=math.exp(allowance),
        own_times=len(logs),
        class_times=sum(map(len, like.surprises)),
    )


def of_all(share: float, hosts: int) -> float:
    """Return the quantile per host so that all ``hosts`` are ready in ``share`` of cases."""
    return float(share ** (1 / max(hosts, 1)))


def surprise(known: Sequence[float], quantile: float) -> float:
    """Return the surprise that ``1 - quantile`` of all cases exceed; ``known`` is sorted.

    With too few observations the tail is assumed to be a Pareto distribution with Hill's estimate
    of the exponent, and extrapolated (Weissman, 1978).
    """
    count = len(known)
    if count * (1 - quantile) >= _NEEDED:
        return known[min(math.ceil((count + 1) * quantile), count) - 1]
    start = bisect_left(range(count), _UPPER * count)
    threshold = known[start - 1] if start else 0.0
    excess = math.fsum(log - threshold for log in known[start:])
    mean = (excess + _PRIOR_EXCESS * _PRIOR_COUNT) / (count - start + _PRIOR_COUNT)
    return threshold + mean * max(math.log((1 - _UPPER) / (1 - quantile)), 0.0)


def _usual(logs: Sequence[float], in_class: float) -> float:
    """Return the weighted median of a host's times and its class, newer times weigh more."""
    newest = len(logs) - 1
    weighted = [(log, 0.5 ** ((newest - index) / _HALF_LIFE)) for index, log in enumerate(logs)]
    return _median([*weighted, (in_class, _CLASS_WEIGHT)])


def _has_drifted(logs: Sequence[float], like: Profile) -> bool:
    """Return whether the last times were all far longer than the earlier ones suggest."""
    before, last = logs[:-_DRIFT], logs[-_DRIFT:]
    if not before:
        return False
    limit = _usual(before, like.usual) + surprise(like.surprises[2], _DRIFTED)
    return all(log > limit for log in last)


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median."""
    ordered = sorted(weighted)
    sums = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(sums, sums[-1] / 2)][0]


def profiles(
    times: Mapping[str, Sequence[float]], classes: Mapping[str, str], policy: Policy
) -> Mapping[str, Profile]:
    """Return the profile of each class, from the times and the classes of hosts."""
    by_class: dict[str, list[Sequence[float]]] = {name: [] for name in set(classes.values())}
    for host, name in classes.items():
        by_class[name].append(times.get(host, ()))
    return {name: profile(hosts, policy) for name, hosts in by_class.items()}
