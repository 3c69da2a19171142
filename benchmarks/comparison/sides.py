"""The processes of the sides, seen from the process that gives them turns."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.comparison.rounds import Figures
from benchmarks.comparison.setup import Setup, Turn

_PATIENCE = 60.0


class Side:
    """A running worker; its process loads its database at the same time as others."""

    def __init__(self, name: str, worker: "subprocess.Popen[str]") -> None:
        self._name, self._worker = name, worker

    def wait(self) -> None:
        """Wait until the worker has loaded its database."""
        self._answer()

    def run(self, turn: Turn) -> Figures:
        """Run a turn and return its figures."""
        assert self._worker.stdin is not None
        self._worker.stdin.write(json.dumps(asdict(turn)) + "\n")
        self._worker.stdin.flush()
        found: Figures = self._answer()
        return found

    def _answer(self) -> Any:  # noqa: ANN401 - JSON
        assert self._worker.stdout is not None
        line = self._worker.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name}: the process failed, see its error above")
        return json.loads(line)


@contextmanager
def working(name: str, tree: Path, setup: Setup) -> Iterator[Side]:
    """Run a worker with the source in ``tree``; end it after the block."""
    command = [sys.executable, "-m", "benchmarks.comparison.worker", setup.encoded()]
    worker = subprocess.Popen(
        command,
        cwd=tree,
        env=_environment(tree),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Side(name, worker)
    finally:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait(_PATIENCE)


def _environment(tree: Path) -> dict[str, str]:
    # Without bytecode on the disk, each client would compile all modules, for seconds.
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(tree)}
