"""The formatter that writes a calendar as a chart, in the width of the terminal."""

import argparse
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from cliff.formatters.base import ListFormatter

from climate.client.commands.display import chart


class ChartFormatter(ListFormatter):
    """Writes a calendar as a chart."""

    def add_argument_group(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the chart."""
        group = parser.add_argument_group("chart")
        group.add_argument("--ascii", action="store_true", help="use only ASCII characters")
        group.add_argument(
            "--color",
            choices=["auto", "always", "never"],
            default="auto",
            help="auto: only on a terminal, and not if NO_COLOR is set (default)",
        )
        group.add_argument(
            "--width", type=int, metavar="N", help="characters of a line; default: the terminal's"
        )

    def emit_list(
        self,
        column_names: Sequence[str],  # noqa: ARG002 - cliff's signature
        data: Iterable[Any],
        stdout: TextIO,
        parsed_args: argparse.Namespace,
    ) -> None:
        """Write the chart. The only row of ``data`` has the calendar."""
        for row in data:
            lines = chart.draw(row[0], parsed_args.time_zone, _style(stdout, parsed_args))
            stdout.writelines(f"{line}\n" for line in lines)


def _style(stdout: TextIO, parsed_args: argparse.Namespace) -> chart.Style:
    is_terminal = stdout.isatty()
    has_colours = (
        is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    colours = {"always": True, "never": False}.get(parsed_args.color, has_colours)
    encoding = (getattr(stdout, "encoding", None) or "ascii").lower()
    return chart.Style(
        width=parsed_args.width or shutil.get_terminal_size().columns,
        ascii=parsed_args.ascii or not encoding.startswith("utf"),
        colours=colours,
    )
