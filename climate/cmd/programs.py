"""Runs a program after ``main`` has parsed its command line.

Each program reads the configuration, creates its objects with ``bootstrap``, and does its work.
"""

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

from climate.api.server import http_server
from climate.cmd import bootstrap, demo_cloud
from climate.cmd import limits as cmd_limits
from climate.config import registry as config_registry
from climate.config.registry import Misconfigured
from climate.core.errors import ClimateError, InvalidInput
from climate.db.engine import schema
from climate.manager.audit import cloud as auditing
from climate.manager.notifications import subscriptions
from climate.manager.process.runtime import Runtime
from climate.notifications import listen as listening
from climate.notifications.emit import BrokenTransport
from climate.plugins.base import Drift
from climate.plugins.loader import BrokenPlugin

LOG = logging.getLogger(__name__)

Program = Callable[[ConfigOpts, argparse.Namespace], int | None]

# Errors whose cause the operator repairs: printed without a stack trace.
_OPERATOR_ERRORS = (
    BrokenPlugin,
    BrokenTransport,
    Misconfigured,
    cfg.Error,
    listening.Refused,
    schema.SchemaMismatch,
)
_DATABASE_ERRORS = (sa.exc.InterfaceError, sa.exc.OperationalError, sa.exc.ProgrammingError)


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Run the program ``parser.prog``, such as ``climate-api``; return its exit code.

    If the operator can repair the cause of an error, print the error as one line, without a stack
    trace.
    """
    try:
        return _PROGRAMS[parser.prog](_load_config(parser, arguments), arguments) or 0
    except _OPERATOR_ERRORS as error:
        reason = str(error)
    except _DATABASE_ERRORS as error:
        reason = f"cannot use the database: {error.orig}"
    sys.stderr.write(f"{parser.prog}: {' '.join(reason.split())}\n")
    return 1


def _load_config(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> ConfigOpts:
    """Return the configuration. The command line takes precedence over the files."""
    options = [f"--config-file={path}" for path in arguments.config_file]
    options += ["--debug"] if arguments.debug else []
    conf = config_registry.new()
    config_registry.load(conf, parser.prog, options)
    for name, option, group in (
        ("host", "host", None),
        ("port", "port", None),
        ("database", "connection", "database"),
        ("transport_url", "transport_url", "notifications"),
        ("topic", "topics", "notifications"),
    ):
        value = getattr(arguments, name, None)
        if value is not None:
            try:
                conf.set_override(option, value, group=group)
            except ValueError as error:
                parser.error(f"argument --{name.replace('_', '-')} {value}: {error}")
    return conf


def _standalone(conf: ConfigOpts, arguments: argparse.Namespace) -> None:
    http_server.check_address(conf)
    demo_cloud.configure_cloud(conf)
    with bootstrap.open_runtime(conf) as runtime:
        manager = bootstrap.make_manager(conf, runtime)
        with http_server.bound(conf, bootstrap.make_api(conf, runtime, manager)) as server:
            is_new = schema.current(runtime.database) is None
            schema.upgrade(runtime.database)
            if is_new and not arguments.empty and conf["physical:host"].cloud == "simulated":
                demo_cloud.register_first_hosts(conf, runtime)
            manager.start()
            try:
                http_server.serve(conf, server, _prepare_to_run(), runtime.latest.close)
            finally:
                manager.stop()


def _prepare_to_run() -> threading.Event:
    """Prepare this process for a long run; return a threading.Event that SIGTERM and SIGINT set."""
    stopping = bootstrap.stop_on_signal()
    bootstrap.settle()
    return stopping


def _api(conf: ConfigOpts, _: argparse.Namespace) -> None:
    http_server.check_address(conf)
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        with http_server.bound(conf, bootstrap.make_api(conf, runtime)) as server:
            http_server.serve(conf, server, _prepare_to_run(), runtime.latest.close)


def _manager(conf: ConfigOpts, _: argparse.Namespace) -> None:
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        manager = bootstrap.make_manager(conf, runtime)
        stopping = _prepare_to_run()
        manager.start()
        LOG.info("climate-manager is at work")
        stopping.wait()
        manager.stop()


def _provisioner(conf: ConfigOpts, _: argparse.Namespace) -> None:
    with bootstrap.open_provisioner(conf) as provisioner:
        provisioner.run(_prepare_to_run(), conf.provisioner.poll_interval)


def _db_manage(conf: ConfigOpts, arguments: argparse.Namespace) -> None:
    with bootstrap.open_database(conf) as database:
        if arguments.command == "upgrade":
            schema.upgrade(database, arguments.revision or "head")
        elif arguments.command == "downgrade":
            if arguments.revision is None:
                raise Misconfigured("downgrade needs a revision: 'base' removes everything")
            schema.downgrade(database, arguments.revision)
        elif arguments.command == "check":
            schema.check(database)
        sys.stdout.write(f"{schema.current(database) or 'empty'}\n")


def _manage(conf: ConfigOpts, arguments: argparse.Namespace) -> int:
    with bootstrap.open_runtime(conf) as runtime:
        schema.check(runtime.database)
        if arguments.command == "audit":
            return _audit(runtime, with_repair=arguments.repair)
        if arguments.command == "encrypt-secrets":
            return _encrypt_secrets(runtime)
        try:
            cmd_limits.run(runtime, arguments)
        except InvalidInput as error:
            raise Misconfigured(error.message) from error
    return 0


def _audit(runtime: Runtime, *, with_repair: bool) -> int:
    """Print the differences between the cloud and the leases; return the exit code.

    The exit code is 2 if differences remain. With ``with_repair``, repair the differences that are
    safe to repair.
    """
    remaining = 0
    for difference in auditing.audit(runtime):
        repaired = with_repair and _repair(runtime, difference)
        remaining += not repaired
        print(f"{'repaired' if repaired else 'found'}: {difference.description}")
    return 2 if remaining else 0


def _encrypt_secrets(runtime: Runtime) -> int:
    """Encrypt the stored secrets of webhooks; return the exit code.

    Print how many secrets are encrypted, and each subscription whose secret no key decrypts. The
    exit code is 2 if there is a secret that no key decrypts, else 0.
    """
    if not runtime.settings.webhooks.secret_keys:
        raise Misconfigured("encrypt-secrets needs [notifications] webhook_secret_keys")
    count, unreadable = subscriptions.encrypt_secrets(
        runtime.database, runtime.settings.webhooks.secret_keys
    )
    for id_ in unreadable:
        print(f"unreadable: subscription {id_}")
    print(f"encrypted: {count - len(unreadable)} of {count} secrets")
    return 2 if unreadable else 0


def _repair(runtime: Runtime, difference: Drift) -> bool:
    try:
        return auditing.repair(runtime, difference)
    except ClimateError as error:
        LOG.error("not repaired: %s", error.message)  # noqa: TRY400 - the message suffices
        return False


def _listen(conf: ConfigOpts, arguments: argparse.Namespace) -> None:
    broker = None if arguments.url else conf.notifications.transport_url
    if broker is not None:
        with listening.from_broker(conf, broker, conf.notifications.topics, _print, arguments.pool):
            threading.Event().wait()
            return
    url = arguments.url or http_server.url(conf.host, conf.port)
    for notification in listening.from_http(url, arguments.token, arguments.after):
        ids = {name: notification[name] for name in ("seq", "message_id")}
        _print(notification["event_type"], {**notification["payload"], **ids})


def _print(event_type: str, payload: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps({"event_type": event_type, **payload}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `climate-listen | head`
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
