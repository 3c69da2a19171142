"""Processes that outlive the command that starts them; files in RUN record them."""

import contextlib
import os
import shutil
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.openstack.testbed import layout
from tests.openstack.testbed.layout import Failure

_PATIENCE = 90.0
_GRACE = 8.0
_PAUSE = 0.1


@dataclass(frozen=True)
class Daemon:
    """A command, its name, and the port that shows that it is ready."""

    name: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    port: int | None = None

    @property
    def log(self) -> Path:
        return layout.LOG / f"{self.name}.log"

    def start(self) -> None:
        if is_running(self.name):
            return
        environment = layout.environment(**self.environment)
        program = shutil.which(self.command[0], path=environment["PATH"])
        if program is None:
            raise Failure(f"there is no {self.command[0]} to run {self.name} with")
        # Not subprocess.Popen, which warns when it is dropped while the process goes on.
        streams = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(program, self.command, environment, file_actions=streams, setsid=True)
        _file(self.name).write_text(f"{pid} {_start_tick(pid)}")

    def wait(self) -> None:
        """Wait until its port answers; fail as soon as its process ends."""
        deadline = time.monotonic() + _PATIENCE
        while self.port and not answers(self.port):
            if not is_running(self.name) or time.monotonic() > deadline:
                why = layout.end_of(self.log)
                raise Failure(f"{self.name} does not answer on port {self.port}; {why}")
            time.sleep(_PAUSE)


def stop(*names: str) -> None:
    """Stop daemons, all at once; kill those that do not stop."""
    pids = [(name, pid) for name in names if (pid := _pid(name))]
    for _, pid in pids:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE
    while any(is_running(name) for name, _ in pids) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    for _, pid in pids:
        # The workers too, which may outlive their master.
        _kill_group(pid)
    for name in names:
        _file(name).unlink(missing_ok=True)


def kill(name: str) -> None:
    if pid := _pid(name):
        _kill_group(pid)
    _file(name).unlink(missing_ok=True)


def known() -> list[str]:
    """Return the names of all daemons that were started and not stopped."""
    return sorted(path.stem for path in layout.RUN.glob("*.pid"))


def is_running(name: str) -> bool:
    return _pid(name) is not None


def started_at(name: str) -> float | None:
    """Return its start in seconds since 1970; None if it does not run."""
    return _file(name).stat().st_mtime if is_running(name) else None


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether the port accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((host, port)) == 0


def _pid(name: str) -> int | None:
    try:
        pid, began = _file(name).read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _start_tick(int(pid)) == began else None


def _start_tick(pid: int) -> str | None:
    """Return when a process started, in the kernel's ticks; None if it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, began = fields[0], fields[19]
    return None if state == "Z" else began


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _file(name: str) -> Path:
    return layout.RUN / f"{name}.pid"
