"""How many leases find their hosts ready? ``python -m benchmarks.readiness [--hosts N] [--mix]``.

Simulates hosts of several classes with heavy-tailed boot times, and leases of one to four hosts
over ``--days``. Half-way, some hosts become slower permanently. Prints one JSON object a line:
``fixed_10`` and ``fixed_60`` boot hosts 10 and 60 minutes before each start, ``learned`` uses
``climate.core.provisioning.lead_time``, and ``equal_fixed`` is the shortest fixed lead with as many
ready leases as ``learned``. All cases have the same leases and the same boots.

With ``--mix``, climate creates servers, stacks, volumes and networks instead. Then ``--hosts`` is
the number of images, templates and so on. All that a lease needs is created at the same time before
its start, as early as the slowest of it requires. It is idle from when all is ready until then.

``ready_share`` is the share of leases all of whose hosts were ready at the start,
``idle_on_minutes`` the time that hosts were ready before it, in total per lease, and
``idle_on_ratio_to_equal_fixed`` its ratio to that of ``equal_fixed``.
"""

import argparse
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from climate.core.provisioning import lead_time
from climate.core.provisioning.lead_time import Policy, Profile
from climate.core.settings import Creation

_DAY = 86_400.0
_LEASES_PER_DAY = 0.5
_SLOWER_SHARE, _SLOWER_BY = 0.05, 1.6


@dataclass(frozen=True)
class Model:
    """A hardware class: its share of hosts, and its boot times.

    A boot takes ``usual`` seconds with a spread. The share ``retries`` of boots takes
    ``retry_factor`` times longer, because a step is retried. ``differs`` is the spread between the
    hosts of the class. For creations, a class is a resource type, and its hosts are images or
    templates.
    """

    name: str
    share: float
    usual: float
    spread: float
    retries: float
    retry_factor: float
    differs: float = 0.15


MODELS = (
    Model("blade", 0.5, 180, 0.15, 0.004, 3.0),
    Model("rack", 0.3, 420, 0.20, 0.006, 2.5),
    Model("gpu", 0.15, 900, 0.25, 0.008, 2.0),
    Model("storage", 0.05, 1800, 0.30, 0.010, 2.0),
)
CREATIONS = (
    Model("server", 0.5, 25, 0.15, 0.005, 2.5, differs=0.7),
    Model("stack", 0.3, 60, 0.20, 0.005, 2.0, differs=0.5),
    Model("volume", 0.15, 3, 0.30, 0.010, 3.0, differs=0.3),
    Model("network", 0.05, 1, 0.30, 0.010, 3.0, differs=0.1),
)


@dataclass(frozen=True)
class Boot:
    """The boot of a host for a lease, and its seconds."""

    host: str
    seconds: float


Leases = Sequence[tuple[float, Sequence[Boot]]]
# Returns the lead time of each boot of a lease that starts at a time.
Leads = Callable[[Sequence[Boot], float], Sequence[float]]
# Returns for how long a lease is idle, from how early each of its boots was over, all in seconds.
IdleTime = Callable[[Sequence[float]], float]


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
    parser.add_argument("--mix", action="store_true", help="creations instead of hosts")
    given = parser.parse_args()
    rng = random.Random(given.seed)
    classes = _hosts(CREATIONS if given.mix else MODELS, given.hosts, rng)
    leases = _leases(classes, given.days, rng)
    policy = Creation().policy if given.mix else Policy()
    learner = _Learner(classes, given.share, policy, is_common=given.mix)
    idle_time = _of_all if given.mix else _of_each
    learned = _learned(leases, learner, idle_time)
    equal, seconds = _equal_fixed(leases, learned.ready_share, idle_time)
    for minutes in (2, 5) if given.mix else (10, 60):
        _print(f"fixed_{minutes}", _fixed(leases, minutes * 60, idle_time), equal, minutes=minutes)
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


def _hosts(kinds: Sequence[Model], count: int, rng: random.Random) -> Mapping[str, Model]:
    models = rng.choices(kinds, [model.share for model in kinds], k=count)
    return {f"{model.name}-{number:05}": model for number, model in enumerate(models)}


def _leases(classes: Mapping[str, Model], days: int, rng: random.Random) -> Leases:
    """Return leases with their boots, in the order of their starts."""
    pace = {host: rng.lognormvariate(0.0, model.differs) for host, model in classes.items()}
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


def _of_each(early: Sequence[float]) -> float:
    """Return how long the hosts of a lease are idle, if each boots at its own time."""
    return sum(max(seconds, 0.0) for seconds in early)


def _of_all(early: Sequence[float]) -> float:
    """Return how long what climate creates for a lease is idle, from when all of it is ready."""
    return max(min(early), 0.0)


def _score(leases: Leases, leads: Leads, idle_time: IdleTime) -> Score:
    ready, idle = 0, 0.0
    for start, boots in leases:
        pairs = zip(leads(boots, start), boots, strict=True)
        early = [lead - boot.seconds for lead, boot in pairs]
        ready += min(early) >= 0
        idle += idle_time(early)
    return Score(ready / len(leases), idle / len(leases) / 60)


def _fixed(leases: Leases, seconds: float, idle_time: IdleTime) -> Score:
    return _score(leases, lambda boots, _: [seconds] * len(boots), idle_time)


def _equal_fixed(leases: Leases, share: float, idle_time: IdleTime) -> tuple[Score, float]:
    """Return the shortest fixed lead, to a second, that reaches a share."""
    slowest = sorted(max(boot.seconds for boot in boots) for _, boots in leases)
    needed = slowest[min(round(share * len(slowest)), len(slowest)) - 1]
    return _fixed(leases, needed, idle_time), needed


class _Learner:
    """The knowledge of a service: the durations of the boots that are over.

    With ``is_common``, all boots of a lease begin at the same time.
    """

    def __init__(
        self, classes: Mapping[str, Model], share: float, policy: Policy, *, is_common: bool
    ) -> None:
        self._classes = {host: model.name for host, model in classes.items()}
        self._share, self._policy, self._is_common = share, policy, is_common
        self._times: dict[str, list[float]] = {host: [] for host in classes}
        self._profiles: Mapping[str, Profile] = {}
        self._profiled_on = -1

    def leads(self, boots: Sequence[Boot], start: float) -> Sequence[float]:
        """Return the lead times for the boots of a lease; profiles are updated once a day."""
        if self._profiled_on != start // _DAY:
            self._profiled_on = int(start // _DAY)
            self._profiles = lead_time.profiles(self._times, self._classes, self._policy)
        quantile = lead_time.of_all(self._share, len(boots))
        leads = [self._lead(boot.host, quantile) for boot in boots]
        return [math.ceil(max(leads))] * len(leads) if self._is_common else leads

    def _lead(self, host: str, quantile: float) -> float:
        like = self._profiles[self._classes[host]]
        return lead_time.lead(self._times[host], like, quantile, self._policy).seconds

    def note(self, boots: Sequence[Boot]) -> None:
        """Add the durations of boots."""
        for boot in boots:
            self._times[boot.host].append(boot.seconds)


def _learned(leases: Leases, learner: _Learner, idle_time: IdleTime) -> Score:
    ready, idle = 0, 0.0
    for lease in leases:
        one = _score([lease], learner.leads, idle_time)
        learner.note(lease[1])
        ready += one.ready_share == 1.0
        idle += one.idle_on_minutes
    return Score(ready / len(leases), idle / len(leases))


if __name__ == "__main__":
    main()
