"""What all commands share: the client, the time zone, and texts for errors."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, ClassVar, TextIO, TypeVar

from cliff import command, lister, show

from climate.client import Client, ClientError
from climate.client.commands.display import columns, refusals
from climate.client.commands.options import times
from climate.client.commands.options.times import Parser, Zone

T = TypeVar("T")
#: The names of columns, and the rows of a list.
Rows = tuple[Sequence[str], Iterable[Sequence[Any]]]


class Failed(Exception):
    """A command failed; the text is for people."""


class ClimateCommand(command.Command):
    """The base class of the commands."""

    #: The options that help after a refusal, such as --take.
    after_refusal: ClassVar[tuple[str, ...]] = ()
    #: Text below the options in the help.
    notes = ""

    @property
    def client(self) -> Client:
        """The client. ``climate`` and ``openstack`` have a manager that makes it."""
        client: Client = self.app.client_manager.climate  # type: ignore[attr-defined]
        return client

    def get_epilog(self) -> str:
        """Return the text below the options; cliff would read the metadata of all packages."""
        return self.notes

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Return the parser, with the option for the time zone."""
        parser = super().get_parser(prog_name)
        self.add_arguments(parser)
        positional = [action.metavar for action in parser._get_positional_actions()]  # noqa: SLF001
        # The full usage takes a screen, above which users do not see what is wrong.
        parser.usage = " ".join([prog_name, "[OPTIONS]", *map(str, positional)])
        parser.add_argument(
            "--time-zone",
            metavar="ZONE",
            type=times.zone,
            help="zone of times without one, and of the output, such as Europe/Berlin; default:"
            f" the variable {times.ZONE_VARIABLE}, else the zone of this machine",
        )
        return parser

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run the command. Raises Failed with a text for people."""
        if parsed_args.time_zone is None:
            parsed_args.time_zone = _default_zone()
        try:
            return super().run(parsed_args)
        except ClientError as error:
            text = refusals.text_of(error, parsed_args.time_zone, self.after_refusal)
            raise Failed(text) from error

    @property
    def messages(self) -> TextIO | None:
        """The stream for messages: standard error; None if the user wants silence."""
        is_quiet = getattr(self.app.options, "verbose_level", 1) == 0
        return None if is_quiet else self.app.stderr

    def say(self, text: str) -> None:
        """Write a line to standard error, unless the user wants silence."""
        if self.messages is not None:
            self.messages.write(f"{text}\n")
            self.messages.flush()

    def time(self, parsed_args: argparse.Namespace, name: str) -> datetime | None:
        """Return the time in an argument; None if it is absent.

        Say how the time was understood, unless it has a zone. Raises Failed.
        """
        text: str | None = getattr(parsed_args, name)
        if text is None:
            return None
        zone: Zone = parsed_args.time_zone
        try:
            found = Parser(zone).parse(text)
        except ValueError as error:
            raise Failed(f"--{name.replace('_', '-')}: {error}") from None
        if not _is_exact(text):
            self.say(f"{name.replace('_', ' ')}: {times.show_fully(found, zone)}")
        return found

    def times(self, parsed_args: argparse.Namespace, *names: str) -> dict[str, Any]:
        """Return the times in several arguments by their names; see ``time``."""
        return {name: self.time(parsed_args, name) for name in names}


class Lister(ClimateCommand, lister.Lister):
    """The base class of commands that list objects."""

    #: What a table without rows has none of; empty if the command says that itself.
    objects: ClassVar[str] = "rows"

    def produce_output(
        self,
        parsed_args: argparse.Namespace,
        column_names: Sequence[str],
        data: Iterable[Sequence[Any]],
    ) -> int:
        """Write the rows with the formatter that the user has chosen; say if a table has none."""
        formatter = parsed_args.formatter
        rows = [[columns.for_formatter(value, formatter) for value in row] for row in data]
        if not rows and formatter == "table" and not parsed_args.print_empty:
            if self.objects:
                self.say(f"No {self.objects} found.")
            return 0
        return super().produce_output(parsed_args, column_names, rows)


class ShowOne(ClimateCommand, show.ShowOne):
    """The base class of commands that show one object."""

    def produce_output(
        self, parsed_args: argparse.Namespace, column_names: Sequence[str], data: Sequence[Any]
    ) -> int:
        """Write the fields with the formatter that the user has chosen."""
        values = [columns.for_formatter(value, parsed_args.formatter) for value in data]
        return super().produce_output(parsed_args, column_names, values)


def add_time(parser: Any, option: str, text: str, **more: Any) -> None:  # noqa: ANN401 - a parser or group
    """Add an option for a time."""
    parser.add_argument(option, metavar="TIME", help=text, **more)


def _default_zone() -> Zone:
    try:
        return times.default_zone()
    except argparse.ArgumentTypeError as error:
        raise Failed(f"{times.ZONE_VARIABLE}: {error}") from None


def _is_exact(text: str) -> bool:
    if text == times.NOW:
        return True
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits the number of rows."""
    parser.add_argument("--limit", type=count_of, metavar="N", help="at most so many rows")


def add_all_projects(parser: argparse.ArgumentParser) -> None:
    """Add the option for administrators that lists objects of all projects."""
    parser.add_argument(
        "--all-projects", action="store_true", help="of all projects (administrators)"
    )


def first(found: Iterable[T], parsed_args: argparse.Namespace) -> Iterator[T]:
    """Yield as many items as the option --limit allows; request no page after them."""
    return islice(found, parsed_args.limit)


def count_of(text: str) -> int:
    """Return the number in an argument. Raises ArgumentTypeError if it is not above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)
