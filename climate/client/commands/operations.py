"""The commands for operators: use of the capacity, manager processes, and overdue events."""

import argparse
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from climate.client.commands.base import Lister, Rows, add_limit, add_time, first
from climate.client.commands.display.columns import Structured, Time, names, optional
from climate.client.commands.options import times
from climate.client.commands.options.times import Zone
from climate.client.operations import Lateness, Utilisation
from climate.client.reservations import HOST

_WEEK = timedelta(days=7)
_PERIODS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


class ShowUtilisation(Lister):
    """Show which part of the capacity leases occupy in each period (operators)."""

    objects = "resources"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_time(parser, "--start", "default: 7 days before the end")
        add_time(parser, "--end", "default: now")
        parser.add_argument("--period", choices=[*_PERIODS], default="day", help="default: day")
        parser.add_argument("--by", choices=["type", "project"], help="default: type")
        parser.add_argument("--property", metavar="NAME", help="by the values of this property")
        parser.add_argument("--type", metavar="TYPE", help="of this resource type")

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        by = "property" if parsed_args.property else parsed_args.by or "type"
        end = self.time(parsed_args, "end") or times.now()
        found = self.client.operations.utilisation(
            start=self.time(parsed_args, "start") or end - _WEEK,
            end=end,
            period=parsed_args.period,
            by=by,
            resource_type=parsed_args.type or (None if by == "type" else HOST),
            property=parsed_args.property,
        )
        return ("name", "capacity", "start", "occupied"), _shares(found, parsed_args.time_zone)


def _shares(found: Utilisation, zone: Zone) -> Iterator[Sequence[Any]]:
    """Yield a row for each group and period."""
    for series in found.series:
        for number, value in enumerate(series.values):
            start = Time(found.start + number * _PERIODS[found.period], zone)
            yield series.name, series.capacity, start, Structured(value, f"{value:.1%}")


class ListManagers(Lister):
    """List the managers of the last day, and say which work waits for them (operators)."""

    objects = "managers"

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.operations.managers()
        zone = parsed_args.time_zone
        for text in (*found.warnings, *_waiting(found.lateness, zone)):
            self.say(text)
        rows = [
            (
                *(each.id, each.alive, Time(each.started_at, zone), Time(each.beat_at, zone)),
                names(sorted(each.stalled)),
            )
            for each in found.managers
        ]
        return ("id", "alive", "started_at", "beat_at", "stalled"), rows


def _waiting(lateness: Lateness, zone: Zone) -> Iterator[str]:
    """Yield a sentence for each kind of work that waits for managers."""
    if lateness.due:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(lateness.due.items()))
        yield f"Due events that no manager has claimed: {counts}."
    if lateness.oldest_due_at:
        yield f"The oldest overdue event was due at {times.show(lateness.oldest_due_at, zone)}."
    if lateness.unpublished_since:
        since = times.show(lateness.unpublished_since, zone)
        yield f"Notifications that are not published: {lateness.unpublished}, since {since}."


class ListOverdueEvents(Lister):
    """List the events of leases that should have run by now, and why they wait (operators)."""

    objects = "overdue events"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.operations.overdue_events(limit=parsed_args.limit)
        zone = parsed_args.time_zone
        rows = [
            (
                *(optional(each.lease_name), optional(each.lease_id), each.type),
                Time(each.due_at, zone),
                Structured(each.late_seconds, times.span(each.late_seconds)),
                *(each.attempt, each.cause, each.reason),
            )
            for each in first(found, parsed_args)
        ]
        return (
            "lease_name",
            "lease_id",
            "type",
            "due_at",
            "late",
            "attempt",
            "cause",
            "reason",
        ), rows
