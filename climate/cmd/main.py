"""The command lines of the programs.

Each function is the entry point of a program. It parses the arguments before it imports the rest
of climate, so ``--help`` and argument errors are fast.
"""

import argparse
import signal
from collections.abc import Sequence
from importlib.metadata import version

from climate.core.limits import NAMES

LIMIT_ACTIONS = ("show", "set", "unset")


def standalone(arguments: Sequence[str] | None = None) -> int:
    """Run the whole service in one process, on SQLite and a simulated cloud by default."""
    parser = argparse.ArgumentParser("climate-standalone", description=standalone.__doc__)
    parser.add_argument("--host", help="address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 1234)")
    parser.add_argument("--database", metavar="URL", help="SQLAlchemy URL of the database")
    parser.add_argument("--empty", action="store_true", help="register no hosts in a new database")
    return _run(parser, arguments)


def api(arguments: Sequence[str] | None = None) -> int:
    """Serve the API. Needs a climate-manager process, which runs the leases."""
    parser = argparse.ArgumentParser("climate-api", description=api.__doc__)
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on")
    return _run(parser, arguments)


def manager(arguments: Sequence[str] | None = None) -> int:
    """Run due events of leases, and publish notifications. Any number of managers may run."""
    parser = argparse.ArgumentParser("climate-manager", description=manager.__doc__)
    return _run(parser, arguments)


def provisioner(arguments: Sequence[str] | None = None) -> int:
    """Prepare hosts for their leases, and switch idle hosts off. Any number may run."""
    parser = argparse.ArgumentParser("climate-provisioner", description=provisioner.__doc__)
    return _run(parser, arguments)


def db_manage(arguments: Sequence[str] | None = None) -> int:
    """Upgrade, downgrade, show or check the database schema."""
    parser = argparse.ArgumentParser("climate-db-manage", description=db_manage.__doc__)
    parser.add_argument("command", choices=["upgrade", "downgrade", "current", "check"])
    parser.add_argument("revision", nargs="?", help="for upgrade (default: head) and downgrade")
    parser.add_argument("--database", metavar="URL", help="overrides [database] connection")
    return _run(parser, arguments)


def manage(arguments: Sequence[str] | None = None) -> int:
    """Audit leases, manage limits, and encrypt the secrets of webhooks.

    audit compares leases with the cloud and prints each difference; exit code 2 if one remains.
    limits shows, sets and unsets limits of projects and users. It prints a line for each limit:
    scope, owner, name, number (-1: unlimited), usage and source.
    encrypt-secrets encrypts all secrets of webhooks with the first of [notifications]
    webhook_secret_keys; exit code 2 if no key decrypts some of them.
    """
    parser = argparse.ArgumentParser("climate-manage", description=manage.__doc__)
    parser.add_argument("command", choices=["audit", "limits", "encrypt-secrets"])
    parser.add_argument("--repair", action="store_true", help="audit: repair safe differences")
    _add_limit_arguments(parser)
    return _run(parser, arguments)


def listen(arguments: Sequence[str] | None = None) -> int:
    """Print notifications as climate publishes them, one JSON object per line.

    Reads from the broker in --transport-url or the configuration. With --url, or if there is no
    broker, reads from a service over HTTP.
    """
    parser = argparse.ArgumentParser("climate-listen", description=listen.__doc__)
    parser.add_argument("--transport-url", metavar="URL", help="URL of the broker to read from")
    parser.add_argument("--topic", action="append", help="topic on the broker (repeatable)")
    parser.add_argument(
        "--pool",
        metavar="NAME",
        help="share the durable queue of this name with other listeners; it also stores messages"
        " while no listener is connected (default: a temporary queue for each listener)",
    )
    parser.add_argument("--url", help="read from this service over HTTP, even with a broker")
    parser.add_argument("--token", default="admin:admin:admin", help="X-Auth-Token for HTTP")
    parser.add_argument(
        "--after",
        metavar="SEQ",
        type=int,
        help="over HTTP, start after this sequence number (default: all stored notifications)",
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends any wait
    try:
        return _run(parser, arguments)
    except KeyboardInterrupt:
        return 0


def _add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=LIMIT_ACTIONS, help="limits: the action (default: show)"
    )
    parser.add_argument("--project", metavar="ID", help="limits: of this project")
    parser.add_argument("--user", metavar="ID", help="limits: of this user")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME[=NUMBER]",
        help=f"set: NAME=NUMBER, -1: unlimited; unset: NAME, default: all; names:"
        f" {', '.join(NAMES)} (repeatable)",
    )


def _run(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    parser.add_argument(
        "--config-file", action="append", default=[], help="configuration file (repeatable)"
    )
    parser.add_argument("--debug", action="store_true", help="log at level DEBUG")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('climate')}")
    parsed = parser.parse_args(arguments)

    from climate.cmd import programs  # noqa: PLC0415 - takes seconds, not for --help

    return programs.run(parser, parsed)
