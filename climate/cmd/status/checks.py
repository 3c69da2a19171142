"""The checks of ``climate-status``. They read the installation and change nothing."""

import time
from collections.abc import Callable

import kombu
import sqlalchemy as sa
from oslo_config import cfg
from oslo_config.cfg import ConfigOpts
from oslo_upgradecheck.upgradecheck import Code, Result

from climate.api import auth
from climate.api.server import http_server
from climate.clock import SystemClock
from climate.cmd.database import database_url, open_database
from climate.config import registry as config_registry
from climate.config.registry import Misconfigured
from climate.db import managers
from climate.db.engine import schema
from climate.db.engine.advisory_lock import AdvisoryLocks
from climate.db.engine.clock import present
from climate.db.engine.database import Database
from climate.plugins.loader import BrokenPlugin, load_plugins, load_selection

# Seconds of skew from which the check warns. From claim_timeout on, managers reclaim each other's
# events.
_MAX_SKEW = 1.0
_BROKER_TIMEOUT = 5.0

Check = Callable[[ConfigOpts], Result]


def check_database(conf: ConfigOpts) -> Result:
    """Check that the database answers and has the schema of this release.

    An earlier schema causes a warning.
    """
    with open_database(conf) as database:
        try:
            revision = schema.current(database)
            schema.check(database)
        except schema.UnknownSchema as error:
            return Result(Code.FAILURE, str(error))
        except schema.SchemaMismatch as error:
            return Result(Code.WARNING if revision else Code.FAILURE, str(error))
        except sa.exc.SQLAlchemyError as error:
            return Result(Code.FAILURE, f"the database cannot be used: {error}")
    return Result(Code.SUCCESS, f"schema {revision}")


def check_clock(conf: ConfigOpts) -> Result:
    """Check that the clock of this machine agrees with that of the database.

    A difference of one second or more causes a warning. A difference of ``claim_timeout`` or more
    is a failure. The check first subtracts the duration of its query from the difference, because
    the query makes the difference uncertain by this time.
    """
    try:
        with open_database(conf) as database:
            skew, took = _skew(database)
    except sa.exc.SQLAlchemyError as error:
        return Result(Code.FAILURE, f"the time of the database cannot be read: {error}")
    off = max(0.0, abs(skew) - took)
    if off < _MAX_SKEW:
        return Result(Code.SUCCESS)
    text = f"this machine is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} the database"
    code = Code.FAILURE if off >= conf.manager.claim_timeout else Code.WARNING
    return Result(code, f"{text}: synchronise its clock (NTP)")


def _skew(database: Database) -> tuple[float, float]:
    """Return two values: the skew of the clocks, and the duration of the query (both in seconds).

    The skew is how far this machine's clock is ahead of the database's clock. The duration of the
    query limits the precision of the skew.
    """
    with database.read() as session:
        session.execute(sa.select(1))  # excludes the time to connect
        started = time.monotonic()
        database_time = session.scalar(_TIME[database.dialect])
        took = time.monotonic() - started
    return time.time() - took / 2 - float(database_time or 0), took


_TIME = {
    "sqlite": sa.text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": sa.text("SELECT extract(epoch FROM clock_timestamp())"),
    "mysql": sa.text("SELECT UNIX_TIMESTAMP(NOW(6))"),
}


def check_managers(conf: ConfigOpts) -> Result:
    """List the managers that are alive. Never fails, because an upgrade needs no manager."""
    try:
        with open_database(conf) as database, database.read() as session:
            alive = managers.alive(session, present(database))
    except sa.exc.SQLAlchemyError:  # the check of the database explains it
        return Result(Code.SUCCESS, "unknown")
    return Result(Code.SUCCESS, ", ".join(manager.id for manager in alive) or "none is running")


def check_plugins(conf: ConfigOpts) -> Result:
    """Check that plug-ins, filters and weighers can be loaded; send no request to a cloud."""
    try:
        with open_database(conf) as database:
            load_plugins(conf, conf.manager.plugins, AdvisoryLocks(database).hold, SystemClock())
        load_selection(conf)
    except BrokenPlugin as error:
        return Result(Code.FAILURE, str(error))
    return Result(Code.SUCCESS, ", ".join(conf.manager.plugins))


def check_broker(conf: ConfigOpts) -> Result:
    """Check that the configured message broker accepts a connection.

    If the URL of the broker has several addresses, only the first is checked. Only RabbitMQ and
    other AMQP brokers are checked; other kinds cause a warning.
    """
    url = conf.notifications.transport_url
    if not url:
        return Result(Code.SUCCESS, "no broker is configured")
    scheme, _, rest = url.partition("://")
    if scheme not in {"rabbit", "amqp", "amqps"}:
        return Result(Code.WARNING, f"brokers of the kind {scheme} are not checked")
    first = rest.split(",")[0] if "@" in rest.rpartition(",")[2] else rest
    connection = kombu.Connection(f"amqp://{first}", connect_timeout=_BROKER_TIMEOUT)
    try:
        connection.connect()
    except Exception as error:  # noqa: BLE001 - any error of the library is a failure
        return Result(Code.FAILURE, f"the broker cannot be used: {error}")
    finally:
        connection.release()
    return Result(Code.SUCCESS)


def check_configuration(conf: ConfigOpts) -> Result:
    """Check the options: unknown options and dangerous settings cause warnings.

    An address on which the API would refuse to listen is a failure, and so are options of Keystone
    with which it cannot check tokens. Raises Misconfigured for an invalid value, which ``_run``
    reports as a failure.
    """
    config_registry.check_values(conf)
    code, texts = Code.SUCCESS, [*config_registry.unknown_options(conf), *_dangerous(conf)]
    if texts:
        code = Code.WARNING
    try:
        http_server.check_address(conf)
        auth.check_options(conf)
    except Misconfigured as error:
        code, texts = Code.FAILURE, [str(error), *texts]
    return Result(code, "; ".join(texts) or None)


def _dangerous(conf: ConfigOpts) -> list[str]:
    manager, api = conf.manager, conf.api
    is_server = database_url(conf).get_backend_name() != "sqlite"
    simulated = conf["physical:host"].cloud == "simulated"
    cases = [
        (
            api.auth_strategy == "noauth" and not auth.is_loopback(conf.host),
            "[api] auth_strategy = noauth: anyone who reaches the API can do anything",
        ),
        (
            is_server and simulated,
            "[physical:host] cloud = simulated beside a database server: no real host is leased",
        ),
        (
            is_server and simulated and not conf.simulated.journal,
            "[simulated] journal is not set: each process has a cloud of its own",
        ),
        (
            manager.poll_interval >= manager.claim_timeout,
            "[manager] poll_interval is not below claim_timeout: events of a dead manager wait",
        ),
        (
            not manager.self_audit_interval,
            "[manager] self_audit_interval = 0: no manager checks the invariants",
        ),
        (
            api.metrics and not auth.is_loopback(conf.host),
            "[api] metrics = true: block /metrics in the proxy",
        ),
    ]
    return [text for applies, text in cases if applies]


CHECKS: list[tuple[str, Check]] = [
    ("Configuration", check_configuration),
    ("Database and schema", check_database),
    ("Clock", check_clock),
    ("Managers", check_managers),
    ("Plugins", check_plugins),
    ("Broker", check_broker),
]


def for_config(conf: ConfigOpts) -> tuple[tuple[str, Callable[..., Result]], ...]:
    """Return the name and the function of each check, in the form of oslo.upgradecheck."""
    return tuple((name, lambda _, check=check: _run(check, conf)) for name, check in CHECKS)


def _run(check: Check, conf: ConfigOpts) -> Result:
    """Run a check and return its result; an error in the configuration is a failure."""
    try:
        return check(conf)
    except (Misconfigured, cfg.Error) as error:
        return Result(Code.FAILURE, str(error))
