"""Databases with hosts, on a server of the tests or on a small disk."""

import json
import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.db.tables.leases import Base, InventoryRow, PropertyRow, ResourceProperty, ResourceRow
from climate.db.tables.notifications import RelayRow
from climate.manager.process.runtime import Runtime
from climate.manager.resources import registry as resources
from tests.faults.private import DatabaseServer
from tests.support import servers
from tests.support.process import write_config
from tests.support.will import Will

_KEPT = {one.__tablename__ for one in (InventoryRow, PropertyRow, RelayRow, ResourceProperty)}
_KEPT.add(ResourceRow.__tablename__)
_MIB = 1 << 20


@contextmanager
def runtime(conf: Path) -> Iterator[Runtime]:
    read = config_registry.new()
    config_registry.load(read, "test", [f"--config-file={conf}"])
    with bootstrap.open_runtime(read) as made:
        yield made


class FaultDatabase(ABC):
    """A database with registered hosts, each with a server; a test can clear it."""

    def __init__(self, home: Path, hosts: int) -> None:
        self._home = home
        self._hosts = hosts
        self._journal = home / "hosts"

    def __enter__(self) -> Self:
        servers.migrate(self.url)
        conf = self._home / "hosts.conf"
        options = {"simulated__hosts": self._hosts, "simulated__journal": self._journal}
        write_config(conf, database__connection=self.url, **options)
        names = [f"sim-{number}" for number in range(1, self._hosts + 1)]
        with runtime(conf) as made:
            for name in names:
                resources.register(made, "physical:host", name)
        with self._journal.open("a", encoding="utf-8") as journal:
            for name in names:
                # A server of no lease, of which before-end keeps an image.
                boot = {"effect": "boot_server", "host": name, "server": f"server-on-{name}"}
                journal.write(json.dumps(boot) + "\n")
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 - whoever has the server has the database
        """Close the database."""

    @property
    @abstractmethod
    def url(self) -> str:
        """SQLAlchemy URL of the database."""

    def clear(self, journal: Path) -> None:
        """Delete all rows but the hosts', and restore the cloud."""
        engine = sa.create_engine(self.url)
        with engine.begin() as connection:
            for table in reversed(Base.metadata.sorted_tables):
                if table.name not in _KEPT:
                    connection.execute(sa.delete(table))
            initial = {"last_seq": 0, "published_seq": 0, "owner": None, "claimed_until": None}
            connection.execute(sa.update(RelayRow).values(**initial))
        engine.dispose()
        shutil.copy(self._journal, journal)


class ServerDatabase(FaultDatabase):
    """A database on a private server."""

    def __init__(self, server: DatabaseServer, home: Path, hosts: int) -> None:
        super().__init__(home, hosts)
        self.server = server

    def __enter__(self) -> Self:
        self.server.make_database()
        return super().__enter__()

    @property
    def url(self) -> str:
        return self.server.url()


class DiskDatabase(FaultDatabase):
    """An SQLite file on a small disk in memory, which only root can mount."""

    def __init__(self, home: Path, hosts: int) -> None:
        super().__init__(home, hosts)
        self._disk = home / "disk"
        self._disk.mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={64 * _MIB}", "tmpfs", str(self._disk)]
        try:
            subprocess.run(mount, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            servers.absent("disk", f"a small disk of our own cannot be mounted here: {error}")
        self._will = Will('umount --lazy "$1"', str(self._disk))
        try:
            return super().__enter__()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self._disk)], check=True)
        self._will.revoke()

    @property
    def url(self) -> str:
        return f"sqlite:///{self._disk}/climate.sqlite"

    def fill(self) -> None:
        """Leave no byte free."""
        file = os.open(self._disk / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            for size in (_MIB, 4096, 1):
                self._write(file, bytes(size))
        finally:
            os.close(file)

    def empty(self) -> None:
        """Free the disk."""
        (self._disk / "filler").unlink(missing_ok=True)

    @staticmethod
    def _write(file: int, chunk: bytes) -> None:
        try:
            while True:
                os.write(file, chunk)
        except OSError:  # it is full for chunks of this size
            return
