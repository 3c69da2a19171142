"""``make run`` passes its variables on to climate-standalone."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("variables", "arguments"),
    [
        ((), "--port 1234"),
        (("PORT=8080", "DATABASE=sqlite:///x"), "--port 8080 --database 'sqlite:///x'"),
        (("CONFIG=a.conf",), "--config-file 'a.conf'"),  # which may set another port
        (("CONFIG=a.conf", "PORT=8080"), "--port 8080 --config-file 'a.conf'"),
    ],
)
def test_variables_become_arguments(variables: tuple[str, ...], arguments: str) -> None:
    dry_run = ["make", "--no-print-directory", "-n", "run", *variables]
    commands = subprocess.run(dry_run, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    started = commands.replace("\\\n", " ").rpartition("climate-standalone")[2]
    assert " ".join(started.split()) == arguments
