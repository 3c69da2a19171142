"""The whole service on a virtual clock: the same month for the same seed, on any machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NIGHTLY = pytest.mark.nightly(reason="lives through a month twice")

ROOT = Path(__file__).parents[2]


def month(seed: int, **environment: str) -> dict[str, Any]:
    """Simulate a month in another process; return its result."""
    command = [sys.executable, "-m", "benchmarks.month", "--leases", "6", "--seed", str(seed)]
    found = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, check=True
    )
    return dict(json.loads(found.stdout))


@NIGHTLY
@pytest.mark.timeout(600)
def test_a_month_has_the_same_outcome_for_the_same_seed() -> None:
    one = month(3, PYTHONHASHSEED="1", TZ="UTC")
    same = month(3, PYTHONHASHSEED="2", TZ="Asia/Kathmandu")
    assert one["outcome"] == same["outcome"]
    assert one["counts"] == same["counts"]
    assert one["counts"]["lease.event.start_lease"] >= 1
