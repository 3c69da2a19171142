"""The command lines of the programs.

Each function is the entry point of a program. It parses the arguments before it imports the rest
of climate, so ``--help`` and argument errors are fast.
"""

import argparse
import signal
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from climate.core.limits import NAMES

# What add_subparsers returns. argparse has no public name for it, which SLF001 would want.
_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001


class _Collect(argparse.Action):
    """Adds the values of a repeatable option to the list ``const``, in order.

    Unlike the action "append", it also works for an option that a parser and its subparsers have.
    """

    def __call__(
        self, _parser: object, _namespace: object, value: object, _name: object = None
    ) -> None:
        files: list[object] = self.const
        files.append(value)


def standalone(arguments: Sequence[str] | None = None) -> int:
    """Run the whole service in one process, on SQLite and a simulated cloud by default."""
    parser = argparse.ArgumentParser("climate-standalone", description=standalone.__doc__)
    parser.add_argument("--host", help="address to listen on (default: loopback)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 1234)")
    parser.add_argument("--database", metavar="URL", help="SQLAlchemy URL of the database")
    parser.add_argument("--empty", action="store_true", help="register no hosts in a new database")
    return _run(parser, arguments, "climate.cmd.programs:standalone")


def api(arguments: Sequence[str] | None = None) -> int:
    """Serve the API. Needs a climate-manager process, which runs the leases."""
    parser = argparse.ArgumentParser("climate-api", description=api.__doc__)
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", type=int, help="port to listen on")
    return _run(parser, arguments, "climate.cmd.programs:api")


def manager(arguments: Sequence[str] | None = None) -> int:
    """Run due events of leases, and publish notifications. Any number of managers may run."""
    parser = argparse.ArgumentParser("climate-manager", description=manager.__doc__)
    return _run(parser, arguments, "climate.cmd.programs:manager")


def provisioner(arguments: Sequence[str] | None = None) -> int:
    """Prepare hosts for their leases, and switch idle hosts off. Any number may run."""
    parser = argparse.ArgumentParser("climate-provisioner", description=provisioner.__doc__)
    return _run(parser, arguments, "climate.cmd.provisioner:run")


def db_manage(arguments: Sequence[str] | None = None) -> int:
    """Upgrade, downgrade, show or check the database schema."""
    parser = argparse.ArgumentParser("climate-db-manage", description=db_manage.__doc__)
    parser.add_argument("command", choices=["upgrade", "downgrade", "current", "check"])
    parser.add_argument("revision", nargs="?", help="for upgrade (default: head) and downgrade")
    parser.add_argument("--database", metavar="URL", help="overrides [database] connection")
    return _run(parser, arguments, "climate.cmd.database:manage")


def manage(arguments: Sequence[str] | None = None) -> int:
    """Audit leases, manage limits, and encrypt the secrets of webhooks."""
    parser = argparse.ArgumentParser("climate-manage", description=manage.__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    audit = _command(
        commands,
        "audit",
        "compare leases with the cloud",
        "Compare leases with the cloud, and print each difference. Exit code 2 if one remains.",
        "climate.cmd.manage.audit:run",
    )
    audit.add_argument(
        "--repair",
        action="store_true",
        help="repair differences where that is safe, or let a manager do it (scheduled)",
    )
    encryption = _command(
        commands,
        "encrypt-secrets",
        "encrypt the secrets of webhooks",
        "Encrypt all secrets of webhooks with the first of [notifications] webhook_secret_keys."
        " Exit code 2 if no key decrypts some of them.",
        "climate.cmd.manage.secret_encryption:run",
    )
    return _run(parser, arguments, None, audit, encryption, *_limit_commands(commands))


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
        return _run(parser, arguments, "climate.cmd.listen:run")
    except KeyboardInterrupt:
        return 0


def simulate(arguments: Sequence[str] | None = None) -> int:
    """Run the service on a virtual clock with the jobs of a trace, and print how long they waited.

    No cloud, no network: hosts are simulated, and the database is a temporary file. Exit code 2 if
    the input is bad, 3 if the audit finds a violation.
    """
    parser = argparse.ArgumentParser("climate-simulate", description=simulate.__doc__)
    add = parser.add_argument
    add(
        "--trace",
        metavar="FILE",
        required=True,
        help="jobs, as .swf, .lwf or .jsonl; or lublin:N for N jobs of the Lublin-Feitelson model",
    )
    add("--reservations", metavar="FILE", help="jobs with a fixed start, in the same formats")
    add("--hosts", type=_positive, required=True, help="number of hosts")
    add("--processors", type=_positive, default=1, help="processors of a host, for .swf")
    add("--policy", metavar="FILE", help="configuration file, for example with [wait_list]")
    add("--seed", type=int, default=1, help="of all that is left to chance")
    add("--without-waiting", action="store_true", help="jobs take the first gap, and never move")
    add("--out", metavar="DIR", type=Path, required=True, help="for report.json and leases.csv")
    add("--version", action="version", version=f"%(prog)s {version('climate')}")
    given = parser.parse_args(arguments)

    from climate.cmd.simulator import program  # noqa: PLC0415 - takes a second, not for --help

    return program.run(given)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _command(
    commands: _Commands, name: str, help_: str, description: str, program: str | None = None
) -> argparse.ArgumentParser:
    """Add a command to a parser; return the parser of its own arguments."""
    parser = commands.add_parser(name, help=help_, description=description)
    if program:
        parser.set_defaults(program=program)
    return parser


def _limit_commands(commands: _Commands) -> Iterator[argparse.ArgumentParser]:
    """Add the command ``limits``; yield its parser, and those of its actions.

    Without an action, it shows limits. So its own arguments are those of ``show``.
    """
    description = (
        "Show, set and unset limits of projects and users. -1 means unlimited. Without an action,"
        f" show. Names of limits: {', '.join(NAMES)}."
    )
    limits = _command(
        commands,
        "limits",
        "show, set and unset limits of projects and users",
        description,
        "climate.cmd.manage.limits:run",
    )
    _add_parties(limits, default=None)
    yield limits
    actions = limits.add_subparsers(dest="action", metavar="ACTION")
    shown = "what applies, and how much of it is used: of all who have limits of their own, or of"
    show = _command(actions, "show", "show limits", f"Show {shown} one project or user.")
    set_ = _command(actions, "set", "set limits", "Set limits of a project or a user.")
    set_.add_argument(
        "--limit",
        action="append",
        required=True,
        metavar="NAME=NUMBER",
        help="the limit and its maximum, -1: unlimited (repeatable)",
    )
    unset = _command(actions, "unset", "use the defaults", "Use the configured defaults again.")
    unset.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME",
        help="the limit (repeatable; default: all)",
    )
    for action in (show, set_, unset):
        _add_parties(action, default=argparse.SUPPRESS)
        yield action


def _add_parties(parser: argparse.ArgumentParser, default: str | None) -> None:
    parser.add_argument("--project", metavar="ID", default=default, help="the id of a project")
    parser.add_argument("--user", metavar="ID", default=default, help="the id of a user")
    parser.add_argument(
        "--json", action="store_true", default=default or False, help="print JSON, not a table"
    )


def _run(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    program: str | None,
    *commands: argparse.ArgumentParser,
) -> int:
    """Parse the arguments, and run the program; return its exit code.

    ``program`` names the function of the program, such as ``climate.cmd.listen:run``. It is None if
    the parsers of the ``commands`` name it. The common options may precede or follow a command.
    """
    files: list[str] = []
    for each in (parser, *commands):
        is_main = each is parser
        each.add_argument(
            "--config-file",
            action=_Collect,
            const=files,
            default=argparse.SUPPRESS,
            metavar="FILE",
            help="configuration file (repeatable)",
        )
        each.add_argument(
            "--debug",
            action="store_true",
            default=False if is_main else argparse.SUPPRESS,
            help="log at level DEBUG",
        )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('climate')}")
    parsed = parser.parse_args(arguments)
    parsed.config_file = files

    from climate.cmd import launch  # noqa: PLC0415 - takes a second, not for --help

    return launch.run(parser, parsed, program or parsed.program)
