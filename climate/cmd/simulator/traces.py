"""Traces: files that list when jobs were submitted, what they requested, and how long they ran.

Formats, by the ending of the file's name:

- ``.swf``: the Standard Workload Format of the Parallel Workloads Archive, version 2.2. A job that
  was cancelled before it started (negative run time, status 5) is left out.
- ``.lwf``: Haizea's injected reservations. A line has the fields submit time, start, requested
  time, run time, hosts; further fields are ignored.
- ``.jsonl``: a JSON object a line with ``at``, ``hosts`` and ``duration``, and optionally ``run``
  and ``start``.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Positions in a line of SWF, from 0.
_SUBMIT, _RUN, _ALLOCATED, _PROCESSORS, _TIME, _STATUS = 1, 3, 4, 7, 8, 10
_CANCELLED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request of a user. All times are in seconds, and count from the beginning of the trace.

    The user asks at ``at`` for ``hosts`` hosts for ``requested`` seconds, and ends the lease
    ``run`` seconds after its start. ``start`` is the fixed start (None: as soon as possible).
    """

    at: int
    hosts: int
    requested: int
    run: int
    start: int | None = None


class BadTrace(ValueError):
    """Raised if a trace cannot be read; the message names the file and the line."""


def read(path: Path, processors: int = 1) -> list[Job]:
    """Return the jobs of a trace file, in the order of their times.

    A host has ``processors`` processors. Raises BadTrace, OSError.
    """
    parse = _PARSERS.get(path.suffix)
    if parse is None:
        known = ", ".join(_PARSERS)
        raise BadTrace(f"{path}: the name of a trace must end with {known}")
    jobs = list(_parsed(path, lambda line: parse(line, processors)))
    if not jobs:
        raise BadTrace(f"{path}: this trace has no jobs")
    return sorted(jobs, key=lambda job: job.at)


def from_zero(jobs: list[Job]) -> list[Job]:
    """Return the jobs with times that count from the first request."""
    first = min(job.at for job in jobs)
    return [
        Job(
            at=job.at - first,
            hosts=job.hosts,
            requested=job.requested,
            run=job.run,
            start=None if job.start is None else job.start - first,
        )
        for job in jobs
    ]


def _parsed(path: Path, parse: Callable[[str], Job | None]) -> Iterator[Job]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text or text.startswith((";", "#")):
                continue
            try:
                job = parse(text)
            except (ValueError, IndexError, KeyError, TypeError) as error:
                raise BadTrace(f"{path}, line {number}: {_reason(error)}") from error
            if job is not None:
                yield _checked(path, number, job)


def _reason(error: Exception) -> str:
    if isinstance(error, IndexError):
        return "this line has too few fields"
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error)


def _checked(path: Path, number: int, job: Job) -> Job:
    if job.hosts < 1 or job.requested < 1 or job.at < 0:
        raise BadTrace(
            f"{path}, line {number}: a job needs at least one host and one second, and no negative"
            " time"
        )
    return job


def _swf(line: str, processors: int) -> Job | None:
    fields = [float(field) for field in line.split()]
    run, wanted = int(fields[_RUN]), int(fields[_PROCESSORS])
    if run < 0 and int(fields[_STATUS]) == _CANCELLED:
        return None
    wanted = wanted if wanted > 0 else int(fields[_ALLOCATED])
    requested = int(fields[_TIME]) if fields[_TIME] > 0 else max(run, 1)
    return _job(int(fields[_SUBMIT]), math.ceil(wanted / processors), requested, run)


def _lwf(line: str, _processors: int) -> Job:
    submit, start, requested, run, hosts = (int(field) for field in line.split()[:5])
    return _job(submit, hosts, requested, run, start)


def _json(line: str, _processors: int) -> Job:
    body: Mapping[str, Any] = json.loads(line)
    duration, start = int(body["duration"]), body.get("start")
    run = int(body.get("run", duration))
    start = None if start is None else int(start)
    return _job(int(body["at"]), int(body["hosts"]), duration, run, start)


def _job(at: int, hosts: int, requested: int, run: int, start: int | None = None) -> Job:
    """Return a job whose run time is at least a second and at most the requested time."""
    run = min(max(run, 1), requested)
    return Job(at=at, hosts=hosts, requested=requested, run=run, start=start)


_PARSERS: Mapping[str, Callable[[str, int], Job | None]] = {
    ".swf": _swf,
    ".lwf": _lwf,
    ".jsonl": _json,
}
