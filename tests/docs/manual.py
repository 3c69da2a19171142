"""The manual page of the ``climate`` command, from the parsers of its commands.

As a program (``make man``), this module writes the page; a test compares it with the parsers.
"""

import argparse
import importlib
from pathlib import Path

from argparse_manpage.manpage import Manpage

from climate.client.commands.app import Climate

PAGE = Path(__file__).parents[2] / "docs" / "man" / "climate.1"
# Groups of options that cliff adds to each command.
_OF_CLIFF = "formatter"
_OUTPUT = (
    "Each command that shows something takes -f (--format) with table, json, yaml or value; lists"
    " take csv, too. -c (--column) selects a column, and can be repeated."
)
_STATUS = "0: done. 1: refused or failed; standard error says why. 2: wrong arguments."


def text() -> str:
    """Return the page in the format of man(7)."""
    program = Climate()
    parser = program.parser
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, entry in sorted(program.command_manager):
        full = f"climate {name}"
        command = entry.load()(program, None).get_parser(full)
        if name == "complete":  # its choices are those of the installed packages
            command = argparse.ArgumentParser(full, description=command.description)
        commands._name_parser_map[name] = _without_formatters(command)
    page = Manpage(parser, format="single-commands-section")
    page.description = "reserve hosts and other resources of a cloud or a lab for a time"
    page.manual, page.date = "User Commands", ""
    parser._manpage = [  # type: ignore[attr-defined]  # Manpage reads it
        {"heading": "output", "content": _OUTPUT},
        {"heading": "exit status", "content": _STATUS},
    ]
    return str(page)


def _without_formatters(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser._action_groups = [
        group for group in parser._action_groups if _OF_CLIFF not in (group.title or "").lower()
    ]
    return parser


def main() -> None:
    """Write the page."""
    PAGE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    importlib.invalidate_caches()
    main()
