"""What the programs do once their arguments are parsed: configure climate, assemble it, run it."""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg
from oslo_config.cfg import ConfigOpts

from climate import bootstrap
from climate.api import http_server
from climate.cmd import demo_cloud
from climate.cmd import limits as cmd_limits
from climate.config import registry as config_registry
from climate.config.registry import Misconfigured
from climate.core.errors import ClimateError, InvalidInput
from climate.db.engine import schema
from climate.manager.audit import cloud as auditing
from climate.manager.process.runtime import Runtime
from climate.notifications import listen as listening
from climate.notifications.emit import BrokenTransport
from climate.plugins.base import Drift
from climate.plugins.loader import BrokenPlugin

LOG = logging.getLogger(__name__)

Program = Callable[[ConfigOpts, argparse.Namespace], int | None]

# The operator repairs the cause of these errors and needs no stack trace.
_OPERATOR_ERRORS = (
    BrokenPlugin,
    BrokenTransport,
    Misconfigured,
    cfg.Error,
    listening.Refused,
    schema.SchemaMismatch,
)
_DATABASE_ERRORS = (sa.exc.InterfaceError, sa.exc.OperationalError, sa.exc.ProgrammingError)


def run(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    """Run the program that ``parser`` is named after; print an operator's error as one line."""
    try:
        return _PROGRAMS[parser.prog](_configured(parser, given), given) or 0
    except _OPERATOR_ERRORS as error:
        reason = str(error)
    except _DATABASE_ERRORS as error:
        reason = f"cannot use the database: {error.orig}"
    sys.stderr.write(f"{parser.prog}: {' '.join(reason.split())}\n")
    return 1


def _configured(parser: argparse.ArgumentParser, given: argparse.Namespace) -> ConfigOpts:
    """Return the configuration; the command line overrides the files."""
    rest = [f"--config-file={path}" for path in given.config_file]
    rest += ["--debug"] if given.debug else []
    conf = config_registry.new()
    config_registry.load(conf, parser.prog, rest)
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


def _standalone(conf: ConfigOpts, given: argparse.Namespace) -> None:
    http_server.check_address(conf)
    demo_cloud.keep_cloud(conf)
    with bootstrap.open_runtime(conf) as runtime:
        made = bootstrap.make_manager(conf, runtime)
        with http_server.bound(conf, bootstrap.make_api(conf, runtime, made)) as server:
            is_new = schema.current(runtime.database) is None
            schema.upgrade(runtime.database)
            if is_new and not given.empty and conf["physical:host"].cloud == "simulated":
                demo_cloud.register_first_hosts(conf, runtime)
            made.start()
            try:
                http_server.serve(conf, server, _settled(), runtime.latest.close)
            finally:
                made.stop()


def _settled() -> threading.Event:
    """Have the process ready for a long life; return the event that ends it."""
    stopping = bootstrap.stop_on_signal()
    bootstrap.settle()
    return stopping


def _api(conf: ConfigOpts, _: argparse.Namespace) -> None:
    http_server.check_address(conf)
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        with http_server.bound(conf, bootstrap.make_api(conf, runtime)) as server:
            http_server.serve(conf, server, _settled(), runtime.latest.close)


def _manager(conf: ConfigOpts, _: argparse.Namespace) -> None:
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        made = bootstrap.make_manager(conf, runtime)
        stopping = _settled()
        made.start()
        LOG.info("climate-manager is at work")
        stopping.wait()
        made.stop()


def _provisioner(conf: ConfigOpts, _: argparse.Namespace) -> None:
    with bootstrap.open_provisioner(conf) as made:
        made.run(_settled(), conf.provisioner.poll_interval)


def _db_manage(conf: ConfigOpts, given: argparse.Namespace) -> None:
    database = bootstrap.make_database(conf)
    try:
        if given.command == "upgrade":
            schema.upgrade(database, given.revision or "head")
        elif given.command == "downgrade":
            if given.revision is None:
                raise Misconfigured("downgrade needs a revision: 'base' removes everything")
            schema.downgrade(database, given.revision)
        elif given.command == "check":
            schema.check(database)
        sys.stdout.write(f"{schema.current(database) or 'empty'}\n")
    finally:
        database.dispose()


def _manage(conf: ConfigOpts, given: argparse.Namespace) -> int:
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        if given.command == "audit":
            return _audit(runtime, with_repair=given.repair)
        try:
            return cmd_limits.run(runtime, given)
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
    url = given.url or http_server.url(conf.host, conf.port)
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


_PROGRAMS: dict[str, Program] = {
    "climate-standalone": _standalone,
    "climate-api": _api,
    "climate-manager": _manager,
    "climate-provisioner": _provisioner,
    "climate-db-manage": _db_manage,
    "climate-manage": _manage,
    "climate-listen": _listen,
}
