"""Clients in tests: dates in the format of requests, and the ``openstack`` command.

To start that command takes a second. As a program, this module reads the arguments of one command
a line, as a JSON list, runs the command's own main function with them, and answers with one JSON
object a line.
"""

import contextlib
import datetime as dt
import importlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.support.process import environment
from tests.support.service import FORMAT

WIRE_FORMAT = "%Y-%m-%dT%H:%M:%S.%f"


def at(noon: dt.datetime, minutes: int = 0) -> str:
    """Return the date ``minutes`` after noon in the format of requests."""
    return (noon + dt.timedelta(minutes=minutes)).strftime(FORMAT)


def moment(date: str) -> dt.datetime:
    """Return a date of an answer, read as strictly as clients do."""
    return dt.datetime.strptime(date, WIRE_FORMAT).replace(tzinfo=dt.UTC)


def window(lease: Mapping[str, Any], noon: dt.datetime) -> tuple[float, float]:
    """Return start and end of a lease in minutes after noon."""
    start, end = (
        (moment(lease[key]) - noon).total_seconds() / 60 for key in ("start_date", "end_date")
    )
    return start, end


@dataclass(frozen=True)
class Answer:
    """The result of a command."""

    code: int
    output: str
    errors: str


class OpenStack:
    """Runs ``openstack`` commands against one endpoint, without authentication."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self.options = ["--os-auth-type", "none", "--os-endpoint", endpoint]
        self._popen = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.clients"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env=environment(home),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._popen.communicate(timeout=30)

    def run(self, *arguments: str) -> Answer:
        """Run a command that may fail."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(json.dumps([*self.options, *arguments]) + "\n")
        self._popen.stdin.flush()
        return Answer(**json.loads(self._popen.stdout.readline()))

    def do(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        answer = self.run("reservation", *arguments)
        assert answer.code == 0, answer.errors
        return answer.output

    def read(self, *arguments: str) -> Any:
        """Run a command that must succeed, and return the JSON of its output."""
        text = self.do(*arguments, "-f", "json")
        start = re.search(r"[\[{]", text)  # after "Created a new ...:"
        assert start is not None, text
        return json.loads(text[start.start() :])

    def refused(self, *arguments: str) -> str:
        """Run a command that must fail, and return its error message."""
        answer = self.run("reservation", *arguments)
        assert answer.code != 0, answer.output
        return answer.errors


def _main() -> None:
    shell = importlib.import_module("openstackclient.shell")
    for line in sys.stdin:
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                code = shell.main(json.loads(line)) or 0
            except SystemExit as stopped:
                code = int(stopped.code or 0)
        answer = {"code": code, "output": output.getvalue(), "errors": errors.getvalue()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
