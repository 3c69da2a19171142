"""``lease create``: reserve resources; check, wait for the start, or take an alternative."""

import argparse
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar, cast

from climate.client.commands.base import Failed, ShowOne, add_time
from climate.client.commands.display import leases, refusals
from climate.client.commands.display.progress import ProgressLine
from climate.client.commands.options import reservations, times
from climate.client.errors import NotEnoughResources
from climate.client.leases import LeaseOptions
from climate.client.models import Lease

#: Text below the options in the help.
TIMES = """Times are written as in 'tomorrow 09:00', 'fri 14:00', 'in 2h', 2030-01-15 or
2030-01-15T09:00+01:00. The command says how it understood them."""


class RequestCommand(ShowOne):
    """The base class of commands that request resources for a new lease or offer."""

    after_refusal: ClassVar[tuple[str, ...]] = ("--take",)

    def add_request(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments that describe the lease."""
        parser.add_argument("name", metavar="NAME", help="name of the lease; need not be unique")
        _add_window(parser)
        reservations.add_reservation_options(parser)
        parser.add_argument(
            "--start-when",
            choices=["scheduled", "ready"],
            help="ready: start when provisioners have prepared all hosts, not before",
        )
        add_time(parser, "--before-end", "when to send the reminder of the end")
        parser.add_argument(
            "--event",
            action="append",
            default=[],
            metavar="TYPE=TIME",
            help="notify at a time, such as before_start_lease='tomorrow 08:00' (repeatable)",
        )
        parser.add_argument(
            "--idempotency-key",
            metavar="KEY",
            help="send the request once, even if the command runs again with the same key",
        )
        add_take(parser)
        parser.set_defaults(queue=False, queue_until=None, priority=None)

    def options(self, parsed_args: argparse.Namespace) -> LeaseOptions:
        """Return the lease that the arguments describe. Raises Failed."""
        _check(parsed_args)
        words = {times.NOW, times.ASAP}
        start = parsed_args.start
        options: dict[str, Any] = {
            "start": start if start in words else self.time(parsed_args, "start"),
            "wait": place_of(self, parsed_args) if parsed_args.queue else None,
            "end": self.time(parsed_args, "end"),
            "end_by": self.time(parsed_args, "end_by"),
            "before_end": self.time(parsed_args, "before_end"),
            "duration": parsed_args.duration,
            "start_when": parsed_args.start_when,
            "reservations": parsed_args.reservations,
            "events": [self._event(text, parsed_args) for text in parsed_args.event] or None,
        }
        return cast("LeaseOptions", {k: v for k, v in options.items() if v is not None})

    def _event(self, text: str, parsed_args: argparse.Namespace) -> dict[str, Any]:
        kind, sign, when = text.partition("=")
        if not sign:
            raise Failed(f"--event: {text!r} has not the form TYPE=TIME")
        given = argparse.Namespace(event=when, time_zone=parsed_args.time_zone)
        return {"type": kind, "at": self.time(given, "event")}


class CreateLease(RequestCommand):
    """Create a lease: reserve resources from a start to an end."""

    after_refusal: ClassVar[tuple[str, ...]] = ("--take", "--queue")
    notes = f"""{TIMES}
'climate offer create' has the same options: it holds the resources, or an alternative."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""
        self.add_request(parser)
        _add_queue(parser)
        mode = parser.add_mutually_exclusive_group()
        mode.add_argument("--dry-run", action="store_true", help="only check; reserve nothing")
        mode.add_argument("--wait", action="store_true", help="wait until the lease is active")
        add_wait_timeout(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Sequence[Any]]:
        """Create the lease, and return its fields."""
        options = self.options(parsed_args)
        if parsed_args.dry_run:
            return leases.dry_run(
                self.client.leases.check(parsed_args.name, **options), parsed_args
            )
        lease = self._create(parsed_args, options)
        if parsed_args.wait:
            lease = wait_until_active(self, lease, parsed_args, wait_limit(parsed_args))
        return leases.shown(self.client, lease, parsed_args)

    def _create(self, parsed_args: argparse.Namespace, options: LeaseOptions) -> Lease:
        try:
            return self.client.leases.create(
                parsed_args.name, idempotency_key=parsed_args.idempotency_key, **options
            )
        except NotEnoughResources as refusal:
            return take(self, refusal, parsed_args)


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a lease waits in the wait list."""
    add_time(parser, "--queue-until", "leave the wait list then, if there is no booking yet")
    parser.add_argument(
        "--priority", type=int, metavar="0-9", help="priority in the wait list; a new lease has 0"
    )


def place_of(command: ShowOne, parsed_args: argparse.Namespace) -> dict[str, Any]:
    """Return how a lease waits in the wait list, as the options say."""
    until, priority = command.time(parsed_args, "queue_until"), parsed_args.priority
    place = {"until": until, "priority": priority}
    return {name: value for name, value in place.items() if value is not None}


def add_take(parser: argparse.ArgumentParser) -> None:
    """Add the option that accepts an alternative."""
    parser.add_argument(
        "--take",
        type=int,
        metavar="NUMBER",
        help="if the request is refused, request its alternative of this number at once",
    )


def add_wait_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the option that limits a wait."""
    parser.add_argument(
        "--timeout",
        type=times.duration,
        metavar="DURATION",
        help="wait at most so long, such as 10m; default: no limit",
    )


def wait_limit(parsed_args: argparse.Namespace) -> float | None:
    """Return the time limit of a wait in seconds; None means no limit."""
    limit: timedelta | None = parsed_args.timeout
    return None if limit is None else limit.total_seconds()


def take(command: ShowOne, refusal: NotEnoughResources, parsed_args: argparse.Namespace) -> Lease:
    """Return the lease of the alternative that the user takes; else raise the refusal."""
    number: int | None = parsed_args.take
    if number is None:
        raise refusal
    key = getattr(parsed_args, "idempotency_key", None)  # a refusal does not use it up
    lease = command.client.leases.accept(refusal, number, idempotency_key=key)
    say_taken(command, refusal, number, parsed_args)
    return lease


def say_taken(
    command: ShowOne, refusal: NotEnoughResources, number: int, parsed_args: argparse.Namespace
) -> None:
    """Say which alternative of a refusal was taken."""
    taken = refusals.alternative_text(refusal.alternatives[number - 1], parsed_args.time_zone)
    command.say(f"The request was refused; taken: {taken}")


def wait_until_active(
    command: ShowOne, lease: Lease, parsed_args: argparse.Namespace, limit: float | None
) -> Lease:
    """Wait up to ``limit`` seconds until a lease is active; show the progress on standard error."""
    line = ProgressLine(command.messages, parsed_args.time_zone)
    try:
        return command.client.leases.wait_until_active(lease.id, timeout=limit, progress=line)
    except KeyboardInterrupt:
        line.close()
        command.say(f"The lease stays. To wait again: climate lease wait {lease.id}")
        raise
    finally:
        line.close()


def _add_window(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--start",
        metavar="TIME",
        default=times.NOW,
        help="default: now; asap: as soon as there is enough, with --duration and --end-by",
    )
    end = parser.add_mutually_exclusive_group(required=True)
    add_time(end, "--end", "when the lease ends")
    end.add_argument(
        "--duration", type=times.duration, metavar="DURATION", help="such as 2h, 90m or '3 days'"
    )
    add_time(parser, "--end-by", "latest end of a lease that starts asap")


def _add_queue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--queue",
        action="store_true",
        help="if too few resources are free, wait for them in the wait list; starts asap",
    )
    add_place(parser)


def _check(parsed_args: argparse.Namespace) -> None:
    if not parsed_args.reservations:
        raise Failed("A lease needs a reservation: add --host 1, for example.")
    if parsed_args.queue:
        if parsed_args.start not in {times.NOW, times.ASAP} or not parsed_args.duration:
            raise Failed("--queue needs --duration, and no --start.")
        parsed_args.start = times.ASAP
        return
    if parsed_args.queue_until or parsed_args.priority is not None:
        raise Failed("--queue-until and --priority need --queue.")
    if parsed_args.start == times.ASAP and not (parsed_args.duration and parsed_args.end_by):
        raise Failed("--start asap needs --duration and --end-by, the latest end.")
