"""Databases of the services: created, migrated and dropped."""

import hashlib
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tests.openstack.testbed import layout
from tests.openstack.testbed.layout import Failure
from tests.openstack.testbed.servers import MariaDB

_NAMES = (
    *("keystone", "placement", "glance", "nova_api", "nova", "nova_cell0"),
    *("neutron", "cinder", "heat"),
)
# Bears witness that all databases have their schema, along with _owner.
_DONE = layout.STATE / "schemas"
# Two clouds by the same name, of two working copies, must not take each other's databases for
# their own: this stands in a comment on one of them.
_OURS = hashlib.sha256(str(layout.HOME).encode()).hexdigest()[:12]


def make(mariadb: MariaDB, rabbitmq_url: str) -> None:
    """Create all databases with their schemas, unless they exist."""
    if _DONE.exists() and _owner(mariadb) == _OURS:
        return
    # Whatever is there under our names was left by a cloud whose other half is lost.
    _drop(mariadb)
    # Nova stores in its database where database and broker are.
    cached = layout.CACHE / f"{_fingerprint(mariadb.url(''), rabbitmq_url)}.sql"
    if cached.exists():
        mariadb.load(cached.read_bytes())
    else:
        _create(mariadb, *_NAMES)
        _migrate(mariadb)
        layout.CACHE.mkdir(exist_ok=True)
        unfinished = cached.with_suffix(".part")
        unfinished.write_bytes(mariadb.dump([_name(name) for name in _NAMES]))
        unfinished.rename(cached)
    mariadb.run(f"ALTER DATABASE {_name('keystone')} COMMENT = '{_OURS}'")
    _DONE.touch()


def make_for_blazar(mariadb: MariaDB) -> None:
    """Create Blazar's database, unless it exists; it is not cached."""
    done = layout.STATE / "schema-blazar"
    if not done.exists():
        _create(mariadb, "blazar")
        _manage("blazar-db-manage", "blazar", "upgrade", "head")
        done.touch()


def drop(mariadb: MariaDB) -> None:
    """Drop our databases, unless a testbed of another working copy owns them now."""
    if _owner(mariadb) == _OURS:
        _drop(mariadb)


def _owner(mariadb: MariaDB) -> str:
    """Return which working copy owns the databases of these names."""
    comments = mariadb.run("SELECT schema_name, schema_comment FROM information_schema.schemata")
    found = dict(line.split("\t") for line in comments.splitlines())
    return found.get(_name("keystone"), "")


def _drop(mariadb: MariaDB) -> None:
    names = (*_NAMES, "blazar")
    mariadb.run("".join(f"DROP DATABASE IF EXISTS {_name(name)};" for name in names))


def _create(mariadb: MariaDB, *names: str) -> None:
    options = "CHARACTER SET utf8mb3"
    mariadb.run("".join(f"CREATE DATABASE {_name(name)} {options};" for name in names))


def _name(database: str) -> str:
    return f"{layout.PREFIX}_{database}"


def _fingerprint(*addresses: str) -> str:
    files = [layout.SOURCE / name for name in ("requirements.txt", "constraints.txt")]
    parts = [*(path.read_text() for path in files), *addresses, layout.PREFIX]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _migrate(mariadb: MariaDB) -> None:
    """Run all migrations: Nova's, Neutron's and Cinder's, and the others in parallel."""
    with ThreadPoolExecutor() as pool:
        running = [
            pool.submit(_migrate_nova, mariadb),
            pool.submit(_migrate_neutron_and_cinder),
            pool.submit(_migrate_others),
        ]
        for item in running:
            item.result()


def _migrate_nova(mariadb: MariaDB) -> None:
    cell0 = mariadb.url(_name("nova_cell0")) + "?charset=utf8mb3"
    _manage("nova-manage", "nova", "api_db", "sync")
    _manage("nova-manage", "nova", "cell_v2", "map_cell0", "--database_connection", cell0)
    _manage("nova-manage", "nova", "db", "sync")
    _manage("nova-manage", "nova", "cell_v2", "create_cell", "--name", "cell1")


def _migrate_neutron_and_cinder() -> None:
    _manage("neutron-db-manage", "neutron", "upgrade", "heads")
    _manage("cinder-manage", "cinder", "db", "sync")


def _migrate_others() -> None:
    _manage("keystone-manage", "keystone", "db_sync")
    urls = [f"--bootstrap-{kind}-url={layout.KEYSTONE}" for kind in ("admin", "internal", "public")]
    options = ["--bootstrap-password=secret", "--bootstrap-region-id=RegionOne"]
    _manage("keystone-manage", "keystone", "bootstrap", *options, *urls)
    _manage("placement-manage", "placement", "db", "sync")
    _manage("glance-manage", "glance-api", "db_sync")
    _manage("heat-manage", "heat", "db_sync")


def _manage(program: str, configuration: str, *arguments: str) -> None:
    log = layout.LOG / f"{program}.log"
    path = layout.CONF / f"{configuration}.conf"
    with log.open("ab") as output:
        done = subprocess.run(
            [layout.BIN / program, "--config-file", path, *arguments],
            env=layout.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    if done.returncode:
        raise Failure(f"{program} {' '.join(arguments[:2])} failed; {layout.end_of(log)}")
