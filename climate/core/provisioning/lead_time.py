"""How long before a lease a host must be asked to get ready, learned from how long it took: pure.

Times are seconds, and are compared by their logarithms: what makes a host slow makes all of it
slower, and once in a while a boot takes several times as long. What is usual for a host is the
middle of its own recent times, drawn to its class as long as they are few. How far one time can be
off is learned from the whole class, as a host's own times are too few to show what happens once in
five hundred: every time is compared with what had been expected of it by then.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

# After so many more times an older one counts half; older than the last so many are forgotten.
_HALF_LIFE = 4.0
REMEMBERED = 32
# How many times of its own what is usual in its class counts for.
_CLASS_WEIGHT = 1.0
# So many in a row that were all this much of a surprise: the host has changed.
_DRIFT, _DRIFTED = 3, 0.95
# Beyond as many as are missing for a quantile, the tail is extrapolated from the upper fifth.
_NEEDED = 10
_UPPER = 0.8
# A tail of which little is known: so many surprises that exceed the upper fifth by this much.
_PRIOR_EXCESS, _PRIOR_COUNT = 0.35, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an operator decides: seconds, and a factor on what was learned."""

    prior: float = 1800.0
    margin: float = 1.1
    shortest: float = 60.0
    longest: float = 7200.0


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a hardware class; without surprises of any host, nothing is.

    ``usual`` is the logarithm of seconds. ``surprises`` are sorted: the logarithms of how many
    times longer than expected something took, by how many times had been known of the host by then
    (0, 1, or 2 for more).
    """

    usual: float
    surprises: tuple[tuple[float, ...], ...] = field(default=((), (), ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lead:
    """Seconds before the start, and the evidence: what is usual, and what is allowed for."""

    seconds: float
    usual: float
    allowance: float
    own_times: int
    class_times: int


def profile(times: Iterable[Sequence[float]], policy: Policy) -> Profile:
    """Return what a class's hosts show; ``times`` are each one's, the oldest first."""
    known = [[math.log(one) for one in mine[-REMEMBERED:]] for mine in times if mine]
    if not known:
        return Profile(math.log(policy.prior))
    usual = _middle([(_middle([(one, 1.0) for one in mine]), 1.0) for mine in known])
    surprises: tuple[list[float], ...] = ([], [], [])
    for mine in known:
        for number, one in enumerate(mine):
            surprises[min(number, 2)].append(one - _usual(mine[:number], usual))
    return Profile(usual, tuple(tuple(sorted(some)) for some in surprises))


def lead(times: Sequence[float], like: Profile, quantile: float, policy: Policy) -> Lead:
    """Return when to ask a host for readiness in ``quantile`` (0..1) of all cases.

    ``times`` are how long it took before, the oldest first.
    """
    mine = [math.log(one) for one in times[-REMEMBERED:]]
    known = like.surprises[min(len(mine), 2)]
    recent = mine[-_DRIFT:] if _has_drifted(mine, like) else mine
    usual = _usual(recent, like.usual)
    allowance = max(surprise(known, quantile), 0.0)
    seconds = math.exp(usual + allowance) * policy.margin
    return Lead(
        seconds=min(max(seconds, policy.shortest), policy.longest),
        usual=math.exp(usual),
        allowance=math.exp(allowance),
        own_times=len(mine),
        class_times=sum(map(len, like.surprises)),
    )


def of_all(share: float, hosts: int) -> float:
    """Return the quantile for each of so many hosts that are all ready in ``share`` of cases."""
    return float(share ** (1 / max(hosts, 1)))


def surprise(known: Sequence[float], quantile: float) -> float:
    """Return what is exceeded in ``1 - quantile`` of all cases; ``known`` is sorted.

    Where too few are known to have seen that, the tail is taken to be one of Pareto's, whose
    exponent is that of Hill's estimator, and extrapolated as Weissman does (1978).
    """
    count = len(known)
    if count * (1 - quantile) >= _NEEDED:
        return known[min(math.ceil((count + 1) * quantile), count) - 1]
    start = bisect_left(range(count), _UPPER * count)
    threshold = known[start - 1] if start else 0.0
    excess = math.fsum(one - threshold for one in known[start:])
    mean = (excess + _PRIOR_EXCESS * _PRIOR_COUNT) / (count - start + _PRIOR_COUNT)
    return threshold + mean * max(math.log((1 - _UPPER) / (1 - quantile)), 0.0)


def _usual(mine: Sequence[float], in_class: float) -> float:
    """Return the middle of a host's times, the recent ones counting more."""
    newest = len(mine) - 1
    weighted = [(one, 0.5 ** ((newest - age) / _HALF_LIFE)) for age, one in enumerate(mine)]
    return _middle([*weighted, (in_class, _CLASS_WEIGHT)])


def _has_drifted(mine: Sequence[float], like: Profile) -> bool:
    """Tell whether the last times were all far longer than those before let expect."""
    before, last = mine[:-_DRIFT], mine[-_DRIFT:]
    if not before:
        return False
    limit = _usual(before, like.usual) + surprise(like.surprises[2], _DRIFTED)
    return all(one > limit for one in last)


def _middle(weighted: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median."""
    ordered = sorted(weighted)
    sums = list(accumulate(weight for _, weight in ordered))
    return ordered[bisect_left(sums, sums[-1] / 2)][0]


def profiles(
    times: Mapping[str, Sequence[float]], classes: Mapping[str, str], policy: Policy
) -> Mapping[str, Profile]:
    """Return the profile of each class, of the times of each host and what class it is of."""
    by_class: dict[str, list[Sequence[float]]] = {name: [] for name in set(classes.values())}
    for host, name in classes.items():
        by_class[name].append(times.get(host, ()))
    return {name: profile(some, policy) for name, some in by_class.items()}
