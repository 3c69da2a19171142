"""The program climate-simulate: run a trace, and print the figures."""

import argparse
import csv
import json
import logging
import random
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from oslo_config.cfg import ConfigOpts
from rich.console import Console
from rich.progress import Progress

from climate.cmd.simulator import lublin, metrics, traces
from climate.cmd.simulator.metrics import Outcome
from climate.cmd.simulator.traces import BadTrace, Job
from climate.cmd.simulator.users import Users
from climate.cmd.simulator.world import World, ids_from
from climate.config import registry
from climate.core.lease.schedule import START
from climate.manager.audit.invariants import violations

_BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
_MODEL = "lublin:"
_BAD_INPUT, _BAD_AUDIT = 2, 3
# Options that a policy may change, and those that it may not.
_DEFAULTS: dict[tuple[str, str | None], Any] = {
    ("cleaning_time", None): 0,
    ("before_start_leads", "manager"): [],
    ("minutes_before_end_lease", "manager"): 0,
    ("calendar_memory", "manager"): "on",
    ("packs_hosts", "manager"): True,
    ("project_leases", "limits"): -1,
}


def run(given: argparse.Namespace) -> int:
    """Simulate, write the report, print its figures; return the exit code of the program."""
    try:
        jobs = _jobs(given)
    except (BadTrace, OSError) as error:
        sys.stderr.write(f"climate-simulate: {error}\n")
        return _BAD_INPUT
    began = time.monotonic()
    with _folder() as folder, ids_from(_ids(given.seed)), _quiet():
        world, users = _world(given, jobs, folder)
        with _progress(len(jobs)) as show:
            world.live(users.wishes, users.ask, partial(_after, world, users, show))
        wrong = [text for _, text in violations(world.runtime.store)]
        simulated = world.clock.elapsed()
        world.runtime.close()
    report = {
        **metrics.figures(users.outcomes, given.hosts),
        "promises_withdrawn": users.withdrawn,
        "simulated_s": int(simulated),
        "wall_s": round(time.monotonic() - began, 1),
        "audit": wrong or "clean",
        "outcome": metrics.digest(users.outcomes),
    }
    _write(given.out, report, users.outcomes)
    sys.stdout.write(json.dumps(report) + "\n")
    return _BAD_AUDIT if wrong else 0


def _jobs(given: argparse.Namespace) -> list[Job]:
    """Return all jobs, of the trace or the model, and reservations. Raises BadTrace, OSError."""
    if given.trace.startswith(_MODEL):
        number = given.trace.removeprefix(_MODEL)
        if not number.isdecimal() or int(number) < 1:
            raise BadTrace(f"{given.trace}: write {_MODEL} and the number of jobs")
        jobs = lublin.jobs(int(number), given.hosts, random.Random(given.seed))  # noqa: S311
    else:
        jobs = traces.read(Path(given.trace), given.processors)
    jobs = traces.from_zero(jobs)
    if given.reservations is not None:
        jobs += traces.read(Path(given.reservations))
    widest = max(job.hosts for job in jobs)
    if widest > given.hosts:
        raise BadTrace(f"a job needs {widest} hosts: give --hosts {widest} or more")
    return sorted(jobs, key=lambda job: (job.at, job.start is not None))


def _world(given: argparse.Namespace, jobs: Sequence[Job], folder: str) -> tuple[World, Users]:
    world = World(_configuration(given, folder), _BEGIN, given.seed)
    world.register(given.hosts)
    users = Users(world, jobs, not given.without_waiting)
    world.listener = users.hear
    return world, users


def _configuration(given: argparse.Namespace, folder: str) -> ConfigOpts:
    """Return the configuration: that of the service, with a simulated cloud, and the policy."""
    conf = registry.new()
    files = [f"--config-file={given.policy}"] if given.policy else []
    registry.load(conf, "climate-simulate", files)
    for (name, group), value in _DEFAULTS.items():
        conf.set_default(name, value, group=group)
    for name, value, group in (
        ("connection", f"sqlite:///{folder}/simulation.sqlite", "database"),
        ("hosts", given.hosts, "simulated"),
        ("failure_rate", 0.0, "simulated"),
        ("seed", given.seed, "simulated"),
        ("self_audit_interval", 86400.0, "manager"),
        ("delete_wait", 0.0, "api"),
    ):
        conf.set_override(name, value, group=group)
    return conf


def _after(world: World, users: Users, show: Callable[[int], None], kinds: Collection[str]) -> None:
    if START in kinds:  # users plan the ends of their leases when they hear of the starts
        world.flush()
        show(users.settled)


def _ids(seed: int) -> Callable[[], str]:
    """Return a function that makes ids in ascending order, as a real process does."""
    numbers, rng = count(1), random.Random(seed)  # noqa: S311 - not a secret
    return lambda: str(uuid.UUID(int=(next(numbers) << 64) | rng.getrandbits(64)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing of the service: a simulation has many requests."""
    logger = logging.getLogger("climate")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _folder() -> Iterator[str]:
    """Yield a temporary folder, in memory if possible: a simulation commits very often."""
    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - only the parent
    with tempfile.TemporaryDirectory(prefix="climate-simulate-", dir=shared) as folder:
        yield folder


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many jobs have started; on a terminal only."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("Jobs", total=total)
        yield lambda done: bar.update(task, completed=done)


def _write(folder: Path, report: dict[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write ``report.json``, and ``leases.csv`` with a line for each job."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    with (folder / "leases.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["at", "hosts", "requested", "run", "fixed_start", "started", "refused"])
        for outcome in outcomes:
            job = outcome.job
            asked = (job.at, job.hosts, job.requested, job.run, job.start)
            writer.writerow([*asked, outcome.started, outcome.refused])
