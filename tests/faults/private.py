"""Private database servers and a private broker, which tests crash."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import kombu
import sqlalchemy as sa

from tests.support import servers
from tests.support.process import eventually, free_port
from tests.support.will import Will

# Seconds that a server may take to start, or to end.
_PATIENCE = 180.0
_WILL = 'kill -s "$1" -- "-$(cat "$2/group")"; sleep 2; rm -rf -- "$2"'
_CLEAN_ENVIRONMENT = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "LC_ALL": "C.UTF-8"}


class Server(ABC):
    """A server that runs inside the ``with`` block; ``crash`` and ``start`` can be repeated."""

    name: ClassVar[str]

    def __init__(self) -> None:
        self.port = free_port()
        # Not below pytest's folders, which only their owner may enter.
        self.data = Path(tempfile.mkdtemp(prefix=f"climate-faults-{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._will = Will(_WILL, str(int(self._end)), str(self.data))

    def __enter__(self) -> Self:
        try:
            self._prepare()
            self.start()
        except BaseException as error:
            self.__exit__()
            if isinstance(error, OSError | subprocess.SubprocessError):
                servers.absent(self.name, f"it cannot be run here: {error}")
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.crash()
        shutil.rmtree(self.data, ignore_errors=True)
        self._will.revoke()

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._process is not None:
            return
        with (self.data / "log").open("ab") as log:
            self._process = self._run(log)
        (self.data / "group").write_text(str(self._process.pid))
        eventually(self._answers, f"{self.name} answers", within=_PATIENCE)

    def crash(self) -> None:
        """Kill it, if it runs."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, self._end)
            self._process.wait(_PATIENCE)
            (self.data / "group").unlink()
            self._process = None

    _end = signal.SIGKILL

    @abstractmethod
    def _prepare(self) -> None:
        """Create its data; raises OSError or SubprocessError."""

    @abstractmethod
    def _run(self, log: Any) -> "subprocess.Popen[bytes]":
        pass

    @abstractmethod
    def _is_ready(self) -> None:
        """Send a request; raises if it does not answer."""

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise ChildProcessError((self.data / "log").read_text()[-500:])
        try:
            self._is_ready()
        except Exception:  # noqa: BLE001 - whatever it is, it is not ready
            return False
        return True


class DatabaseServer(Server):
    """A server with a database for the tests."""

    #: SQLAlchemy URL without host and port, and the database that is always there.
    drivername: ClassVar[str]
    user: ClassVar[str]
    first: ClassVar[str]
    database: ClassVar[str] = "climate"

    def url(self, port: int | None = None, database: str | None = None) -> str:
        """The URL of our database, directly or through another port."""
        return sa.URL.create(
            self.drivername,
            self.user,
            None,
            "127.0.0.1",
            port or self.port,
            database or self.database,
        ).render_as_string()

    def make_database(self) -> None:
        engine = sa.create_engine(self.url(database=self.first), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {self.database}")
        engine.dispose()

    def _is_ready(self) -> None:
        engine = sa.create_engine(self.url(database=self.first))
        try:
            engine.connect().close()
        finally:
            engine.dispose()


class PostgreSQL(DatabaseServer):
    """PostgreSQL refuses to run as root, so it runs as its own user then."""

    name, drivername, user, first = "postgresql", "postgresql+psycopg", "postgres", "postgres"
    # What it calls immediate: no checkpoint, recovery at the next start. SIGKILL to the parent
    # would leave children that keep the next one from starting.
    _end = signal.SIGQUIT

    def _prepare(self) -> None:
        self._as = _unprivileged_user("postgres")
        if self._as:
            shutil.chown(self.data, self._as)
        files = [f"--pgdata={self.data}/files", "--username=postgres", "--auth=trust", "--no-sync"]
        _call([_program("initdb"), *files, "--encoding=UTF8", "--locale=C"], self._as)

    def _run(self, log: Any) -> "subprocess.Popen[bytes]":
        options = [f"port={self.port}", "listen_addresses=127.0.0.1", "unix_socket_directories="]
        options.append("fsync=off")
        given = [word for option in options for word in ("-c", option)]
        command = [_program("postgres"), "-D", f"{self.data}/files", *given]
        return _popen(command, log, self._as)


class MariaDB(DatabaseServer):
    name, drivername, user, first = "mariadb", "mysql+pymysql", "root", "mysql"

    @property
    def _files(self) -> list[str]:
        user = pwd.getpwuid(os.geteuid()).pw_name
        # Two that are made at the same time have temporary tables of the same names.
        places = [f"--datadir={self.data}/files", f"--tmpdir={self.data}"]
        return ["--no-defaults", *places, f"--user={user}"]

    def _prepare(self) -> None:
        options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        _call([_program("mariadb-install-db"), *self._files, *options])

    def _run(self, log: Any) -> "subprocess.Popen[bytes]":
        options = [
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.data}/socket",
            f"--pid-file={self.data}/pid",
            "--skip-log-bin",
            "--innodb-flush-log-at-trx-commit=2",
        ]
        return _popen([_program("mariadbd"), *self._files, *options], log)


class RabbitMQ(Server):
    """A node with its own name, cookie, data and ports."""

    name = "rabbitmq"

    def url(self, port: int | None = None) -> str:
        """The URL of our database, directly or through another port."""
        return f"rabbit://guest:guest@127.0.0.1:{port or self.port}/"

    @property
    def amqp(self) -> str:
        return self.url().replace("rabbit://", "amqp://")

    def _prepare(self) -> None:
        # The command on the PATH would become the user of Debian's own node.
        self._command = _program("rabbitmq-server", "/usr/lib/rabbitmq/bin")
        self._distribution = free_port()

    def _run(self, log: Any) -> "subprocess.Popen[bytes]":
        environment = {
            "HOME": str(self.data),
            "RABBITMQ_NODENAME": f"climate-faults-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": f"{self.data}/mnesia",
            "RABBITMQ_LOG_BASE": f"{self.data}/logs",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{self.data}/plugins",
            "RABBITMQ_CONF_ENV_FILE": f"{self.data}/none",
            "RABBITMQ_CONFIG_FILE": f"{self.data}/none",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}"
            " +S 1:1 +sbwt none",
        }
        return _popen([self._command], log, more=environment)

    def _is_ready(self) -> None:
        with kombu.Connection(self.amqp, connect_timeout=3) as connection:
            connection.connect()


DATABASES: dict[str, type[DatabaseServer]] = {one.name: one for one in (PostgreSQL, MariaDB)}


def _program(name: str, *folders: str) -> str:
    """Return the path of a program; raises FileNotFoundError."""
    places = [*folders, *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    found = shutil.which(name, path=":".join([*places, _CLEAN_ENVIRONMENT["PATH"]]))
    if found is None:
        raise FileNotFoundError(f"there is no {name}")
    return found


def _unprivileged_user(name: str) -> str | None:
    """Return the user for programs that refuse root; raises OSError if none exists."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError as error:
        raise FileNotFoundError(f"root may not run it, and there is no user {name}") from error


def _call(command: Sequence[str], user: str | None = None) -> None:
    options: dict[str, Any] = {"user": user, "extra_groups": []} if user else {}
    done = subprocess.run(
        command,
        env=_CLEAN_ENVIRONMENT,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    if done.returncode:
        raise ChildProcessError(f"{command[0]}: {(done.stderr or done.stdout).strip()[-300:]}")


def _popen(
    command: Sequence[str], log: Any, user: str | None = None, more: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    options: dict[str, Any] = {"user": user, "extra_groups": []} if user else {}
    return subprocess.Popen(
        command,
        env={**_CLEAN_ENVIRONMENT, **(more or {})},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        **options,
    )
