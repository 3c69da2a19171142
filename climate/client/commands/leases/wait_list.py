"""``wait-list list``: the leases that wait for capacity."""

import argparse
from collections.abc import Sequence
from typing import Any

import msgspec

from climate.client.commands.base import Lister, Rows, add_all_projects, add_limit, first
from climate.client.commands.display.columns import Structured, Time, optional
from climate.client.commands.options import times
from climate.client.commands.options.times import Zone
from climate.client.resources import Need, WaitListEntry

_COLUMNS = (
    *("position", "lease_id", "lease_name", "needs", "duration", "priority", "promised_start"),
    *("until", "held_back"),
)


class ListWaiting(Lister):
    """List the leases that wait for capacity, in their order; only yours have a name."""

    objects = "waiting leases"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            "--type",
            metavar="TYPE",
            help="leases with this resource type, such as physical:host, or several with commas",
        )
        add_all_projects(parser)
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.capacity.wait_list(
            parsed_args.type, all_projects=parsed_args.all_projects
        )
        extra = ("project_id",) if parsed_args.all_projects else ()
        zone = parsed_args.time_zone
        rows = [_row(entry, zone, extra) for entry in first(found, parsed_args)]
        return (*_COLUMNS, *extra), rows


def _row(entry: WaitListEntry, zone: Zone, extra: Sequence[str]) -> Sequence[Any]:
    length = times.span(entry.duration)
    return (
        entry.position,
        optional(entry.lease_id),
        optional(entry.lease_name),
        Structured(msgspec.to_builtins(entry.needs), ", ".join(map(_need, entry.needs))),
        Structured(entry.duration, length),
        entry.priority,
        Time(entry.promised_start, zone),
        Time(entry.until, zone),
        optional(entry.held_back),
        *(optional(getattr(entry, name)) for name in extra),
    )


def _need(need: Need) -> str:
    low, high = need.minimum, need.maximum
    count = low if low == high else f"{low}-{high}"
    size = " ".join(f"{name}={amount}" for name, amount in need.amounts.items())
    return f"{count} {need.resource_type}{f' ({size})' if size else ''}"
