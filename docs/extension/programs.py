"""The reference of programs: their arguments, from their argparse parsers."""

import argparse
import inspect
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn

from docs.extension.markdown import code, section, table

_SHARED = ("--config-file", "--debug", "--version", "--help")
# Programs that other libraries parse the arguments of.
_STATUS = (
    "Check whether the installation is ready for this release, with `climate-status upgrade check`."
    " The exit code is 0 if all checks pass, 1 if there are warnings, and 2 if a program would not"
    " start or not work. It takes `--config-file` and the other options of oslo.config."
)
_CLIENT = "Reserve resources as a user, from any machine: [the climate command](client.md)."
_TEXTS = {"climate": _CLIENT, "climate-status": _STATUS}


class _Parser(Exception):
    """Carries the parser out of the program."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def markdown() -> str:
    """Return a section for each program that climate installs.

    Raises LookupError if there is a program of an unknown kind.
    """
    return "\n".join(_section(script) for script in scripts())


def scripts() -> list[EntryPoint]:
    """Return the entry points of all programs of climate, in the order of their names."""
    found = {
        script.name: script
        for script in entry_points(group="console_scripts")
        if script.value.startswith("climate.")
    }
    return [found[name] for name in sorted(found)]


def _section(script: EntryPoint) -> str:
    if script.name in _TEXTS:
        return section(2, code(script.name), _TEXTS[script.name])
    if script.module != "climate.cmd.main":
        raise LookupError(f"{script.name}: the reference of programs does not know its parser")
    return _of_parser(_parser_of(script.load()))


def _of_parser(parser: argparse.ArgumentParser) -> str:
    listed = parser._actions  # noqa: SLF001 - argparse has no public list of arguments
    actions = [action for action in listed if not set(_SHARED) & set(action.option_strings)]
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=90)
    usage = parser.format_usage().removeprefix("usage: ")
    rows = list(map(described, actions))
    return section(
        2,
        code(parser.prog),
        inspect.cleandoc(parser.description or ""),
        f"```text\n{usage}```",
        table(["Argument", "Meaning"], rows) if rows else "",
    )


def described(action: argparse.Action) -> list[str]:
    """Return a row about an argument: its name, and its help with the possible values."""
    return [code(_name(action)), _help(action)]


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
    value = "" if action.nargs == 0 else f" {metavar or action.dest.upper()}"
    return action.option_strings[-1] + value


def _help(action: argparse.Action) -> str:
    choices = ", ".join(code(choice) for choice in action.choices or ())
    text = (action.help or "").replace("%(prog)s", "the program")
    return ". ".join(part for part in (text, choices and f"One of {choices}") if part)


def _parser_of(program: Callable[[list[str]], object]) -> argparse.ArgumentParser:
    """Return the parser that ``program`` makes; the program ends before it does anything else."""
    with _interrupted_parsers():
        try:
            program([])
        except _Parser as made:
            return made.parser
    raise LookupError(f"{program} has no parser")


@contextmanager
def _interrupted_parsers() -> Iterator[None]:
    """Make all parsers raise _Parser where they would parse."""

    def interrupt(parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        raise _Parser(parser)

    parse_args, on_term = argparse.ArgumentParser.parse_args, signal.getsignal(signal.SIGTERM)
    argparse.ArgumentParser.parse_args = interrupt  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_args = parse_args  # type: ignore[method-assign]
        signal.signal(signal.SIGTERM, on_term)  # climate-listen changes it
