"""The program ``climate``."""

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from inspect import getdoc
from itertools import takewhile
from typing import Any

from cliff.app import App
from cliff.commandmanager import CommandManager

from climate.client.commands.options.connection import ClientManager, add_connection_options

#: The commands are those of the plug-in for the ``openstack`` command, without their first word.
GROUP = "openstack.climate.v2"
_PREFIX = "climate "
_NAME = "climate"
_HELP = "help"
_USAGE_ERROR = 2
# Loggers of libraries, whose warnings tell users nothing that the error does not say.
_LIBRARIES = ("keystoneauth", "openstack", "stevedore", "urllib3")


class Commands(CommandManager):
    """The commands of ``climate``."""

    def load_commands(self, namespace: str) -> None:
        """Load the commands of the plug-in."""
        super().load_commands(namespace)
        self.commands = {
            name.removeprefix(_PREFIX): entry_point for name, entry_point in self.commands.items()
        }


class Climate(App):
    """The program ``climate``."""

    NAME = _NAME
    LOG = logging.getLogger(_NAME)

    def __init__(self) -> None:
        super().__init__(
            description="Reserve hosts and other resources of a cloud or a lab for a time.",
            version=version(_NAME),
            command_manager=Commands(GROUP),
            deferred_help=True,
        )

    def build_option_parser(
        self,
        description: str | None,
        version: str | None,
        argparse_kwargs: dict[str, Any] | None = None,
    ) -> argparse.ArgumentParser:
        """Return the parser of the options before the command."""
        parser = argparse.ArgumentParser(
            _NAME,
            usage=f"{_NAME} [OPTIONS] COMMAND [ARGUMENTS]",
            description=description,
            add_help=False,
            **(argparse_kwargs or {}),
        )
        parser.add_argument("--version", action="version", version=f"{_NAME} {version}")
        parser.add_argument(
            *("-h", "--help"), action="store_true", dest="deferred_help", help="show this"
        )
        parser.add_argument(
            *("-v", "--verbose"),
            action="count",
            dest="verbose_level",
            default=self.DEFAULT_VERBOSE_LEVEL,
            help="log requests, too",
        )
        parser.add_argument(
            *("-q", "--quiet"),
            action="store_const",
            dest="verbose_level",
            const=0,
            help="write nothing but the output and errors",
        )
        parser.add_argument("--log-file", metavar="FILE", help="write the log to this file, too")
        parser.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        add_connection_options(parser)
        return parser

    def configure_logging(self) -> None:
        """Log errors to standard error; with -v warnings of libraries and requests, too."""
        root = logging.getLogger()
        root.setLevel(logging.DEBUG)
        level = {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO}.get(
            self.options.verbose_level, logging.DEBUG
        )
        console = logging.StreamHandler(self.stderr)
        console.setLevel(level)
        console.setFormatter(logging.Formatter(self.CONSOLE_MESSAGE_FORMAT))
        root.addHandler(console)
        if self.options.log_file:
            file = logging.FileHandler(self.options.log_file)
            file.setFormatter(logging.Formatter(self.LOG_FILE_MESSAGE_FORMAT))
            root.addHandler(file)
        elif level == logging.WARNING:
            for name in _LIBRARIES:
                logging.getLogger(name).setLevel(logging.ERROR)

    def initialize_app(self, argv: list[str]) -> None:
        """Prepare the client. Without a command, show the help."""
        self.print_help_if_requested()
        if not argv:
            self.write_help(self.stderr)
            raise SystemExit(_USAGE_ERROR)
        self.client_manager = ClientManager(self.options)

    def print_help_if_requested(self) -> None:
        """Show the help of the program. cliff turns ``COMMAND --help`` into ``help COMMAND``."""
        if self.options.deferred_help:
            self.write_help(self.stdout)
            raise SystemExit(0)

    def run_subcommand(self, argv: list[str]) -> int:
        """Run a command; its help ignores all arguments from the first option on."""
        if argv[0] == _HELP:
            argv = list(takewhile(lambda word: not word.startswith("-"), argv))
        return super().run_subcommand(argv)

    def write_help(self, stream: Any) -> None:  # noqa: ANN401 - a stream or a pager
        """Write the options, and one line for each command."""
        self.parser.print_help(stream)
        stream.write("\ncommands:\n")
        for name, entry_point in sorted(self.command_manager):
            text = (getdoc(entry_point.load()) or "").partition("\n")[0].rstrip(".")
            stream.write(f"  {name:<30}{text[:1].upper()}{text[1:]}\n")
        stream.write("\n`climate help COMMAND` shows the options of a command.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program ``climate``; return its exit status."""
    return Climate().run(list(sys.argv[1:] if arguments is None else arguments))
