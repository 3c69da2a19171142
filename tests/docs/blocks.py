"""Finds the code blocks of a page, and runs them in order.

``<!-- not run: REASON -->`` before a block excludes it, and ``<!-- fails -->`` expects its failure.
A page may show a task for several clients, each in a tab: a run takes the blocks outside of tabs,
and those in the tabs of one client. All shell blocks share variables, functions and a folder. The
Python blocks are one script, which runs after them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.support.process import environment

# Seconds; far more than a block needs, as the machine may be busy.
_DEADLINE = 120
_FENCE = re.compile(r"^( *)```(\w+)$")
_TAB = re.compile(r"^:::\{tab-item\} (\w+)$")
_MARK = re.compile(r"^ *<!-- (not run: .+|fails) -->$")
# The functions and variables of a block, for the next one.
_PROLOGUE = """
set -euo pipefail
[ -e "$STATE/functions" ] && . "$STATE/functions"
curl() { command curl --fail-with-body "$@"; }
set -a
"""
_EPILOGUE = """
set +a
declare -f >"$STATE/functions"
env -0 >"$STATE/variables"
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A code block: its place, language and text, and the client whose tab it is in."""

    place: str
    language: str
    text: str
    client: str | None
    mark: str

    @property
    def is_run(self) -> bool:
        return self.language in {"sh", "python"} and not self.mark.startswith("not run")

    @property
    def must_fail(self) -> bool:
        return self.mark == "fails"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page in order."""
    client, mark = None, ""
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    for number, line in lines:
        if tab := _TAB.match(line):
            client = tab[1].lower()
        elif line.startswith(":::"):
            client = None
        elif found := _MARK.match(line):
            mark = found[1]
        elif fence := _FENCE.match(line):
            end = f"{fence[1]}```"
            yield Block(f"{page.name}:{number}", fence[2], _text(lines, end), client, mark)
            mark = ""
        elif line.strip():
            mark = ""


def _text(lines: Iterator[tuple[int, str]], end: str) -> str:
    """Return the lines up to ``end``, and consume it."""
    found: list[str] = []
    for _, line in lines:
        if line == end:
            return dedent("\n".join(found)) + "\n"
        found.append(line)
    raise AssertionError("a code block has no end")


def clients(page: Path) -> list[str | None]:
    """Return the clients for which a page has blocks to run; [None] if it has no tabs."""
    found = dict.fromkeys(
        block.client for block in blocks(page) if block.is_run and block.client is not None
    )
    return [*found] or [None]


def of_client(found: Iterable[Block], client: str | None) -> list[Block]:
    """Return the blocks to run for a client."""
    return [
        block
        for block in found
        if block.is_run
        and block.client in {None, client}
        and (block.language == "sh" or client in {None, "python"})
    ]


def run(chosen: Iterable[Block], url: str, home: Path) -> None:
    """Run blocks against the service at ``url`` in the folder ``home``.

    Raises AssertionError with the output of a block that does not end as it must.
    """
    listed = list(chosen)
    for block in listed:
        if block.language == "sh":
            done = _run_shell(_at(block.text, url), home)
            assert (done.returncode != 0) == block.must_fail, _report(block, done)
    scripts = [block for block in listed if block.language == "python"]
    if scripts:
        text = "\n".join(_at(block.text, url) for block in scripts)
        done = _run([sys.executable, "-c", text], home, _environment(home))
        assert done.returncode == 0, _report(scripts[-1], done)


def _at(text: str, url: str) -> str:
    return text.replace("http://127.0.0.1:1234", url)


def _environment(home: Path) -> dict[str, str]:
    """Return an environment without the caller's settings, such as those of a cloud."""
    return {**environment(home), "TZ": "UTC"}


def _run_shell(text: str, home: Path) -> subprocess.CompletedProcess[str]:
    variables = home / "variables"
    kept = variables.read_text().split("\0") if variables.exists() else []
    given = dict(entry.split("=", 1) for entry in kept if "=" in entry)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**_environment(home), "PATH": path, **given, "STATE": str(home), "HOME": str(home)}
    return _run(["bash", "-c", _PROLOGUE + text + _EPILOGUE], home, environ)


def _run(
    command: list[str], home: Path, environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=home,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_DEADLINE,
        check=False,
    )


def _report(block: Block, done: subprocess.CompletedProcess[str]) -> str:
    expected = "had to fail" if block.must_fail else "failed"
    return f"{block.place} {expected} (exit code {done.returncode}):\n{block.text}\n{done.stdout}"
