"""The reference of the command ``climate``: its options, and the arguments of its commands."""

import argparse
import inspect
from importlib.metadata import EntryPoint, entry_points

from climate.client.commands import app
from docs.extension.markdown import code, section, table
from docs.extension.programs import described

# Groups of options that cliff adds to each command.
_OF_CLIFF = "formatter"


def markdown() -> str:
    """Return a section for the options before the command, and one for each command."""
    program = app.Climate()
    options = section(2, "Options before the command", _arguments(program.parser))
    return "\n".join([options, *map(_command, commands())])


def commands() -> list[EntryPoint]:
    """Return the entry points of all commands, in the order of their names."""
    found = {entry.name: entry for entry in entry_points(group=app.GROUP)}
    return [found[name] for name in sorted(found)]


def _command(entry: EntryPoint) -> str:
    name = f"climate {entry.name.removeprefix('climate_').replace('_', ' ')}"
    command = entry.load()
    parser = command(None, None).get_parser(name)
    return section(
        2,
        code(name),
        inspect.getdoc(command) or "",
        command.notes,
        _arguments(parser),
    )


def _arguments(parser: argparse.ArgumentParser) -> str:
    """Return a table of the arguments of a parser, without those that cliff adds."""
    groups = parser._action_groups  # noqa: SLF001 - argparse has no public list of groups
    actions = [
        action
        for group in groups
        if _OF_CLIFF not in (group.title or "").lower()
        for action in group._group_actions  # noqa: SLF001 - as above
        if "--help" not in action.option_strings
    ]
    return table(["Argument", "Meaning"], map(described, actions))
