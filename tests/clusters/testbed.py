"""Servers of the clusters on loopback: ``python -m tests.clusters.testbed up | down``.

The servers come from Debian's packages (mariadb-server, galera-4, rsync, postgresql). They keep
their data in ``CLUSTERS_DIR`` (default: a folder of the temporary directory), and run until
``down``. Another process may stop, freeze or start each server: its process id is in a file.

Ports lie below the ephemeral range, so that no client socket takes them;
``CLUSTERS_PORT_OFFSET`` is added to each. Data is not flushed to disk: a killed process loses
nothing that it wrote.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import sqlalchemy as sa

FOLDER = Path(os.environ.get("CLUSTERS_DIR") or Path(tempfile.gettempdir()) / "climate-clusters")
_OFFSET = int(os.environ.get("CLUSTERS_PORT_OFFSET") or 0)
_ENVIRONMENT = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8"}
# Writes the process id, then becomes the server.
_WITH_PID = 'echo $$ > "$0"; exec "$@"'
# Seconds that a server may take to start or to end; a busy machine needs many.
_PATIENCE = 120.0


class Unavailable(RuntimeError):
    """A program that the testbed needs is not installed."""


class Server(ABC):
    """One database server: its port, its folder, and its process, which may be another's child."""

    # The signal that ends the server at once, without a checkpoint.
    crash_signal = signal.SIGKILL
    # Who runs the server if the caller is root: neither server works as root.
    user: str

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port + _OFFSET
        self.folder = FOLDER / name

    @property
    def _pid(self) -> int | None:
        """The id of the running process; None if it does not run."""
        try:
            pid = int((self.folder / "process").read_text())
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        return None if state == "Z" else pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self._pid is not None

    def crash(self) -> None:
        """End the server at once."""
        self._end(self.crash_signal)

    def stop(self) -> None:
        """End the server in an orderly way."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Suspend all processes of the server: it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP, *self._processes())

    def thaw(self) -> None:
        """Let a frozen server continue."""
        self._signal(signal.SIGCONT, *self._processes())

    def _end(self, number: int) -> None:
        processes = self._processes()
        self._signal(number, *processes[:1])
        self._signal(signal.SIGCONT, *processes)
        eventually(lambda: not self.is_running, f"{self.name} ends")

    def _processes(self) -> list[int]:
        """Return the ids of the server and its children."""
        pid = self._pid
        if pid is None:
            return []
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def _signal(self, number: int, *processes: int) -> None:
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def execute(self, statement: str) -> list[Any]:
        """Run an SQL statement as the administrator; return its rows."""
        engine = sa.create_engine(
            self.url("", connect_timeout=5), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
        )
        with engine.connect() as connection:
            result = connection.exec_driver_sql(statement)
            return list(result) if result.returns_rows else []

    @abstractmethod
    def url(self, database: str, **query: object) -> str:
        """Return the SQLAlchemy URL of a database on this server."""

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user)

    def _run(self, *command: str) -> None:
        """Run a program to its end, as the user of the server."""
        done = subprocess.run(
            command, **self._options, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-2000:]}")

    def _spawn(self, command: Sequence[str]) -> None:
        """Start the server as a process of its own, which outlives this one."""
        (self.folder / "process").unlink(missing_ok=True)
        detached = ["setsid", "--fork", "sh", "-c", _WITH_PID, str(self.folder / "process")]
        with (self.folder / "log").open("ab") as log:
            subprocess.run(
                [*detached, *command], **self._options, stdout=log, stderr=log, check=True
            )
        eventually(lambda: self.is_running, f"{self.name} starts")

    @property
    def _options(self) -> dict[str, Any]:
        common = {"env": _ENVIRONMENT, "cwd": "/", "stdin": subprocess.DEVNULL}
        user = {"user": self.user, "extra_groups": []} if os.geteuid() == 0 else {}
        return {**common, **user}

    def _await(self, is_ready: Callable[[], bool]) -> None:
        """Wait until the server is ready; raises RuntimeError with its log if it ends before."""

        def looks_ready() -> bool:
            if not self.is_running:
                raise RuntimeError(f"{self.name}: {(self.folder / 'log').read_text()[-2000:]}")
            try:
                return is_ready()
            except (sa.exc.DBAPIError, pymysql.Error):
                return False

        eventually(looks_ready, f"{self.name} answers")


class GaleraNode(Server):
    """One of three MariaDB nodes; every node accepts writes."""

    user = "mysql"

    def __init__(self, number: int) -> None:
        super().__init__(f"galera-{number}", 14600 + number)
        self.number = number

    def url(self, database: str, **query: object) -> str:
        """Return the SQLAlchemy URL of a database on this node."""
        options = {name: str(value) for name, value in query.items()}
        made = sa.URL.create(
            "mysql+pymysql", "root", None, "127.0.0.1", self.port, database or None, options
        )
        return made.render_as_string(hide_password=False)

    def start(self, *, first: bool = False) -> None:
        """Start the node and wait until it is synced; ``first`` begins a new cluster."""
        if not (self.folder / "files").exists():
            self._install()
        if first:  # a crash leaves the mark that another node might have later data
            state = self.folder / "files/grastate.dat"
            if state.exists():
                text = state.read_text()
                state.write_text(text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1"))
        self._spawn([*self._command(), *(["--wsrep-new-cluster"] if first else [])])
        self._await(lambda: self.status("wsrep_local_state_comment") == "Synced")

    def status(self, name: str) -> str:
        """Return a status variable of the node."""
        return str(self.execute(f"SHOW STATUS LIKE '{name}'")[0][1])

    def execute(self, statement: str) -> list[Any]:
        """Run an SQL statement; unlike SQLAlchemy, also on a node that refuses all but SET."""
        connection = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", autocommit=True, connect_timeout=5
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def cut_off(self) -> None:
        """Separate the node from the others; clients still reach it."""
        self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")

    def reconnect(self) -> None:
        """End the separation."""
        self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'")
        self._await(lambda: self.status("wsrep_local_state_comment") == "Synced")

    def _install(self) -> None:
        self._make_folder()
        self._run(
            _program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.folder}/files",
            f"--tmpdir={self.folder}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )

    def _command(self) -> list[str]:
        group = [f"127.0.0.1:{14610 + number + _OFFSET}" for number in (1, 2, 3)]
        provider = {
            "gmcast.listen_addr": f"tcp://{group[self.number - 1]}",
            "ist.recv_addr": f"127.0.0.1:{14620 + self.number + _OFFSET}",
            "gcache.size": "64M",
        }
        options = {
            "datadir": f"{self.folder}/files",
            "tmpdir": str(self.folder),
            "port": self.port,
            "socket": f"{self.folder}/socket",
            "pid-file": f"{self.folder}/pid",
            "bind-address": "127.0.0.1",
            "binlog-format": "ROW",
            "default-storage-engine": "InnoDB",
            "innodb-autoinc-lock-mode": 2,
            "innodb-flush-log-at-trx-commit": 0,
            "innodb-buffer-pool-size": "128M",
            "wsrep-on": "ON",
            "wsrep-provider": _library(),
            "wsrep-cluster-name": "climate",
            "wsrep-cluster-address": f"gcomm://{','.join(group)}",
            "wsrep-node-name": self.name,
            "wsrep-node-address": group[self.number - 1],
            "wsrep-provider-options": ";".join(f"{key}={value}" for key, value in provider.items()),
            "wsrep-sst-method": "rsync",
            "wsrep-sst-receive-address": f"127.0.0.1:{14630 + self.number + _OFFSET}",
            "wsrep-slave-threads": 4,
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        return [_program("mariadbd"), "--no-defaults", *given]


class PostgreSQLServer(Server):
    """One of two PostgreSQL servers: the primary, or the synchronous standby of the other."""

    user = "postgres"
    # SIGQUIT is PostgreSQL's immediate shutdown. After SIGKILL to the parent, its children live on.
    crash_signal = signal.SIGQUIT

    def __init__(self, number: int) -> None:
        super().__init__(f"postgresql-{number}", 14640 + number)
        self.number = number

    def url(self, database: str, **query: object) -> str:
        """Return the SQLAlchemy URL of a database on this server."""
        options = {name: str(value) for name, value in query.items()}
        name = database or "postgres"
        made = sa.URL.create(
            "postgresql+psycopg", "postgres", None, "127.0.0.1", self.port, name, options
        )
        return made.render_as_string(hide_password=False)

    def install_primary(self) -> None:
        """Create the data of a primary that waits for its standby at each commit."""
        self._make_folder()
        options = ["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]
        self._run(_program("initdb"), f"--pgdata={self._files}", "--locale=C", *options)

    def install_standby(self, primary: "PostgreSQLServer") -> None:
        """Copy the data of a primary, to follow it from now on."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._make_folder()
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}"
        self._run(
            _program("pg_basebackup"),
            f"--pgdata={self._files}",
            f"--dbname={source}",
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
            "--no-sync",
        )

    def start(self) -> None:
        """Start the server in the role that its data has, and wait until it answers."""
        options = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "synchronous_commit": "on",
            "wal_log_hints": "on",
            "max_connections": 300,
        }
        given = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        self._spawn([_program("postgres"), "-D", str(self._files), *given])
        self._await(lambda: self.execute("SELECT 1") == [(1,)])

    def promote(self) -> None:
        """Make the standby the primary. Its commits wait for no standby until one follows it."""
        self._wait_for("")
        self.execute("SELECT pg_promote()")

    def wait_for_standby(self) -> None:
        """Make commits wait for the standby from now on, and wait until it follows."""
        self._wait_for("*")
        following = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        self._await(lambda: bool(self.execute(following)))

    def _wait_for(self, standbys: str) -> None:
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        self.execute("SELECT pg_reload_conf()")

    @property
    def is_primary(self) -> bool:
        """Whether the server accepts writes."""
        return not self.execute("SELECT pg_is_in_recovery()")[0][0]

    @property
    def _files(self) -> Path:
        return self.folder / "files"


GALERA = [GaleraNode(number) for number in (1, 2, 3)]
POSTGRESQL = [PostgreSQLServer(number) for number in (1, 2)]


def start_galera() -> None:
    """Start the three nodes that do not run; the first of all begins the cluster."""
    if not any(node.is_running for node in GALERA):
        GALERA[0].start(first=True)
    for node in GALERA:
        if not node.is_running:
            node.start()
        node.reconnect()


def primary() -> PostgreSQLServer:
    """Return the PostgreSQL server that accepts writes."""
    (found,) = [server for server in POSTGRESQL if server.is_primary]
    return found


def start_postgresql() -> None:
    """Start a primary and its synchronous standby, with new data unless they run as such."""
    if (
        all(server.is_running for server in POSTGRESQL)
        and len([server for server in POSTGRESQL if server.is_primary]) == 1
    ):
        primary().wait_for_standby()
        return
    primary_server, standby = POSTGRESQL
    for server in POSTGRESQL:
        server.crash()
        shutil.rmtree(server.folder, ignore_errors=True)
    primary_server.install_primary()
    primary_server.start()
    standby.install_standby(primary_server)
    standby.start()
    primary_server.wait_for_standby()


def check_programs() -> None:
    """Raise Unavailable if a program of the testbed is not installed."""
    for program in ("mariadbd", "mariadb-install-db", "rsync", "initdb", "pg_basebackup"):
        _program(program)
    _library()


def up() -> None:
    """Start all servers; raises Unavailable if a program is not installed."""
    check_programs()
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        for started in [pool.submit(start_galera), pool.submit(start_postgresql)]:
            started.result()
    print(f"three Galera nodes and two PostgreSQL servers run ({time.monotonic() - began:.0f} s)")
    for server in (*GALERA, *POSTGRESQL):
        print(f"  {server.name}: {server.url('')}")


def down() -> None:
    """End all servers and remove their data."""
    for server in (*GALERA, *POSTGRESQL):
        server.crash()
    shutil.rmtree(FOLDER, ignore_errors=True)


def eventually(is_true: Callable[[], object], what: str, within: float = _PATIENCE) -> None:
    """Wait until a condition holds; raises TimeoutError."""
    deadline = time.monotonic() + within
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within:.0f} s: {what}")
        time.sleep(0.05)


def _program(name: str) -> str:
    """Return the path of a program; raises Unavailable."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which(name, path=":".join([*map(str, folders), _ENVIRONMENT["PATH"]]))
    if found is None:
        raise Unavailable(f"there is no {name}: see CONTRIBUTING.md for the packages")
    return found


def _library() -> str:
    """Return the path of Galera's library; raises Unavailable."""
    for path in (*Path("/usr/lib/galera").glob("*.so"), *Path("/usr/lib64/galera-4").glob("*.so")):
        return str(path)
    raise Unavailable("there is no Galera library: install galera-4")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.clusters.testbed")
    parser.add_argument("command", choices=["up", "down"])
    try:
        {"up": up, "down": down}[parser.parse_args().command]()
    except Unavailable as reason:
        sys.exit(str(reason))


if __name__ == "__main__":
    main()
