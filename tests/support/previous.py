"""Programs of the release before a migration, from the history of this repository."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import climate
from tests.support.process import environment, eventually

ROOT = Path(climate.__file__).parents[1]
VERSIONS = "climate/db/migrations/versions"


def git(*arguments: str) -> bytes:
    """Return git's output, b"" if it fails."""
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return found.stdout if found.returncode == 0 else b""


def code_before(revision: str, home: Path) -> Path:
    """Return a folder with the code before a migration; skip the test if that is not in git.

    Only the history has that code: an unpacked archive or a shallow clone cannot run the test.
    """
    (migration,) = (ROOT / VERSIONS).glob(f"{revision}_*.py")
    path = migration.relative_to(ROOT)
    made = git("log", "--diff-filter=A", "--format=%H", "--", str(path)).decode().split()
    archive = git("archive", f"{made[-1]}^", "climate") if made else b""
    if not archive:
        pytest.skip(f"the history before {migration.stem} is not here (a shallow clone?)")
    subprocess.run(["tar", "-x", "-C", str(home)], input=archive, check=True)
    assert not (home / path).exists()
    return home


class OldCode:
    """Runs programs of the code in a folder."""

    def __init__(self, code: Path, config: Path) -> None:
        self._code, self._config = code, config

    def _start(self, program: str, *arguments: str, **streams: Any) -> "subprocess.Popen[str]":
        script = f"import sys, climate.cmd.main; sys.exit(climate.cmd.main.{program}())"
        given = [*arguments, f"--config-file={self._config}"]
        home = self._config.parent
        env = {**environment(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(self._code)}
        return subprocess.Popen(
            [sys.executable, "-c", script, *given], cwd=home, env=env, text=True, **streams
        )

    def run(self, program: str, *arguments: str) -> str:
        """Run a program to its end; return its output."""
        process = self._start(program, *arguments, stdout=subprocess.PIPE)
        said, _ = process.communicate()
        assert process.returncode == 0
        return said.strip()

    @contextmanager
    def running(self, program: str, text: str, *arguments: str) -> Iterator[None]:
        """Run a program until it prints ``text``; later it must stop with exit code 0."""
        log = self._config.parent / f"old-{program}.log"
        with log.open("w") as file:
            process = self._start(program, *arguments, stdout=file, stderr=file)
        try:
            eventually(lambda: text in log.read_text(), f"old {program} says {text!r}")
            yield
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
