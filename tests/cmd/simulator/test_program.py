"""climate-simulate runs the service with a trace, and prints the figures."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from climate.cmd.main import simulate
from climate.cmd.simulator import lublin, metrics
from climate.cmd.simulator.metrics import Outcome
from climate.cmd.simulator.traces import Job
from tests.support.scheduling import easy_backfilling, first_come_first_served

HOSTS = 4
JOBS = 16
FIRST_COME = "[wait_list]\npromises = 0\nbackfill = false\n"
EASY = "[wait_list]\npromises = 1\n"


def figures(
    folder: Path, capsys: pytest.CaptureFixture[str], policy: str, *more: str, count: int = JOBS
) -> dict[str, Any]:
    (folder / "policy.conf").write_text(policy)
    arguments = ["--trace", f"lublin:{count}", "--hosts", str(HOSTS), "--out", str(folder)]
    assert simulate([*arguments, "--policy", str(folder / "policy.conf"), *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["audit"] == "clean"
    assert found["admitted"] == found["leases"] == count
    assert json.loads((folder / "report.json").read_text()) == found
    assert len((folder / "leases.csv").read_text().splitlines()) == count + 1
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("policy", "model"), [(FIRST_COME, first_come_first_served), (EASY, easy_backfilling)]
)
def test_waits_are_those_of_the_model(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    policy: str,
    model: Callable[[Sequence[Job], int], list[int]],
) -> None:
    """Hosts have names in climate, so a backfilled lease may wait a little longer."""
    found = figures(tmp_path, capsys, policy)
    jobs = lublin.jobs(JOBS, HOSTS, random.Random(1))  # noqa: S311 - not a secret
    starts = model(jobs, HOSTS)
    waits = [start - job.at for start, job in zip(starts, jobs, strict=True)]
    tolerance = 0.0 if model is first_come_first_served else 0.05
    assert found["wait_mean_s"] == pytest.approx(mean(waits), rel=tolerance, abs=0.01)
    ends = [start + job.run for start, job in zip(starts, jobs, strict=True)]
    assert found["makespan_s"] == pytest.approx(max(ends) - jobs[0].at, rel=tolerance / 5)


def test_bad_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for trace, message in [
        (str(tmp_path / "none.swf"), "No such file"),
        ("lublin:many", "write lublin: and the number of jobs"),
    ]:
        arguments = ["--trace", trace, "--hosts", "4", "--out", str(tmp_path)]
        assert simulate(arguments) == 2
        assert message in capsys.readouterr().err


def test_figures_count_waits_of_jobs_without_a_fixed_start() -> None:
    outcomes = [
        Outcome(job=Job(at=0, hosts=2, requested=100, run=50), started=10),
        Outcome(job=Job(at=0, hosts=1, requested=100, run=100), started=30),
        Outcome(job=Job(at=0, hosts=1, requested=10, run=10, start=20), started=20),
        Outcome(job=Job(at=5, hosts=4, requested=10, run=10), started=None, refused="code"),
    ]
    found = metrics.figures(outcomes, 4)
    assert (found["leases"], found["admitted"], found["refused"]) == (4, 3, 1)
    assert (found["wait_mean_s"], found["makespan_s"]) == (20.0, 130)
    assert found["utilisation"] == round((100 + 100 + 10) / (4 * 130), 4)
    assert found["bounded_slowdown_mean"] == 1.25
