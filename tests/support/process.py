"""The programs as processes: start them, wait for them, send them requests, stop them."""

import ctypes
import datetime as dt
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import requests

from climate.cmd import (
    listen,  # noqa: F401 - programs are imported before the fork
    main,
    programs,  # noqa: F401
    provisioner,  # noqa: F401
)
from tests.support.service import FORMAT, host_reservation
from tests.support.will import Will

BIN = Path(sys.executable).parent
# Seconds; far more than needed, as the machine may be busy.
DEADLINE = 60.0
_PAUSE = 0.02
_TIMEOUT = 30.0

# A process that has imported all modules and forks, as imports are most of a start.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["__main__", __name__, "tests.race.crowd"])

T = TypeVar("T")


def eventually(condition: Callable[[], T | None], what: str, within: float = DEADLINE) -> T:
    """Return the first true value of ``condition``; fail with ``what`` after the time-out."""
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(_PAUSE)
    return found


# Above the ports of servers that run here, OpenStack's testbed included, and below those that the
# kernel gives to outgoing connections: one of these may take a port before its program listens.
_PORTS = range(27000, 32768)
# Sockets whose names reserve ports. The kernel removes them when this process ends.
_reservations: list[socket.socket] = []


def free_port() -> int:
    """Return a free port of the loopback, TCP and UDP, and reserve it for this process."""
    return next(port for port in _PORTS if _reserve(port))


def _reserve(port: int) -> bool:
    """Reserve a port; return False if it is in use, or if any process has reserved it."""
    reservation = socket.socket(socket.AF_UNIX)
    with (
        suppress(OSError),
        socket.socket() as tcp,
        socket.socket(type=socket.SOCK_DGRAM) as udp,
    ):
        reservation.bind(f"\0climate-test-port-{port}")
        tcp.bind(("127.0.0.1", port))
        udp.bind(("127.0.0.1", port))
        _reservations.append(reservation)
        return True
    reservation.close()
    return False


def environment(home: Path) -> dict[str, str]:
    """Return an environment without the caller's settings, in a time zone far from UTC."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OS_", "CLIMATE_", "XDG_"))
    }
    return {**kept, "HOME": str(home), "TZ": "Asia/Kathmandu", "PYTHONUNBUFFERED": "1"}


def write_config(path: Path, **options: object) -> Path:
    """Write a configuration file; options are given as group__option=value."""
    groups: dict[str, list[str]] = {}
    for name, value in options.items():
        group, _, option = name.partition("__")
        groups.setdefault(group, []).append(f"{option} = {value}")
    lines = [line for group, found in groups.items() for line in (f"[{group}]", *found)]
    path.write_text("\n".join(lines) + "\n")
    return path


def date(minutes: float) -> str:
    return (dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)).strftime(FORMAT)


def effects(journal: Path) -> Counter[str]:
    """Return how often each effect on the simulated cloud occurred."""
    text = journal.read_text() if journal.exists() else ""
    found = Counter(json.loads(line)["effect"] for line in text.splitlines())
    del found["enroll"]
    return found


def _nothing() -> None:
    """Prepare this process as climate's commands do."""


def _become(
    name: str,
    arguments: tuple[str, ...],
    home: Path,
    streams: list[Path],
    prepare: Callable[[], None],
) -> None:
    """Run a command in this process like its script in ``BIN``; call ``prepare`` before."""
    os.chdir(home)
    given = environment(home)
    os.environ.clear()
    os.environ.update(given)
    time.tzset()
    for number, path in enumerate([Path(os.devnull), *streams]):
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    # A shell that runs the tests in the background makes them ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv = [str(BIN / name), *arguments]
    prepare()
    command: Callable[[], int] = getattr(main, name.removeprefix("climate-").replace("-", "_"))
    sys.exit(command())


class Program:
    """A running command; its output goes to files in ``home``."""

    def __init__(
        self, home: Path, name: str, *arguments: str, prepare: Callable[[], None] = _nothing
    ) -> None:
        stem = home / f"{name}-{len(list(home.glob(f'{name}-*.out')))}"
        self.name = name
        self._out, self._err = stem.with_suffix(".out"), stem.with_suffix(".err")
        self._out.touch()
        self._err.touch()
        self._process = FORKSERVER.Process(
            target=_become,
            args=(name, arguments, home, [self._out, self._err], prepare),
            daemon=True,
        )
        self._process.start()
        # multiprocessing ends daemons only if this process exits normally; else the will does.
        self._will = Will('kill -s KILL "$1"', str(self.pid))

    @property
    def output(self) -> str:
        """Its standard output so far."""
        return self._out.read_text()

    @property
    def errors(self) -> str:
        """Its standard error so far, including its log."""
        return self._err.read_text()

    @property
    def last_words(self) -> str:
        """The last line of its standard error."""
        return self.errors.splitlines()[-1]

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def says(self, text: str) -> Self:
        """Wait until it wrote ``text``, to either stream."""

        def said() -> bool:
            found = text in self.output or text in self.errors
            assert found or self.is_running, f"{self.name} ended:\n{self.errors}"
            return found

        eventually(said, f"{self.name} says {text!r}")
        return self

    def tell_another_thread(self) -> None:
        """Send SIGTERM to a thread that is not the main thread, as the kernel may do."""
        threads = [int(task.name) for task in Path(f"/proc/{self.pid}/task").iterdir()]
        other = next(id_ for id_ in threads if id_ != self.pid)
        assert ctypes.CDLL(None).tgkill(self.pid, other, signal.SIGTERM) == 0

    def signal(self, number: int = signal.SIGTERM) -> None:
        if self.is_running:
            os.kill(self.pid, number)

    def freeze(self) -> None:
        """Stop all its threads until SIGCONT."""
        self.signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")
        eventually(
            lambda: all(") T " in stat.read_text() for stat in tasks.glob("*/stat")),
            f"{self.name} is stopped",
        )

    def wait(self, within: float = DEADLINE) -> int:
        """Wait for its end, and return its exit code."""
        self._process.join(within)
        code = self._process.exitcode
        assert code is not None, f"{self.name} did not end within {within} s"
        self._will.revoke()
        return code

    def stop(self, within: float = DEADLINE) -> int:
        """Send SIGTERM, and return its exit code."""
        self.signal()
        return self.wait(within)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self._process.kill()
        self._process.join()
        self._will.revoke()


class Service:
    """An API on a port of the loopback."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._headers = {"X-Auth-Token": token} if token else {}

    def call(self, method: str, path: str, body: Any = None) -> requests.Response:
        return requests.request(
            method, f"{self.url}{path}", json=body, headers=self._headers, timeout=_TIMEOUT
        )

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed, and return the JSON of the answer."""
        response = self.call(method, path, body)
        assert response.status_code < 400, response.text
        return response.json() if response.content else None

    def is_up(self) -> bool:
        try:
            return self.call("GET", "/healthz").status_code == 200
        except requests.ConnectionError:
            return False

    def until_up(self, program: Program) -> None:
        """Wait until it answers; fail at once, with its log, if the program has ended."""

        def answers() -> bool:
            assert program.is_running, f"{program.name} ended:\n{program.errors}"
            return self.is_up()

        eventually(answers, f"{program.name} answers")

    def lease(self, lease_id: str) -> dict[str, Any]:
        return dict(self.ok("GET", f"/v1/leases/{lease_id}")["lease"])

    def until_lease_is(self, lease_id: str, status: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            lease = self.lease(lease_id)
            return lease if lease["status"] == status else None

        return eventually(found, f"lease {lease_id} is {status}")

    def event_types(self, lease_id: str) -> list[str]:
        """Return the types of the notifications about a lease, in order."""
        log = self.ok("GET", "/v2/notifications?limit=1000")["notifications"]
        return [item["event_type"] for item in log if item["lease_id"] == lease_id]


def reserve(service: Service, start: str = "now", hosts: int = 1) -> str:
    """Create a lease that ends in two hours, and return its id."""
    body = {
        "name": "lease",
        "start_date": start,
        "end_date": date(120),
        "reservations": [host_reservation(hosts, hosts)],
    }
    return str(service.ok("POST", "/v1/leases", body)["lease"]["id"])


@contextmanager
def running(
    home: Path, name: str, *arguments: str, prepare: Callable[[], None] = _nothing
) -> Iterator[Program]:
    """Run a command; unless the test has stopped it, it must exit with 0 after SIGTERM."""
    program = Program(home, name, *arguments, prepare=prepare)
    try:
        yield program
        if program.is_running:
            assert program.stop() == 0, program.errors
    finally:
        program.kill()


@contextmanager
def standalone(home: Path, *arguments: str) -> Iterator[tuple[Service, Program]]:
    """Run ``climate-standalone`` on a free port, with its database in ``home``."""
    service = Service(free_port())
    database = () if "--database" in arguments else ("--database", f"sqlite:///{home}/c.sqlite")
    given = (*database, *arguments, "--port", str(service.port))
    with running(home, "climate-standalone", *given) as program:
        program.says("climate is ready at")
        yield service, program
