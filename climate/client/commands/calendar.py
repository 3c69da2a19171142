"""``calendar``: a chart of what occupies resources, in the width of the terminal."""

import argparse
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TextIO

from cliff.formatters.base import ListFormatter
from stevedore import ExtensionManager
from stevedore.extension import Extension

from climate.client.commands.base import Lister, Rows, add_all_projects, add_time
from climate.client.commands.display import chart
from climate.client.commands.display.columns import Time, optional
from climate.client.commands.options import times
from climate.client.commands.resources import add_where
from climate.client.models import Calendar
from climate.client.reservations import HOST

_CHART = "chart"
_DAYS = timedelta(days=3)
_MAX_ROWS = 200


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


class ShowCalendar(Lister):
    """Show when resources are free, and what occupies them, as a chart."""

    notes = "The letters are your leases; heights show which part of a cell's time is taken."

    @property
    def formatter_default(self) -> str:
        """The formatter for people."""
        return _CHART

    def _load_formatter_plugins(self) -> ExtensionManager[ListFormatter]:
        known = super()._load_formatter_plugins()
        added: Extension[ListFormatter] = Extension(_CHART, None, ChartFormatter, ChartFormatter())  # type: ignore[arg-type]
        return ExtensionManager.make_test_instance([*known, added])

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("--type", metavar="TYPE", default=HOST, help=f"default: {HOST}")
        add_time(parser, "--start", "default: now")
        end = parser.add_mutually_exclusive_group()
        add_time(end, "--end", "default: 3 days after the start")
        end.add_argument("--duration", type=times.duration, metavar="DURATION", help="such as 2w")
        parser.add_argument("--name", metavar="PART", help="resources whose name has this part")
        add_where(parser)
        parser.add_argument("--group-by", metavar="PROPERTY", help="group by this property")
        parser.add_argument(
            "--limit",
            type=int,
            choices=range(1, _MAX_ROWS + 1),
            default=50,
            metavar="N",
            help=f"rows, up to {_MAX_ROWS} (default: 50)",
        )
        parser.add_argument("--offset", type=int, default=0, metavar="N", help="skip so many rows")
        add_all_projects(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the calendar for a chart, else a row for each interval."""
        start = self.time(parsed_args, "start")
        length = parsed_args.duration or _DAYS
        end = self.time(parsed_args, "end") or (start or times.now()) + length
        found = self.client.capacity.calendar(
            parsed_args.type,
            start=start or times.NOW,
            end=end,
            properties=parsed_args.where,
            limit=parsed_args.limit,
            offset=parsed_args.offset,
            whose="all" if parsed_args.all_projects else "project",
            **{
                name: value
                for name, value in (("q", parsed_args.name), ("group_by", parsed_args.group_by))
                if value
            },
        )
        last = found.offset + len(found.rows)
        if last < found.total:
            self.say(f"Rows {found.offset + 1} to {last} of {found.total}; see --where, --offset.")
        if parsed_args.formatter == _CHART:
            return ("calendar",), [(found,)]
        header = ("resource_id", "resource", "kind", "start", "end", "lease_id", "lease_name")
        return (*header, "tenths"), _rows(found, parsed_args)


def _rows(found: Calendar, parsed_args: argparse.Namespace) -> Iterator[Sequence[Any]]:
    zone = parsed_args.time_zone
    for row in found.rows:
        for each in chart.intervals(row):
            start, end = (found.start + timedelta(seconds=at) for at in (each.start, each.end))
            is_own = each.kind == chart.OWN and each.number is not None
            lease = found.leases[each.number or 0] if is_own else None
            yield (
                *(row.id, row.name, chart.KINDS[each.kind], Time(start, zone), Time(end, zone)),
                optional(lease and lease.id),
                optional(lease and lease.name),
                optional(each.number if each.kind == chart.SHARED else None),
            )


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
