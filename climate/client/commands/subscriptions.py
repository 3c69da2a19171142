"""What sends notifications elsewhere: subscriptions (webhooks) and calendar feeds."""

import argparse
import base64
import secrets
from typing import Any

from climate.client.commands.base import (
    ClimateCommand,
    Failed,
    Lister,
    Rows,
    ShowOne,
    add_all_projects,
    add_limit,
    first,
)
from climate.client.commands.display.columns import Time, names, optional
from climate.client.commands.display.leases import Fields, of_one
from climate.client.commands.options import times
from climate.client.models import Feed, Subscription

_SECRET_BYTES = 32


def _add_id(parser: argparse.ArgumentParser, noun: str) -> None:
    parser.add_argument("id", metavar=noun.upper(), help=f"id of the {noun}")


class CreateSubscription(ShowOne):
    """Have notifications sent to a URL (webhook)."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        parser.add_argument("url", metavar="URL", help="https:// and where to send them")
        parser.add_argument(
            "--secret",
            help="what deliveries are signed with: whsec_ and the base64 of 24 to 64 bytes;"
            " default: a new one, which the output shows once",
        )
        _add_settings(parser)
        add_all_projects(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Create the subscription, and return its fields."""
        secret = parsed_args.secret or _new_secret()
        more: dict[str, Any] = {"all_projects": True} if parsed_args.all_projects else {}
        made = self.client.subscriptions.create(
            url=parsed_args.url, secret=secret, **_settings(self, parsed_args), **more
        )
        shown = {} if parsed_args.secret else {"secret": secret}
        return _subscription(made, parsed_args, shown)


class UpdateSubscription(ShowOne):
    """Change, suspend or resume a subscription."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_id(parser, "subscription")
        parser.add_argument("--url", help="new URL")
        parser.add_argument("--secret", help="new secret")
        parser.add_argument("--status", choices=["active", "suspended"], help="suspend or resume")
        _add_settings(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Change the subscription, and return its fields."""
        given = {name: getattr(parsed_args, name) for name in ("url", "secret", "status")}
        changes = {name: value for name, value in given.items() if value is not None}
        changes.update(_settings(self, parsed_args))
        if not changes:
            raise Failed("Nothing to change: give at least one option, such as --status.")
        return _subscription(
            self.client.subscriptions.update(parsed_args.id, **changes), parsed_args
        )


class ShowSubscription(ShowOne):
    """Show a subscription."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_id(parser, "subscription")

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Return the fields."""
        return _subscription(self.client.subscriptions.get(parsed_args.id), parsed_args)


class ListSubscriptions(Lister):
    """List the subscriptions of the project."""

    objects = "subscriptions"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_all_projects(parser)
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.subscriptions.list(all_projects=parsed_args.all_projects)
        rows = [
            (each.id, each.url, each.status, names(each.event_types), each.dead_letters)
            for each in first(found, parsed_args)
        ]
        return ("id", "url", "status", "event_types", "dead_letters"), rows


class DeleteSubscription(ClimateCommand):
    """Delete a subscription."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_id(parser, "subscription")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the subscription."""
        self.client.subscriptions.delete(parsed_args.id)
        self.say(f"Subscription {parsed_args.id} is deleted.")


class ListDeadLetters(Lister):
    """List the notifications that the receiver of a subscription did not accept."""

    objects = "undelivered notifications"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_id(parser, "subscription")
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.subscriptions.dead_letters(parsed_args.id)
        zone = parsed_args.time_zone
        rows = [
            (each.seq, each.attempts, Time(each.failed_at, zone), each.redelivering, each.reason)
            for each in first(found, parsed_args)
        ]
        return ("seq", "attempts", "failed_at", "redelivering", "reason"), rows


class RedeliverDeadLetters(ClimateCommand):
    """Send dead letters again: all of them, or those with the given numbers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_id(parser, "subscription")
        parser.add_argument("seqs", metavar="SEQ", type=int, nargs="*", help="number")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Send the dead letters again."""
        count = self.client.subscriptions.redeliver(parsed_args.id, parsed_args.seqs)
        self.say(f"{count} notifications are sent again.")


class CreateFeed(ShowOne):
    """Create a calendar feed of a lease, a resource or the project; show its secret URL once."""

    notes = "Everyone who has the URL can read the feed; `feed delete` revokes it."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        scope = parser.add_mutually_exclusive_group(required=True)
        scope.add_argument("--lease", metavar="LEASE", help="of this lease: its id or name")
        scope.add_argument("--resource", metavar="RESOURCE", help="of this resource")
        scope.add_argument("--project", action="store_true", help="of all leases of the project")
        parser.add_argument("--name", help="name of the feed")

    def take_action(self, parsed_args: argparse.Namespace) -> Fields:
        """Create the feed, and return its fields."""
        if parsed_args.lease:
            scope, target = "lease", self.client.leases.find(parsed_args.lease).id
        elif parsed_args.resource:
            scope, target = "resource", self.client.resources.find(parsed_args.resource).id
        else:
            scope, target = "project", self.client.me().project.id
        feed = self.client.feeds.create(scope, target, parsed_args.name)
        fields = {
            name: getattr(feed, name)
            for name in ("id", "name", "url", "scope", "target_id", "project_id", "user_id")
        }
        return of_one(
            {**fields, "created_at": Time(feed.created_at, parsed_args.time_zone)}, parsed_args
        )


class ListFeeds(Lister):
    """List the calendar feeds of the project, without their secret URLs."""

    objects = "calendar feeds"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        add_all_projects(parser)
        add_limit(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> Rows:
        """Return the rows of the table."""
        found = self.client.feeds.list(all_projects=parsed_args.all_projects)
        rows = [_feed(each, parsed_args) for each in first(found, parsed_args)]
        return ("id", "name", "scope", "target_id", "user_id", "created_at", "last_read_at"), rows


class DeleteFeed(ClimateCommand):
    """Delete a calendar feed: its URL leads nowhere from now on."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        _add_id(parser, "feed")

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Delete the feed."""
        self.client.feeds.delete(parsed_args.id)
        self.say(f"Feed {parsed_args.id} is deleted.")


def _new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()}"


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--event-type",
        action="append",
        metavar="TYPE",
        help="only these, such as 'lease.event.*' (repeatable); default: all",
    )
    parser.add_argument("--lease", metavar="LEASE", help="only about this lease: its id or name")
    parser.add_argument("--type", metavar="TYPE", help="only about leases of this resource type")
    parser.add_argument(
        "--before-start",
        action="append",
        type=_lead,
        metavar="DURATION",
        help="remind so long before each start, such as 1h (repeatable); none: send no reminders",
    )
    parser.add_argument(
        "--after", type=int, metavar="SEQ", help="begin after this number; default: with new ones"
    )


def _settings(command: ClimateCommand, parsed_args: argparse.Namespace) -> dict[str, Any]:
    lease = parsed_args.lease
    given = {
        "event_types": parsed_args.event_type,
        "lease_id": command.client.leases.find(lease).id if lease else None,
        "resource_type": parsed_args.type,
        "before_start_leads": _leads(parsed_args.before_start),
        "after": parsed_args.after,
    }
    return {name: value for name, value in given.items() if value is not None}


def _lead(text: str) -> int:
    return 0 if text.lower() == "none" else int(times.duration(text).total_seconds())


def _leads(seconds: list[int] | None) -> list[int] | None:
    return None if seconds is None else [lead for lead in seconds if lead]


def _subscription(
    found: Subscription, parsed_args: argparse.Namespace, more: dict[str, Any] | None = None
) -> Fields:
    zone = parsed_args.time_zone
    fields = {
        "id": found.id,
        "url": found.url,
        **(more or {}),
        "status": found.status,
        "reason": optional(found.reason),
        "event_types": names(found.event_types),
        "lease_id": optional(found.lease_id),
        "resource_type": optional(found.resource_type),
        "all_projects": found.all_projects,
        "before_start": names([times.span(lead) for lead in found.before_start_leads]),
        "after": found.after,
        "dead_letters": found.dead_letters,
        "delivered_at": Time(found.delivered_at, zone),
        "project_id": found.project_id,
        "user_id": found.user_id,
        "created_at": Time(found.created_at, zone),
        "updated_at": Time(found.updated_at, zone),
    }
    return of_one(fields, parsed_args)


def _feed(feed: Feed, parsed_args: argparse.Namespace) -> tuple[Any, ...]:
    times = (Time(at, parsed_args.time_zone) for at in (feed.created_at, feed.last_read_at))
    return (feed.id, feed.name, feed.scope, feed.target_id, feed.user_id, *times)
