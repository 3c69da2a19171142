"""What is free when, what occupies resources, what the caller may use, and how ready leases are."""

import argparse
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from cliff.formatters.base import ListFormatter
from stevedore import ExtensionManager
from stevedore.extension import Extension

from climate.client.commands.base import (
    Failed,
    Lister,
    Rows,
    ShowOne,
    add_all_projects,
    add_time,
)
from climate.client.commands.display import chart
from climate.client.commands.display.chart_formatter import ChartFormatter
from climate.client.commands.display.columns import Structured, Time, mapping, names, optional
from climate.client.commands.display.leases import Fields, of_one
from climate.client.commands.options import reservations, times
from climate.client.commands.resources import add_where
from climate.client.models import Calendar, LimitedParty
from climate.client.reservations import HOST

_WEEK, _FOUR_WEEKS = timedelta(days=7), timedelta(days=28)
_WINDOWS = 20
_CHART, _DAYS, _MAX_ROWS = "chart", timedelta(days=3), 200
# Limits in seconds.
_SPANS = {"duration", "horizon", "extension", "extension_window"}


class ShowAvailability(Lister):
    """Show how many units are free over time: hosts, or what a reservation option describes."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_time(parser, "--start", "default: now")
        add_time(parser, "--end", "default: in 7 days")
        parser.add_argument(
            "--every",
            type=times.duration,
            metavar="DURATION",
            help="show the least free units of each period of this length, 5m to 1d",
        )
        reservations.add_reservation_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        wanted = parsed_args.reservations or [{"resource_type": HOST, "params": {}}]
        if len(wanted) > 1:
            raise Failed("Give one reservation; `climate search` finds windows for several.")
        every = parsed_args.every
        steps = self.client.capacity.availability(
            wanted[0]["resource_type"],
            params=wanted[0]["params"],
            start=self.time(parsed_args, "start"),
            end=self.time(parsed_args, "end") or times.now() + _WEEK,
            resolution=None if every is None else int(every.total_seconds()),
        )
        zone = parsed_args.time_zone
        rows = [
            (Time(step.start, zone), Time(step.end, zone), step.free)
            for step in steps
            if step.start < step.end
        ]
        return ("start", "end", "free"), rows


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
        return (*header, "tenths"), _intervals(found, parsed_args)


def _intervals(found: Calendar, parsed_args: argparse.Namespace) -> Iterator[Sequence[Any]]:
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


class SearchWindows(Lister):
    """Find windows in which all reservations would be admitted now; nothing is held."""

    objects = ""  # take_action says more
    notes = "Without a window, the exit status is 0, and -f json writes []."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            "--duration", type=times.duration, metavar="DURATION", required=True, help="such as 2h"
        )
        add_time(parser, "--start-after", "earliest start; default: now")
        add_time(parser, "--end-by", "latest end; default: in 28 days")
        parser.add_argument(
            "--limit",
            type=int,
            default=5,
            choices=range(1, _WINDOWS + 1),
            metavar="N",
            help=f"at most so many windows, up to {_WINDOWS} (default: 5)",
        )
        reservations.add_reservation_options(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        wanted = parsed_args.reservations
        if not wanted:
            raise Failed("Say what to search: add --host 2, for example.")
        end_by = self.time(parsed_args, "end_by") or times.now() + _FOUR_WEEKS
        found = self.client.capacity.search(
            wanted,
            parsed_args.duration,
            start_after=self.time(parsed_args, "start_after") or times.NOW,
            end_by=end_by,
            limit=parsed_args.limit,
        )
        zone = parsed_args.time_zone
        if not found.windows:
            kind = "free window that your limits allow" if found.forbidden else "free window"
            latest = times.show(end_by, zone)
            self.say(f"There is no {kind} until {latest}. Request less, or a later time.")
        for each in found.forbidden:
            span = f"{times.show(each.start, zone)} to {times.show(each.end, zone)}"
            self.say(f"Your limits forbid {span}: {each.detail}")
        header = ("start", "end", "latest_start")
        rows = [[Time(getattr(each, name), zone) for name in header] for each in found.windows]
        return header, rows


class ListLimits(Lister):
    """List the limits of your project and of you, and what counts towards them."""

    objects = "limits"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("--project", metavar="ID", help="of this project (administrators)")
        parser.add_argument("--user", metavar="ID", help="of this user (administrators)")

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.capacity.limits(
            project_id=parsed_args.project, user_id=parsed_args.user
        )
        if not found.apply:
            self.say("These limits do not apply to you.")
        is_table = parsed_args.formatter == "table"
        rows = [row for party in found.parties for row in _limits(party, is_short=is_table)]
        return ("scope", "id", "name", "used", "limit"), rows


def _limits(party: LimitedParty, *, is_short: bool) -> Iterator[Sequence[Any]]:
    """Yield a row for each limit of a project or user.

    If ``is_short``, leave out unlimited resources whose use climate does not count.
    """
    for name, limit in party.limits.items():
        if is_short and limit is None and name not in party.used:
            continue
        is_span = name in _SPANS and limit is not None
        text = "unlimited" if limit is None else times.span(limit) if is_span else str(limit)
        used = party.used.get(name)
        shown = "" if used is None else f"{used:.1f}".removesuffix(".0")
        yield party.scope, party.id, name, Structured(used, shown), Structured(limit, text)


class ShowReadiness(ShowOne):
    """Show how many hosts of a lease are ready, and for which the lease waits."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("lease", metavar="LEASE", help="id or name of the lease")

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Return the fields."""
        lease = self.client.leases.find(parsed_args.lease)
        found = self.client.leases.readiness(lease.id)
        if found.state is None:
            self.say("Provisioners do not prepare hosts for this lease, or not yet.")
        early = Structured(found.early, _early(found.early))
        fields = {
            "state": optional(found.state),
            "ready": found.ready,
            "hosts": found.hosts,
            "ready_at": Time(found.ready_at, parsed_args.time_zone),
            "early": early,
            "waiting_for": names(found.waiting_for),
            "reasons": names(found.reasons),
        }
        return of_one(fields, parsed_args)


class SummarizeReadiness(Lister):
    """Show how many leases had all hosts ready at their start, by hardware (operators)."""

    objects = "leases"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_time(parser, "--since", "default: 28 days ago")
        add_time(parser, "--until", "default: now")
        parser.add_argument("--period", choices=["all", "month", "week", "day"], default="all")

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        now = times.now()
        found = self.client.capacity.readiness(
            since=self.time(parsed_args, "since") or now - _FOUR_WEEKS,
            until=self.time(parsed_args, "until") or now,
            period=parsed_args.period,
        )
        header = ("hardware", "since", "leases", "ready_leases", "short_notice", "ready_share")
        zone = parsed_args.time_zone
        rows = [
            (
                *(each.hardware, Time(each.since, zone), each.leases, each.ready_leases),
                *(each.short_notice, Structured(each.ready_share, f"{each.ready_share:.1%}")),
                Structured(each.mean_early, _early(each.mean_early)),
            )
            for each in found
        ]
        return (*header, "mean_early"), rows


class ShowMe(ShowOne):
    """Show who you are, what the service offers, and how times are understood."""

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Return the fields."""
        me = self.client.me()
        fields = {
            "user": Structured(me.user.to_dict(), f"{me.user.name} ({me.user.id})"),
            "project": Structured(me.project.to_dict(), f"{me.project.name} ({me.project.id})"),
            "roles": names(me.roles),
            "url": self.client.url,
            "authentication": me.authentication,
            "resource_types": names(me.resource_types),
            "features": mapping(me.features),
            "cleaning_time": Structured(me.cleaning_time, times.span(me.cleaning_time)),
            "now": Time(me.now, parsed_args.time_zone),
            "expires_at": Time(me.expires_at, parsed_args.time_zone),
        }
        return of_one(fields, parsed_args)


def _early(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{times.span(seconds)} {'early' if seconds >= 0 else 'late'}"
