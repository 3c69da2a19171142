"""The commands that list stored notifications and follow new ones."""

import argparse
import json
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

from climate.client.commands.base import ClimateCommand, Lister, Rows, add_limit, count_of
from climate.client.commands.display.columns import Structured, Time, optional
from climate.client.commands.options import times
from climate.client.commands.options.times import Zone
from climate.client.errors import ClientError
from climate.client.models import Notification
from climate.client.notifications import NotificationFilter

# Values of a payload that say where it is: resources that were handed over or reclaimed.
_PLACES = ("hosts", "floatingips", "networks")


class FollowNotifications(ClimateCommand):
    """Print notifications as climate publishes them, one per line, until Ctrl-C."""

    _said = ""
    notes = "If the connection breaks, the command connects again and prints what it has missed."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            "--after",
            type=int,
            metavar="SEQ",
            help="begin after this number (0: with the oldest one); default: with new ones",
        )
        _add_filter(parser)
        parser.add_argument(
            *("-f", "--format"),
            dest="formatter",
            choices=["line", "json"],
            default="line",
            help="json: one JSON object per line (default: line)",
        )
        parser.add_argument(
            "--count", type=count_of, metavar="N", help="end after so many notifications"
        )

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Print notifications, forever or as many as the user wants."""
        found = self.client.notifications.follow(
            after=parsed_args.after,
            on_retry=self._on_retry,
            **_filter(self, parsed_args),
        )
        with suppress(KeyboardInterrupt):
            self._print(islice(found, parsed_args.count), parsed_args)

    def _print(self, found: Iterable[Notification], parsed_args: argparse.Namespace) -> None:
        is_json = parsed_args.formatter == "json"
        for each in found:
            text = json.dumps(each.to_dict()) if is_json else _line(each, parsed_args.time_zone)
            self.app.stdout.write(f"{text}\n")
            self.app.stdout.flush()
            self._said = ""  # report the next outage, too

    def _on_retry(self, error: ClientError) -> None:
        text = f"{str(error).rstrip('.')}. Trying again."
        if text != self._said:  # once, however often it is tried
            self.say(text)
        self._said = text


class ListNotifications(Lister):
    """List the stored notifications, the oldest first."""

    objects = "notifications"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument(
            "--after", type=int, default=0, metavar="SEQ", help="only with greater numbers"
        )
        _add_filter(parser)
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        wanted = _filter(self, parsed_args)
        found = self.client.notifications.list(
            after=parsed_args.after, limit=parsed_args.limit, **wanted
        )
        zone = parsed_args.time_zone
        rows = [
            (
                *(each.seq, Time(each.created_at, zone), each.event_type, optional(each.lease_id)),
                *(optional(each.payload.get(name)) for name in ("name", "status")),
                Structured(_places(each), ", ".join(_places(each))),
            )
            for each in found
        ]
        header = ("seq", "created_at", "event_type", "lease_id", "name", "status", "resources")
        return header, rows


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--event-type",
        action="append",
        metavar="TYPE",
        help="such as lease.create, or 'lease.event.*' (repeatable)",
    )
    parser.add_argument("--lease", help="about this lease: its id, or its name")
    parser.add_argument("--type", metavar="TYPE", help="about leases of this resource type")
    parser.add_argument("--project", metavar="ID", help="about this project (administrators)")


def _filter(command: ClimateCommand, parsed_args: argparse.Namespace) -> NotificationFilter:
    wanted: NotificationFilter = {
        "event_type": parsed_args.event_type or (),
        "resource_type": parsed_args.type,
        "project_id": parsed_args.project,
    }
    if parsed_args.lease:
        wanted["lease_id"] = command.client.leases.find(parsed_args.lease).id
    return wanted


def _line(notification: Notification, zone: Zone) -> str:
    payload = notification.payload
    places = _places(notification)
    parts = [
        f"{notification.seq:>6}",
        times.show(notification.created_at, zone),
        notification.event_type,
        payload.get("name") or "",
        f"({payload['status']})" if payload.get("status") else "",
        ", ".join(places),
        _details(payload),
    ]
    return "  ".join(part for part in parts if part)


def _details(payload: dict[str, Any]) -> str:
    if (seconds := payload.get("starts_in")) is not None:
        return f"starts in {times.span(seconds)}"
    return str(payload.get("error") or payload.get("reason") or "")


def _places(notification: Notification) -> list[str]:
    found = (notification.payload.get(name) or () for name in _PLACES)
    return [str(each.get("name")) for places in found for each in places]
