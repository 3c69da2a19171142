"""How many leases find their hosts ready? ``python -m benchmarks.readiness [--hosts N]``.

Simulates hosts of several classes with heavy-tailed boot times, and leases of one to four hosts
over ``--days``. Half-way, some hosts become slower permanently. Prints one JSON object a line:
``fixed_10`` and ``fixed_60`` boot hosts 10 and 60 minutes before each start, ``learned`` uses
``climate.core.provisioning.lead_time``, and ``equal_fixed`` is the shortest fixed lead with as many
ready leases as ``learned``. All cases have the same leases and the same boots.

``ready_share`` is the share of leases all of whose hosts were ready at the start,
``idle_on_minutes`` the time that hosts were ready before it, in total per lease, and
``idle_on_ratio_to_equal_fixed`` its ratio to that of ``equal_fixed``.
"""

import argparse
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from climate.core.provisioning import lead_time
from climate.core.provisioning.lead_time import Policy, Profile

_DAY = 86_400.0
_LEASES_PER_DAY = 0.5
_SPREAD_OF_HOSTS, _SLOWER_SHARE, _SLOWER_BY = 0.15, 0.05, 1.6


@dataclass(frozen=True)
class Model:
    """A hardware class: its share of hosts, and its boot times.

    A boot takes ``usual`` seconds with a spread. The share ``retries`` of boots takes
    ``retry_factor`` times longer, because a step is retried.
    """

    name: str
    share: float
    usual: float
    spread: float
    retries: float
    retry_factor: float


MODELS = (
    Model("blade", 0.5, 180, 0.15, 0.004, 3.0),
    Model("rack", 0.3, 420, 0.20, 0.006, 2.5),
    Model("gpu", 0.15, 900, 0.25, 0.008, 2.0),
    Model("storage", 0.05, 1800, 0.30, 0.010, 2.0),
)


@dataclass(frozen=True)
class Boot:
    """The boot of a host for a lease, and its seconds."""

    host: str
    seconds: float


Leases = Sequence[tuple[float, Sequence[Boot]]]
Lead = Callable[[str, int, float], float]


@dataclass(frozen=True)
class Score:
    """The result of a strategy for lead times."""

    ready_share: float
    idle_on_minutes: float


def main() -> None:
    """Run all cases and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.995, help="share of leases to be ready")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    classes = _hosts(given.hosts, rng)
    leases = _leases(classes, given.days, rng)
    learned = _learned(leases, classes, given.share)
    equal, seconds = _equal_fixed(leases, learned.ready_share)
    _print("fixed_10", _fixed(leases, 600.0), equal, minutes=10)
    _print("fixed_60", _fixed(leases, 3600.0), equal, minutes=60)
    _print("equal_fixed", equal, equal, minutes=round(seconds / 60, 1))
    _print("learned", learned, equal, leases=len(leases), hosts=given.hosts, days=given.days)


def _print(case: str, score: Score, equal: Score, **more: Any) -> None:
    figures = {
        "case": case,
        "ready_share": round(score.ready_share, 4),
        "idle_on_minutes": round(score.idle_on_minutes, 2),
        "idle_on_ratio_to_equal_fixed": round(score.idle_on_minutes / equal.idle_on_minutes, 3),
    }
    print(json.dumps({**figures, **more}))


def _hosts(count: int, rng: random.Random) -> Mapping[str, Model]:
    models = rng.choices(MODELS, [model.share for model in MODELS], k=count)
    return {f"{model.name}-{number:05}": model for number, model in enumerate(models)}


def _leases(classes: Mapping[str, Model], days: int, rng: random.Random) -> Leases:
    """Return leases with their boots, in the order of their starts."""
    pace = {host: rng.lognormvariate(0.0, _SPREAD_OF_HOSTS) for host in classes}
    slower = {host for host in classes if rng.random() < _SLOWER_SHARE}
    names = list(classes)
    leases = []
    for _ in range(round(len(names) * days * _LEASES_PER_DAY / 2)):
        start = rng.uniform(0.0, days * _DAY)
        drifted = _SLOWER_BY if start > days * _DAY / 2 else 1.0
        chosen = rng.sample(names, rng.choice((1, 1, 2, 4)))
        boots = [
            Boot(
                host,
                _seconds(classes[host], rng) * pace[host] * (drifted if host in slower else 1.0),
            )
            for host in chosen
        ]
        leases.append((start, boots))
    return sorted(leases, key=lambda lease: lease[0])


def _seconds(model: Model, rng: random.Random) -> float:
    again = model.retry_factor if rng.random() < model.retries else 1.0
    return model.usual * rng.lognormvariate(0.0, model.spread) * again


def _score(leases: Leases, lead: Lead) -> Score:
    ready, idle = 0, 0.0
    for start, boots in leases:
        early = [lead(boot.host, len(boots), start) - boot.seconds for boot in boots]
        ready += min(early) >= 0
        idle += sum(max(seconds, 0.0) for seconds in early)
    return Score(ready / len(leases), idle / len(leases) / 60)


def _fixed(leases: Leases, seconds: float) -> Score:
    return _score(leases, lambda *_: seconds)


def _equal_fixed(leases: Leases, share: float) -> tuple[Score, float]:
    """Return the shortest fixed lead, to a second, that reaches a share."""
    slowest = sorted(max(boot.seconds for boot in boots) for _, boots in leases)
    needed = slowest[min(round(share * len(slowest)), len(slowest)) - 1]
    return _fixed(leases, needed), needed


class _Learner:
    """The knowledge of a service: the durations of the boots that are over."""

    def __init__(self, classes: Mapping[str, Model], share: float, policy: Policy) -> None:
        self._classes = {host: model.name for host, model in classes.items()}
        self._share, self._policy = share, policy
        self._times: dict[str, list[float]] = {host: [] for host in classes}
        self._profiles: Mapping[str, Profile] = {}
        self._profiled_on = -1

    def lead(self, host: str, hosts: int, start: float) -> float:
        """Return the lead time for a host of a lease; class profiles are updated once a day."""
        if self._profiled_on != start // _DAY:
            self._profiled_on = int(start // _DAY)
            self._profiles = lead_time.profiles(self._times, self._classes, self._policy)
        like = self._profiles[self._classes[host]]
        quantile = lead_time.of_all(self._share, hosts)
        return lead_time.lead(self._times[host], like, quantile, self._policy).seconds

    def note(self, boots: Sequence[Boot]) -> None:
        """Add the durations of boots."""
        for boot in boots:
            self._times[boot.host].append(boot.seconds)


def _learned(leases: Leases, classes: Mapping[str, Model], share: float) -> Score:
    learner = _Learner(classes, share, Policy())
    ready, idle = 0, 0.0
    for lease in leases:
        one = _score([lease], learner.lead)
        learner.note(lease[1])
        ready += one.ready_share == 1.0
        idle += one.idle_on_minutes
    return Score(ready / len(leases), idle / len(leases))


if __name__ == "__main__":
    main()
