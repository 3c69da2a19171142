"""MariaDB, RabbitMQ and memcached.

A MariaDB or RabbitMQ at the address that the other tests use is used here too, and belongs to
somebody else: it is never stopped, and in it is touched only what has our prefix. Where there is
none, a private one runs on a port of its own, with all its data in STATE.
"""

import getpass
import os
import subprocess
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from tests.openstack.testbed import daemons, layout, packages
from tests.openstack.testbed.daemons import Daemon
from tests.openstack.testbed.layout import Failure

_MARIADB_URL = os.environ.get("CLIMATE_TEST_MARIADB_URL", "mysql+pymysql://root@127.0.0.1:3306/")
_RABBITMQ_URL = os.environ.get("CLIMATE_TEST_RABBITMQ_URL", "rabbit://guest:guest@127.0.0.1:5672/")
_MARIADB_DATA = layout.STATE / "mariadb"
_RABBITMQ_DATA = layout.STATE / "rabbitmq"
# The commands on the PATH become the user of Debian's own RabbitMQ, these run as who we are.
_PRIVATE_COMMANDS = "/usr/lib/rabbitmq/bin/"
# What all services together may open, with some left for others.
_CONNECTIONS = 1000


@dataclass(frozen=True)
class MariaDB:
    """The server with our databases."""

    host: str
    port: int
    user: str
    password: str

    def url(self, database: str) -> str:
        password = f":{quote(self.password, safe='')}" if self.password else ""
        return f"mysql+pymysql://{self.user}{password}@{self.host}:{self.port}/{database}"

    def run(self, sql: str) -> str:
        """Run statements and return their results."""
        return self._call("mariadb", "--batch", "--skip-column-names", said=sql.encode()).decode()

    def dump(self, databases: list[str]) -> bytes:
        return self._call("mariadb-dump", "--databases", *databases)

    def load(self, dump: bytes) -> None:
        self._call("mariadb", said=dump)

    def _call(self, program: str, *arguments: str, said: bytes = b"") -> bytes:
        where = [f"--host={self.host}", f"--port={self.port}", f"--user={self.user}"]
        done = subprocess.run(
            [program, "--no-defaults", "--protocol=tcp", *where, *arguments],
            env=layout.environment(MYSQL_PWD=self.password),
            input=said,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            raise Failure(f"{program}: {done.stderr.decode().strip()}")
        return done.stdout


@dataclass(frozen=True)
class RabbitMQ:
    """The broker of the services, in a virtual host of ours."""

    address: str
    user: str
    commands: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{self.address}/{layout.PREFIX}"

    def is_controllable(self) -> bool:
        """Return whether rabbitmqctl exists and has access."""
        try:
            self._control("list_vhosts")
        except Failure:
            return False
        return True

    def make_virtual_host(self) -> None:
        if layout.PREFIX not in self._control("list_vhosts").split():
            self._control("add_vhost", layout.PREFIX)
        ours = ("-p", layout.PREFIX)
        self._control("set_permissions", *ours, self.user, ".*", ".*", ".*")
        # No program reads the notifications of Nova, so they would pile up.
        limits = ("^notifications", '{"max-length": 1000}', "--apply-to", "queues")
        self._control("set_policy", *ours, "short", *limits)

    def remove_virtual_host(self) -> None:
        if layout.PREFIX in self._control("list_vhosts").split():
            self._control("delete_vhost", layout.PREFIX)

    def _control(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [f"{self.commands}rabbitmqctl", "--quiet", *arguments],
                env=layout.environment(**self.environment),
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise Failure("there is no rabbitmqctl") from error
        if done.returncode:
            raise Failure(f"rabbitmqctl {arguments[0]}: {done.stderr.strip()}")
        return done.stdout


def find_mariadb() -> MariaDB | None:
    """Return the server with our databases, if it answers."""
    private = MariaDB("127.0.0.1", layout.MARIADB_PORT, "root", "")
    given = urlsplit(_MARIADB_URL)
    shared = MariaDB(
        given.hostname or "127.0.0.1",
        given.port or 3306,
        unquote(given.username or "root"),
        unquote(given.password or ""),
    )
    found = private if _MARIADB_DATA.exists() else shared
    try:
        found.run("SELECT 1")
    except (Failure, FileNotFoundError):
        return None
    return found


def find_rabbitmq() -> RabbitMQ | None:
    """Return the broker with our virtual host, if it answers and can create one."""
    given = urlsplit(_RABBITMQ_URL)
    shared = RabbitMQ(f"rabbit://{given.netloc}", unquote(given.username or "guest"))
    there = daemons.answers(given.port or 5672, given.hostname or "127.0.0.1")
    if _RABBITMQ_DATA.exists():
        return _private_rabbitmq() if daemons.answers(layout.RABBITMQ_PORT) else None
    return shared if there and shared.is_controllable() else None


def start_mariadb() -> MariaDB:
    """Return the MariaDB that the tests use, or start a private one."""
    packages.need("mariadb", "mariadb-dump")
    if (found := find_mariadb()) is None:
        packages.need("mariadbd")
        _start_private_mariadb()
        found = find_mariadb()
    if found is None:
        raise Failure("MariaDB was started, but does not let us in")
    allowed = int(found.run("SELECT @@GLOBAL.max_connections"))
    if allowed < _CONNECTIONS:
        try:
            found.run(f"SET GLOBAL max_connections = {_CONNECTIONS}")
        except Failure:
            print(f"MariaDB allows {allowed} connections and no more, which may be too few")
    return found


def start_rabbitmq() -> RabbitMQ:
    """Return the RabbitMQ that the tests use, or start a private one."""
    if (broker := find_rabbitmq()) is None:
        packages.need("rabbitmq-server")
        broker = _private_rabbitmq()
        _RABBITMQ_DATA.mkdir(parents=True, exist_ok=True)
        daemon = Daemon(
            "rabbitmq",
            [f"{_PRIVATE_COMMANDS}rabbitmq-server"],
            broker.environment,
            layout.RABBITMQ_PORT,
        )
        daemon.start()
        daemon.wait()
    broker.make_virtual_host()
    return broker


def start_memcached() -> None:
    """Start a private memcached: other users' tokens stay out of it."""
    packages.need("memcached")
    port = layout.PORTS["memcached"]
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    options = ["-l", "127.0.0.1", "-p", str(port), "-m", "64", *user]
    Daemon("memcached", ["memcached", *options], port=port).start()


def _start_private_mariadb() -> None:
    files = ["--no-defaults", f"--datadir={_MARIADB_DATA}", f"--user={getpass.getuser()}"]
    if not _MARIADB_DATA.exists():
        options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        with (layout.LOG / "mariadb-install.log").open("wb") as log:
            subprocess.run(
                ["mariadb-install-db", *files, *options], check=True, stdout=log, stderr=log
            )
    options = [
        "--bind-address=127.0.0.1",
        f"--port={layout.MARIADB_PORT}",
        f"--socket={layout.RUN / 'mariadb.sock'}",
        f"--max-connections={_CONNECTIONS}",
        # What a crash of the machine would lose is no loss.
        "--innodb-flush-log-at-trx-commit=0",
        "--skip-log-bin",
    ]
    command = ["mariadbd", *files, *options]
    daemon = Daemon("mariadb", command, port=layout.MARIADB_PORT)
    daemon.start()
    daemon.wait()


def _private_rabbitmq() -> RabbitMQ:
    environment = {
        # The cookie, which node and rabbitmqctl share, is kept there.
        "HOME": str(_RABBITMQ_DATA),
        "RABBITMQ_NODENAME": f"{layout.PREFIX}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(layout.RABBITMQ_PORT),
        "RABBITMQ_DIST_PORT": str(layout.RABBITMQ_PORT + 1),
        "RABBITMQ_MNESIA_BASE": str(_RABBITMQ_DATA / "mnesia"),
        "RABBITMQ_LOG_BASE": str(_RABBITMQ_DATA / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(_RABBITMQ_DATA / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(_RABBITMQ_DATA / "none"),
        "RABBITMQ_CONFIG_FILE": str(_RABBITMQ_DATA / "none"),
        # Else the node and its name server listen on all addresses.
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    address = f"rabbit://guest:guest@127.0.0.1:{layout.RABBITMQ_PORT}"
    return RabbitMQ(address, "guest", _PRIVATE_COMMANDS, environment)
