"""Figures of a simulation. Pure.

Source of the bounded slowdown: Feitelson, "Metrics for Parallel Job Scheduling and Their
Convergence", JSSPP 2001.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, quantiles
from typing import Any

from climate.cmd.simulator.traces import Job

# Jobs that run for less time count as if they ran for this time (seconds).
_BOUND = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job. ``started`` is in seconds of the trace; None if it did not start.

    ``refused`` is the code of the error with which climate refused the request (None: it did not).
    """

    job: Job
    started: int | None
    refused: str | None = None

    @property
    def wait(self) -> int:
        """The seconds from the request to the start."""
        return 0 if self.started is None else self.started - self.job.at

    @property
    def ended(self) -> int:
        """When the user ended the lease, in seconds of the trace."""
        return 0 if self.started is None else self.started + self.job.run

    @property
    def slowdown(self) -> float:
        """The time from the request to the end, as a multiple of the run time, and at least 1."""
        return max(1.0, (self.wait + self.job.run) / max(self.job.run, _BOUND))


def figures(outcomes: Sequence[Outcome], hosts: int) -> dict[str, Any]:
    """Return the figures of a simulation with ``hosts`` hosts.

    Waits and slowdowns are those of jobs that started and had no fixed start. ``makespan_s`` is the
    end of the last job that had no fixed start, from the first request on. ``utilisation`` is the
    share of all hosts over this time that users used.
    """
    started = [outcome for outcome in outcomes if outcome.started is not None]
    free = [outcome for outcome in started if outcome.job.start is None]
    waits = [outcome.wait for outcome in free]
    makespan = max((outcome.ended for outcome in free), default=0)
    used = sum(
        outcome.job.hosts * max(0, min(outcome.ended, makespan) - (outcome.started or 0))
        for outcome in started
    )
    return {
        "leases": len(outcomes),
        "admitted": len(started),
        "refused": sum(outcome.refused is not None for outcome in outcomes),
        "reservations_refused": sum(
            outcome.refused is not None and outcome.job.start is not None for outcome in outcomes
        ),
        "wait_mean_s": round(mean(waits), 2) if waits else 0.0,
        "wait_p50_s": _percentile(waits, 50),
        "wait_p90_s": _percentile(waits, 90),
        "bounded_slowdown_mean": round(mean(one.slowdown for one in free), 4) if free else 0.0,
        "makespan_s": makespan,
        "utilisation": round(used / (hosts * makespan), 4) if makespan else 0.0,
    }


def digest(outcomes: Sequence[Outcome]) -> str:
    """Return a hash of all outcomes: equal input and equal seeds have equal hashes."""
    lines = [[one.job.at, one.job.hosts, one.started, one.refused] for one in outcomes]
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()


def _percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:  # noqa: PLR2004 - quantiles needs two
        return float(values[0]) if values else 0.0
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 2)
