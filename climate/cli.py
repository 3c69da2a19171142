"""The programs: each reads its configuration, has climate.service make the parts, and runs them."""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg
from oslo_config.cfg import ConfigOpts

from climate import config, limit_commands, service, serving, simulation
from climate.config import Misconfigured
from climate.core.errors import ClimateError, InvalidInput
from climate.db.engine import schema
from climate.manager import audit as auditing
from climate.manager.runtime import Runtime
from climate.notifications import listen as listening
from climate.notifications.emit import BrokenTransport
from climate.plugins.base import Drift
from climate.plugins.loader import BrokenPlugin

LOG = logging.getLogger(__name__)

Program = Callable[[ConfigOpts, argparse.Namespace], int | None]

# Whatever has one of these as its reason is mended by an operator, who needs no stack trace.
_FOR_THE_OPERATOR = (
    BrokenPlugin,
    BrokenTransport,
    Misconfigured,
    cfg.Error,
    listening.Refused,
    schema.SchemaMismatch,
)
_NO_DATABASE = (sa.exc.InterfaceError, sa.exc.OperationalError, sa.exc.ProgrammingError)


def standalone(arguments: Sequence[str] | None = None) -> int:
    """Run the whole service in one process, on SQLite and a simulated cloud by default."""
    parser = argparse.ArgumentParser("climate-standalone", description=standalone.__doc__)
    parser.add_argument("--host", help="address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 1234)")
    parser.add_argument("--database", metavar="URL", help="SQLAlchemy URL of the database")
    parser.add_argument("--empty", action="store_true", help="register no hosts in a new database")
    return _run(parser, arguments, lambda conf, given: _standalone(conf, empty=given.empty))


def api(arguments: Sequence[str] | None = None) -> int:
    """Serve the API; other processes manage."""
    parser = argparse.ArgumentParser("climate-api", description=api.__doc__)
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on")
    return _run(parser, arguments, lambda conf, _: _api(conf))


def manager(arguments: Sequence[str] | None = None) -> int:
    """Manage leases: run what is due, publish what happened. Any number may run."""
    parser = argparse.ArgumentParser("climate-manager", description=manager.__doc__)
    return _run(parser, arguments, lambda conf, _: _manager(conf))


def provisioner(arguments: Sequence[str] | None = None) -> int:
    """Get hosts ready for their leases. Any number may run."""
    parser = argparse.ArgumentParser("climate-provisioner", description=provisioner.__doc__)
    return _run(parser, arguments, lambda conf, _: _provisioner(conf))


def db_manage(arguments: Sequence[str] | None = None) -> int:
    """Look after the database schema."""
    parser = argparse.ArgumentParser("climate-db-manage", description=db_manage.__doc__)
    parser.add_argument("command", choices=["upgrade", "downgrade", "current", "check"])
    parser.add_argument("revision", nargs="?", help="for upgrade (default: head) and downgrade")
    parser.add_argument("--database", metavar="URL", help="instead of [database] connection")
    return _run(parser, arguments, lambda conf, it: _db_manage(conf, it.command, it.revision))


def manage(arguments: Sequence[str] | None = None) -> int:
    """Look after a running service.

    audit compares leases with the cloud and names every difference; exit code 2 if any is left.
    limits shows, sets and unsets what projects and users may have: a line for each limit, with
    whose it is, its name, the number (-1: unlimited), what is used, and where it comes from.
    """
    parser = argparse.ArgumentParser("climate-manage", description=manage.__doc__)
    parser.add_argument("command", choices=["audit", "limits"])
    parser.add_argument("--repair", action="store_true", help="audit: repair what is safe")
    limit_commands.add_arguments(parser)
    return _run(parser, arguments, _manage)


def listen(arguments: Sequence[str] | None = None) -> int:
    """Print notifications as they are published, one JSON object a line.

    Follows the broker that --transport-url or the configuration names, else a service over HTTP.
    """
    parser = argparse.ArgumentParser("climate-listen", description=listen.__doc__)
    parser.add_argument("--transport-url", metavar="URL", help="follow this broker")
    parser.add_argument("--topic", action="append", help="topic(s) to follow on the broker")
    parser.add_argument(
        "--pool",
        metavar="NAME",
        help="share a queue of this name with others who give it; the broker keeps it and fills"
        " it while nobody listens (default: a queue of your own, so that everybody who runs"
        " this sees everything, from now until it ends)",
    )
    parser.add_argument("--url", help="follow this service over HTTP, whatever else is configured")
    parser.add_argument("--token", default="admin:admin:admin", help="X-Auth-Token over HTTP")
    parser.add_argument(
        "--after",
        metavar="SEQ",
        type=int,
        help="over HTTP, print what is later than this number (default: all that is kept)",
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whatever we wait for, it ends it
    try:
        return _run(parser, arguments, _listen)
    except KeyboardInterrupt:
        return 0


def _run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None, program: Program) -> int:
    """Run a program; what an operator must mend is one sentence, not a stack trace."""
    parser.add_argument("--config-file", action="append", default=[], help="(repeatable)")
    parser.add_argument("--debug", action="store_true", help="log more")
    given = parser.parse_args(arguments)
    try:
        return program(_configured(parser, given), given) or 0
    except _FOR_THE_OPERATOR as error:
        reason = str(error)
    except _NO_DATABASE as error:
        reason = f"cannot use the database: {error.orig}"
    sys.stderr.write(f"{parser.prog}: {' '.join(reason.split())}\n")
    return 1


def _configured(parser: argparse.ArgumentParser, given: argparse.Namespace) -> ConfigOpts:
    """Return the configuration, with the command line's say on top of the files'."""
    rest = [f"--config-file={path}" for path in given.config_file]
    rest += ["--debug"] if given.debug else []
    conf = config.new()
    config.load(conf, parser.prog, rest)
    for name, option, group in (
        ("host", "host", None),
        ("port", "port", None),
        ("database", "connection", "database"),
        ("transport_url", "transport_url", "notifications"),
        ("topic", "topics", "notifications"),
    ):
        value = getattr(given, name, None)
        if value is not None:
            try:
                conf.set_override(option, value, group=group)
            except ValueError as error:
                parser.error(f"argument --{name.replace('_', '-')} {value}: {error}")
    return conf


def _standalone(conf: ConfigOpts, *, empty: bool) -> None:
    serving.check_address(conf)
    simulation.keep_cloud(conf)
    with service.open_runtime(conf) as runtime:
        made = service.make_manager(conf, runtime)
        with serving.bound(conf, service.make_api(conf, runtime, made)) as server:
            is_new = schema.current(runtime.database) is None
            schema.upgrade(runtime.database)
            if is_new and not empty and conf["physical:host"].cloud == "simulated":
                simulation.register_first_hosts(conf, runtime)
            made.start()
            try:
                serving.serve(conf, server, _settled(), runtime.latest.close)
            finally:
                made.stop()


def _settled() -> threading.Event:
    """Have the process ready for a long life; return the event that ends it."""
    stopping = service.stop_on_signal()
    service.settle()
    return stopping


def _api(conf: ConfigOpts) -> None:
    serving.check_address(conf)
    with service.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        with serving.bound(conf, service.make_api(conf, runtime)) as server:
            serving.serve(conf, server, _settled(), runtime.latest.close)


def _manager(conf: ConfigOpts) -> None:
    with service.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        made = service.make_manager(conf, runtime)
        stopping = _settled()
        made.start()
        LOG.info("climate-manager is at work")
        stopping.wait()
        made.stop()


def _provisioner(conf: ConfigOpts) -> None:
    with service.open_provisioner(conf) as made:
        made.run(_settled(), conf.provisioner.poll_interval)


def _db_manage(conf: ConfigOpts, command: str, revision: str | None) -> None:
    database = service.make_database(conf)
    try:
        if command == "upgrade":
            schema.upgrade(database, revision or "head")
        elif command == "downgrade":
            if revision is None:
                raise Misconfigured("downgrade needs a revision: 'base' removes everything")
            schema.downgrade(database, revision)
        elif command == "check":
            schema.check(database)
        sys.stdout.write(f"{schema.current(database) or 'empty'}\n")
    finally:
        database.dispose()


def _manage(conf: ConfigOpts, given: argparse.Namespace) -> int:
    with service.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        if given.command == "audit":
            return _audit(runtime, with_repair=given.repair)
        try:
            return limit_commands.run(runtime, given)
        except InvalidInput as error:
            raise Misconfigured(error.message) from error


def _audit(runtime: Runtime, *, with_repair: bool) -> int:
    """Print a line for each difference: what is, and what was done about it."""
    left = 0
    for difference in auditing.audit(runtime):
        repaired = with_repair and _repaired(runtime, difference)
        left += not repaired
        print(f"{'repaired' if repaired else 'found'}: {difference.description}")
    return 2 if left else 0


def _repaired(runtime: Runtime, difference: Drift) -> bool:
    try:
        return auditing.repair(runtime, difference)
    except ClimateError as error:
        LOG.error("not repaired: %s", error.message)  # noqa: TRY400 - the sentence says it all
        return False


def _listen(conf: ConfigOpts, given: argparse.Namespace) -> None:
    broker = None if given.url else conf.notifications.transport_url
    if broker is not None:
        with listening.from_broker(conf, broker, conf.notifications.topics, _print, given.pool):
            threading.Event().wait()
            return
    url = given.url or serving.url(conf.host, conf.port)
    for notification in listening.from_http(url, given.token, given.after):
        known = {name: notification[name] for name in ("seq", "message_id")}
        _print(notification["event_type"], {**notification["payload"], **known})


def _print(event_type: str, payload: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps({"event_type": event_type, **payload}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # who reads has seen enough, as in `climate-listen | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os.kill(os.getpid(), signal.SIGTERM)
