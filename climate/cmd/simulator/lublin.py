"""The Lublin-Feitelson model of the jobs of a parallel computer.

Source: Lublin and Feitelson, "The Workload on Parallel Supercomputers: Modeling the Characteristics
of Rigid Jobs", Journal of Parallel and Distributed Computing 63(11), 2003. The parameters are those
for the whole workload (batch and interactive jobs together).
"""

import math
import random

from climate.cmd.simulator.traces import Job

# Sizes: the shares of serial jobs and of powers of two, and a two-stage uniform distribution of the
# logarithm of the size. ``_MEDIUM`` is the distance of its middle from the upper end.
_SERIAL, _POWER_OF_TWO = 0.244, 0.576
_LOW, _MEDIUM, _FIRST_STAGE = 0.8, 2.5, 0.86
# Run times: the logarithm is one of two gamma distributions (shape, scale); the larger the job, the
# more often it is the second one.
_SHORT, _LONG = (4.2, 0.94), (312.0, 0.03)
_PER_HOST, _AT_ZERO = -0.0054, 0.78
_LONGEST = 12.0
# Arrivals: the logarithm of the gap, and the cycle of a day in half hours, which begins at 11:00.
_GAP, _LONGEST_GAP = (10.2303 * 1.0225, 0.4871), 13.0
_CYCLE = (8.1737, 3.9631)
_HALF_HOURS, _HALF_HOUR = 48, 1800.0
_DAY_BEGINS = 22
# Users request more time than they use: up to this factor, in steps of five minutes.
_LARGEST_FACTOR, _STEP = 5.8, 300


def jobs(count: int, hosts: int, rng: random.Random) -> list[Job]:
    """Return ``count`` jobs for a computer with ``hosts`` hosts, in the order of their times."""
    weights = _daily_cycle()
    made, at = [], 0.0
    for _ in range(count):
        at = _next_arrival(at, weights, rng)
        size = _size(hosts, rng)
        run = max(1, round(math.exp(min(_log_of_run(size, rng), _LONGEST))))
        asked = run * rng.uniform(1.0, _LARGEST_FACTOR)
        requested = math.ceil(asked / _STEP) * _STEP
        made.append(Job(at=int(at), hosts=size, requested=requested, run=run))
    return made


def _size(hosts: int, rng: random.Random) -> int:
    high = math.log2(hosts)
    if rng.random() < _SERIAL or high <= _LOW:
        return 1
    middle = max(_LOW, high - _MEDIUM)
    stage = (_LOW, middle) if rng.random() < _FIRST_STAGE else (middle, high)
    log = rng.uniform(*stage)
    size = 2 ** round(log) if rng.random() < _POWER_OF_TWO else round(2**log)
    return max(1, min(hosts, size))


def _log_of_run(size: int, rng: random.Random) -> float:
    is_short = rng.random() < _PER_HOST * size + _AT_ZERO
    return rng.gammavariate(*(_SHORT if is_short else _LONG))


def _daily_cycle() -> list[float]:
    """Return the relative rate of arrivals in each half hour from midnight on; the mean is 1."""
    shape, scale = _CYCLE
    middles = [number + 0.5 for number in range(_HALF_HOURS)]
    rates = [
        x ** (shape - 1) * math.exp(-x / scale) / (math.gamma(shape) * scale**shape)
        for x in middles
    ]
    mean = sum(rates) / _HALF_HOURS
    return [rates[(number - _DAY_BEGINS) % _HALF_HOURS] / mean for number in range(_HALF_HOURS)]


def _next_arrival(at: float, weights: list[float], rng: random.Random) -> float:
    """Return the time of the next arrival: the gap passes quickly in busy half hours."""
    left = math.exp(min(rng.gammavariate(*_GAP), _LONGEST_GAP))
    while True:
        number = int(at // _HALF_HOUR)
        weight = weights[number % _HALF_HOURS]
        until_end = (number + 1) * _HALF_HOUR - at
        if left <= until_end * weight:
            return at + left / weight
        left -= until_end * weight
        at = (number + 1) * _HALF_HOUR
