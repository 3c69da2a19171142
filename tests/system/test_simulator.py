"""climate-simulate in another process, whose hashes and ids differ."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cmd.simulator.test_program import EASY, HOSTS, figures


@pytest.mark.timeout(120)
def test_another_process_has_the_same_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = figures(tmp_path, capsys, EASY, count=6)
    program = "import sys; from climate.cmd.main import simulate; sys.exit(simulate(sys.argv[1:]))"
    arguments = ["--trace", "lublin:6", "--hosts", str(HOSTS), "--out", str(tmp_path)]
    there = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--policy", str(tmp_path / "policy.conf")],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        check=True,
    )
    assert json.loads(there.stdout)["outcome"] == here["outcome"]
