"""A killed test run leaves no server, no folder and no program behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.private import DATABASES, RabbitMQ, Server
from tests.support import servers
from tests.support.process import eventually, standalone

SERVERS: dict[str, type[Server]] = {**DATABASES, RabbitMQ.name: RabbitMQ}
_THIS = Path(__file__)
_ROOT = _THIS.parents[2]


def be_killed(name: str, home: Path) -> None:
    """Run a server and a frozen program, as a test run that is killed."""
    with SERVERS[name]() as server, standalone(home) as (_, program):
        program.freeze()
        (home / "new").write_text(f"{server.port} {program.pid} {server.data}")
        (home / "new").rename(home / "left")
        time.sleep(600)


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(SERVERS))
def test_nothing_outlives_a_killed_test_run(name: str, tmp_path: Path) -> None:
    call = f"from pathlib import Path; from tests.faults.{_THIS.stem} import be_killed"
    script = f"{call}; be_killed({name!r}, Path({str(tmp_path)!r}))"
    with subprocess.Popen([sys.executable, "-c", script], cwd=_ROOT) as tests:
        try:
            left = tmp_path / "left"
            eventually(lambda: left.exists() or tests.poll() is not None, "all is there", 120)
        finally:
            tests.send_signal(signal.SIGKILL)
    if not left.exists():
        servers.absent(name, "it cannot be run here")
    port, pid, data = left.read_text().split()
    eventually(lambda: not _is_there(int(pid)), "the program is gone")
    eventually(lambda: not _answers(int(port)), "the server is gone")
    eventually(lambda: not Path(data).exists(), "its folder is gone")


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
