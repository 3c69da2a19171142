"""The other commands of leases: list, show, change, extend, end, delete, wait, history."""

import argparse
from collections.abc import Sequence
from time import monotonic
from typing import Any, ClassVar, cast

from climate.client.commands.base import (
    ClimateCommand,
    Failed,
    Lister,
    Rows,
    ShowOne,
    add_all_projects,
    add_limit,
    add_time,
    first,
)
from climate.client.commands.display import columns, leases
from climate.client.commands.display.columns import Structured, Time, names
from climate.client.commands.display.leases import Fields
from climate.client.commands.display.progress import ProgressLine
from climate.client.commands.leases.create import (
    add_place,
    add_take,
    add_wait_timeout,
    place_of,
    take,
    wait_limit,
    wait_until_active,
)
from climate.client.commands.options import reservations, times
from climate.client.errors import NotEnoughResources
from climate.client.leases import LeaseChanges
from climate.client.models import Lease, PastLease

_STATUSES = [
    *("WAITING", "PENDING", "STARTING", "ACTIVE", "TERMINATING", "TERMINATED", "DELETING", "ERROR")
]

# By the key in the request: the option that names hosts, and what it does.
_HOST_OPTIONS = {
    "give_back": ("--give-back", "give back hosts without servers"),
    "add_hosts": ("--add-host", "add these hosts to the reservation"),
}


def add_lease(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a lease."""
    parser.add_argument("lease", metavar="LEASE", help="id or name of the lease")


class ListLeases(Lister):
    """List the leases of the project."""

    objects = "leases"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("--name", help="leases of this name")
        parser.add_argument(
            "--status",
            action="append",
            type=str.upper,
            choices=_STATUSES,
            help="leases in this status (repeatable)",
        )
        parser.add_argument("--type", metavar="TYPE", help="leases with reservations of this type")
        for name in ("starts_before", "starts_after", "ends_before", "ends_after"):
            add_time(parser, f"--{name.replace('_', '-')}", "exclusive")
        parser.add_argument(
            "--sort", default="-start", help="start, end, created or name; -start: the last first"
        )
        add_all_projects(parser)
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.leases.list(
            **self.times(parsed_args, "starts_before", "starts_after", "ends_before", "ends_after"),
            name=parsed_args.name,
            status=parsed_args.status,
            resource_type=parsed_args.type,
            sort=parsed_args.sort,
            all_projects=parsed_args.all_projects,
        )
        extra = ("project_id", "user_id") if parsed_args.all_projects else ()
        shown = list(first(found, parsed_args))
        if parsed_args.formatter != "table" or any(lease.waiting for lease in shown):
            extra = ("waiting", *extra)
        columns_ = ("id", "name", "status", "start", "end", "reservations", *extra)
        return columns_, [_row(lease, parsed_args, extra) for lease in shown]


def _row(lease: Lease, parsed_args: argparse.Namespace, extra: Sequence[str]) -> Sequence[Any]:
    zone = parsed_args.time_zone
    start, end = (leases.planned(lease, moment, zone) for moment in (lease.start, lease.end))
    reserved = names([columns.amount(each) for each in lease.reservations])
    place = leases.position(lease)
    more = [place if name == "waiting" else getattr(lease, name) for name in extra]
    return (lease.id, lease.name, lease.status, start, end, reserved, *more)


class ShowLease(ShowOne):
    """Show a lease, with the resources that it has or will have."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_lease(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Return the fields of the lease."""
        return leases.shown(self.client, self.client.leases.find(parsed_args.lease), parsed_args)


class _Change(ShowOne):
    """A command that changes a lease."""

    after_refusal: ClassVar[tuple[str, ...]] = ("--take",)

    def change(
        self, lease: Lease, changes: LeaseChanges, parsed_args: argparse.Namespace, etag: str = ""
    ) -> Fields:
        """Change the lease, or only check the change; return the fields."""
        if parsed_args.dry_run:
            found = self.client.leases.check_update(lease.id, **changes)
            return leases.dry_run(found, parsed_args)
        try:
            changed = self.client.leases.update(lease.id, if_match=etag, **changes)
        except NotEnoughResources as refusal:
            changed = take(self, refusal, parsed_args)
        return leases.shown(self.client, changed, parsed_args)


class UpdateLease(_Change):
    """Change a lease: its name, its times, its reservations, or how it waits for capacity."""

    notes = (
        "--host and the other options of reservations add reservations. All changes are made"
        " together, or none."
    )
    # What the service accepts in place of a time.
    _WORDS: ClassVar[dict[str, set[str]]] = {"start": {times.NOW, times.ASAP}, "end": {times.NOW}}

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_lease(parser)
        parser.add_argument("--name", help="new name")
        add_time(parser, "--start", "new start; now: at once; asap: as soon as there is enough")
        add_time(parser, "--end-by", "with --start asap: latest end of the lease")
        end = parser.add_mutually_exclusive_group()
        add_time(end, "--end", "new end; now: end at once")
        end.add_argument(
            "--duration", type=times.duration, metavar="DURATION", help="new length of the lease"
        )
        add_time(parser, "--before-end", "when to send the reminder of the end")
        parser.add_argument(
            "--start-when",
            choices=["scheduled", "ready"],
            help="scheduled: do not wait for hosts that are not ready",
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="[RESERVATION:]KEY=VALUE[,...]",
            help="change parameters of a reservation; without id if the lease has only one"
            " (repeatable)",
        )
        _add_host_options(parser)
        parser.add_argument(
            "--remove", action="append", metavar="RESERVATION", help="remove one (repeatable)"
        )
        reservations.add_reservation_options(parser)
        add_place(parser)
        parser.add_argument("--dry-run", action="store_true", help="only check; change nothing")
        add_take(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Change the lease, and return its fields."""
        lease = self.client.leases.find(parsed_args.lease)
        changes: dict[str, Any] = {
            "name": parsed_args.name,
            **{name: self._time_or_word(parsed_args, name) for name in ("start", "end")},
            "end_by": self.time(parsed_args, "end_by"),
            "before_end": self.time(parsed_args, "before_end"),
            "duration": parsed_args.duration,
            "start_when": parsed_args.start_when,
            "reservations": _changes(parsed_args, lease) or None,
            "add_reservations": parsed_args.reservations or None,
            "remove_reservations": parsed_args.remove,
            "wait": place_of(self, parsed_args) or None,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        if not given:
            raise Failed("Nothing to change: give at least one option, such as --name or --end.")
        if "wait" in given and (len(given) > 1 or parsed_args.dry_run):
            raise Failed("--queue-until and --priority go with no other change, and no --dry-run.")
        return self.change(lease, cast("LeaseChanges", given), parsed_args)

    def _time_or_word(self, parsed_args: argparse.Namespace, name: str) -> Any:  # noqa: ANN401
        word = getattr(parsed_args, name)
        return word if word in self._WORDS[name] else self.time(parsed_args, name)


class ExtendLease(_Change):
    """Move the end of a lease to a later time."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_lease(parser)
        end = parser.add_mutually_exclusive_group(required=True)
        end.add_argument(
            "--by", type=times.duration, metavar="DURATION", help="how much longer, such as 2h"
        )
        add_time(end, "--until", "new end")
        parser.add_argument("--dry-run", action="store_true", help="only check; change nothing")
        add_take(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Change the end, and return the fields of the lease."""
        lease = self.client.leases.find(parsed_args.lease)
        until = self.time(parsed_args, "until")
        if until is not None:
            if until <= lease.end:
                end = times.show(lease.end, parsed_args.time_zone)
                raise Failed(f"The lease ends at {end} already; to shorten it: lease update --end")
            return self.change(lease, {"end": until}, parsed_args)
        # The ETag prevents that two commands at the same time extend the lease twice.
        return self.change(lease, {"end": lease.end + parsed_args.by}, parsed_args, lease.etag)


class EndLease(ShowOne):
    """End a running lease now, and keep its record."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_lease(parser)
        parser.add_argument("--wait", action="store_true", help="wait until the lease has ended")
        add_wait_timeout(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """End the lease, and return its fields."""
        lease = self.client.leases.find(parsed_args.lease)
        lease = self.client.leases.end(lease.id)
        if parsed_args.wait:
            lease = _wait_until_over(self, lease, parsed_args, wait_limit(parsed_args)) or lease
        return leases.shown(self.client, lease, parsed_args)


class DeleteLease(ClimateCommand):
    """Delete leases; running leases are ended first."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("leases", metavar="LEASE", nargs="+", help="id or name of a lease")
        parser.add_argument("--wait", action="store_true", help="wait until the leases are gone")
        add_wait_timeout(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the leases; first find all of them, so that a wrong name deletes nothing."""
        found = [self.client.leases.find(name) for name in parsed_args.leases]
        for lease in found:
            is_gone = self.client.leases.delete(lease.id)
            if not is_gone and parsed_args.wait:
                limit = wait_limit(parsed_args)
                is_gone = _wait_until_over(self, lease, parsed_args, limit) is None
            state = "is deleted" if is_gone else "is being ended, and then deleted"
            self.say(f"Lease {lease.name} ({lease.id}) {state}.")


class WaitForLease(ShowOne):
    """Wait until a lease is active, or has ended; show what it waits for."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_lease(parser)
        parser.add_argument(
            "--for",
            dest="goal",
            choices=["active", "ended"],
            default="active",
            help="what to wait for (default: active)",
        )
        add_wait_timeout(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Wait, and return the fields of the lease."""
        began, limit = monotonic(), wait_limit(parsed_args)
        lease = self.client.leases.find(parsed_args.lease, timeout=limit)
        limit = None if limit is None else max(0.0, limit - (monotonic() - began))
        if parsed_args.goal == "active":
            lease = wait_until_active(self, lease, parsed_args, limit)
        elif (ended := _wait_until_over(self, lease, parsed_args, limit)) is not None:
            lease = ended
        else:
            raise Failed(f"Lease {lease.name} ({lease.id}) is deleted.")
        return leases.shown(self.client, lease, parsed_args)


class ListLeaseHistory(Lister):
    """List the leases that had started, and were removed after their end."""

    objects = "past leases"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("--user", metavar="ID", help="leases of this user")
        add_time(parser, "--ended-before", "exclusive")
        add_time(parser, "--ended-after", "exclusive")
        add_all_projects(parser)
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.leases.past(
            **self.times(parsed_args, "ended_before", "ended_after"),
            user_id=parsed_args.user,
            all_projects=parsed_args.all_projects,
        )
        header = ("id", "name", "status", "started_at", "ended_at", "resources", "user_id")
        return header, [_past(lease, parsed_args) for lease in first(found, parsed_args)]


def _past(lease: PastLease, parsed_args: argparse.Namespace) -> Sequence[Any]:
    zone = parsed_args.time_zone
    had = [resource for each in lease.reservations for resource in each.resources]
    resources = Structured([each.to_dict() for each in had], ", ".join(each.name for each in had))
    started, ended = Time(lease.started_at, zone), Time(lease.ended_at, zone)
    return (lease.id, lease.name, lease.status, started, ended, resources, lease.user_id)


def _wait_until_over(
    command: ClimateCommand, lease: Lease, parsed_args: argparse.Namespace, limit: float | None
) -> Lease | None:
    line = ProgressLine(command.messages, parsed_args.time_zone)
    try:
        return command.client.leases.wait_until_over(lease.id, timeout=limit, progress=line)
    finally:
        line.close()


def _add_host_options(parser: argparse.ArgumentParser) -> None:
    for key, (option, action) in _HOST_OPTIONS.items():
        parser.add_argument(
            option,
            action="append",
            dest=key,
            default=[],
            metavar="[RESERVATION:]HOST[,...]",
            help=f"{action}; without id if the lease has only one reservation (repeatable)",
        )


def _changes(parsed_args: argparse.Namespace, lease: Lease) -> list[dict[str, Any]]:
    """Return the changes of reservations that the options describe. Raises Failed."""
    changes = []
    for text in parsed_args.set:
        id_, rest = _reservation_in(text, lease, "--set", "min=2")
        try:
            changes.append({"id": id_, "params": reservations.parameters(rest)})
        except argparse.ArgumentTypeError as error:
            raise Failed(f"--set: {error}") from None
    for key, (option, _) in _HOST_OPTIONS.items():
        for text in getattr(parsed_args, key):
            id_, rest = _reservation_in(text, lease, option, "node-7")
            hosts = [name.strip() for name in rest.split(",")]
            same = next((change for change in changes if change["id"] == id_), None)
            if same is None:
                changes.append({"id": id_, key: hosts})
            else:
                same[key] = [*same.get(key, []), *hosts]
    return changes


def _reservation_in(text: str, lease: Lease, option: str, example: str) -> tuple[str, str]:
    """Return the id of the reservation that the text of an option names, and the rest of the text.

    Without an id, it is the only reservation of the lease. Raises Failed if there are several.
    """
    ids = [each.id for each in lease.reservations if each.status != "deleted"]
    id_, sign, rest = text.partition(":")
    if sign and id_ in ids:
        return id_, rest
    if len(ids) != 1:
        known = ", ".join(ids) or "none"
        raise Failed(f"{option}: name the reservation, as in {known}:{example}. There are: {known}")
    return ids[0], text
