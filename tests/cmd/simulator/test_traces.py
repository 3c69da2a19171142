"""Traces are read line by line, and a bad line is named."""

import random
from pathlib import Path
from statistics import mean

import pytest

from climate.cmd.simulator import lublin, traces
from climate.cmd.simulator.traces import BadTrace, Job

SWF = """; Version: 2.2
1 10 5 100 8 -1 -1 16 300 -1 1 1 1 -1 1 -1 -1 -1
2 20 5 500 8 -1 -1 -1 300 -1 1 1 1 -1 1 -1 -1 -1
3 30 -1 -1 8 -1 -1 8 300 -1 5 1 1 -1 1 -1 -1 -1
4 40 -1 0 8 -1 -1 8 300 -1 0 1 1 -1 1 -1 -1 -1
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_reads_the_standard_workload_format(tmp_path: Path) -> None:
    assert traces.read(written(tmp_path, "t.swf", SWF), 8) == [
        Job(at=10, hosts=2, requested=300, run=100),
        # As many processors as it got; no longer than requested.
        Job(at=20, hosts=1, requested=300, run=300),
        # The third was cancelled while it waited. A run time of 0 is 1.
        Job(at=40, hosts=1, requested=300, run=1),
    ]


def test_reads_reservations_and_json(tmp_path: Path) -> None:
    lwf = written(tmp_path, "t.lwf", "0 600 300 200 4 1 1024 0 'NONE.img' 600\n")
    assert traces.read(lwf) == [Job(at=0, hosts=4, requested=300, run=200, start=600)]
    lines = (
        '{"at": 5, "hosts": 2, "duration": 60}\n{"at": 1, "hosts": 1, "duration": 9, "run": 3}\n'
    )
    found = traces.read(written(tmp_path, "t.jsonl", lines))
    assert found == [
        Job(at=1, hosts=1, requested=9, run=3),
        Job(at=5, hosts=2, requested=60, run=60),
    ]
    assert [job.at for job in traces.from_zero(found)] == [0, 4]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.swf", "1 2 3\n", "t.swf, line 1: this line has too few fields"),
        ("t.swf", "; nothing\n", "this trace has no jobs"),
        ("t.swf", "a b c\n", "line 1: could not convert"),
        ("t.jsonl", '{"at": 1}\n', "line 1: 'duration' is missing"),
        ("t.jsonl", '{"at": 1, "hosts": 0, "duration": 5}\n', "at least one host"),
        ("t.txt", "", "must end with .swf, .lwf, .jsonl"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(BadTrace, match=message):
        traces.read(written(tmp_path, name, text))


def test_the_model_has_the_published_shares() -> None:
    jobs = lublin.jobs(5_000, 128, random.Random(1))  # noqa: S311 - not a secret
    sizes = [job.hosts for job in jobs]
    assert 0.2 < mean(size == 1 for size in sizes) < 0.4
    assert 0.6 < mean(size & (size - 1) == 0 for size in sizes) < 0.85
    assert max(sizes) <= 128
    assert all(job.run <= job.requested for job in jobs)
    assert [job.at for job in jobs] == sorted(job.at for job in jobs)
    assert jobs == lublin.jobs(5_000, 128, random.Random(1))  # noqa: S311 - not a secret
