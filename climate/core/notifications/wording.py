"""Notifications in words: what mails and chat messages say about each type of notification.

Values that users choose, such as names, become one line of text. The caller that renders them
escapes them for the format of the message.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from climate.core.lease import blazar_wire
from climate.core.lease.lifecycle import LeaseStatus
from climate.core.lease.schedule import BEFORE_END, BEFORE_END_REMINDER, BEFORE_START, END, START
from climate.core.notifications import event_type
from climate.core.notifications.message import Notification

_STARTS_SOON, _STARTED, _ENDS_SOON, _ENDS_VERY_SOON, _ENDED = map(
    event_type.of_event, (BEFORE_START, START, BEFORE_END, BEFORE_END_REMINDER, END)
)
#: The types of notifications about which a mail has the calendar file of the lease.
WITH_CALENDAR = frozenset(
    {
        event_type.LEASE_CREATE,
        event_type.LEASE_UPDATE,
        _STARTS_SOON,
        event_type.LEASE_REMINDER,
        _STARTED,
        _ENDS_SOON,
        _ENDS_VERY_SOON,
    }
)
# Controls, separators of lines and paragraphs, and marks that change the direction of text.
_UNPRINTABLE = {"Cc", "Zl", "Zp", "Cs"}
_DIRECTIONS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_LONGEST = 200
_NAMES_SHOWN = 10
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))
# Not from strftime, whose names depend on the locale of the process.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_TITLES: Mapping[str, str] = {
    event_type.LEASE_CREATE: "Lease {name} is reserved",
    event_type.LEASE_UPDATE: "Lease {name} has changed",
    event_type.LEASE_DELETE: "Lease {name} is deleted",
    _STARTS_SOON: "Lease {name} {starts}",
    event_type.LEASE_REMINDER: "Lease {name} {starts}",
    _STARTED: "Lease {name} has started",
    _ENDS_SOON: "Lease {name} {ends}",
    _ENDS_VERY_SOON: "Lease {name} {ends}",
    event_type.BEFORE_END_STOPPED: "Lease {name} does not end soon any more",
    _ENDED: "Lease {name} has ended",
    event_type.LEASE_NOT_RESERVED: "Lease {name} does not cover a change of its stack",
    event_type.LEASE_TRUST_LOST: "climate cannot act for the owner of lease {name} any more",
    event_type.LEASE_TRUST_RESTORED: "climate can act for the owner of lease {name} again",
    event_type.LEASE_CATCH_UP: "Events of lease {name} were late",
    event_type.LEASE_START_DELAYED: "Lease {name} waits for its resources",
    event_type.LEASE_NOT_STARTED: "Lease {name} is over and has never started",
    event_type.RESERVATION_STARTED: "A reservation of lease {name} is started",
    event_type.RESERVATION_STOPPED: "A reservation of lease {name} is stopped",
    event_type.OFFER_MADE: "Offer {name} holds resources for some minutes",
    event_type.OFFER_ACCEPTED: "Offer {name} is accepted",
    event_type.OFFER_EXPIRED: "Offer {name} has expired",
    event_type.OFFER_DELETED: "Offer {name} is deleted",
    event_type.SUBSCRIPTION_SUSPENDED: "climate has suspended a subscription",
}
# The same for leases in ERROR.
_FAILURES: Mapping[str, str] = {
    _STARTED: "Lease {name} could not be started yet",
    _ENDED: "Lease {name} could not be ended yet",
}
_BEFORE_THE_END = (
    "Save your work: when the lease ends, the data on its resources may be lost.",
    "Extend it: on its page, or with 'openstack reservation lease set --prolong-for 1h {id}'.",
    "End it: if you have finished, end it now on its page. Others can use the resources.",
)
_BEFORE_THE_START = (
    "Keep it: you need not do anything. climate hands over the resources at the start.",
    "Connect: after the start, the page of the lease shows how to use each resource.",
    "Extend it, or change its end: on the page of the lease.",
    "End it: if you do not need it, delete it on its page. Others can use the resources.",
)
_ADVICE: Mapping[str, Sequence[str]] = {
    **dict.fromkeys((_STARTS_SOON, event_type.LEASE_REMINDER), _BEFORE_THE_START),
    _STARTED: (
        "Connect: the page of the lease shows how to use each resource.",
        "End it as soon as you have finished. Others can use the resources.",
    ),
    **dict.fromkeys((_ENDS_SOON, _ENDS_VERY_SOON), _BEFORE_THE_END),
    event_type.OFFER_MADE: (
        "Accept it before it expires: with 'openstack climate offer accept {id}'.",
        "Delete it if you do not need it. Others can use the resources.",
    ),
    event_type.LEASE_START_DELAYED: (
        "You need not do anything: the lease starts as soon as its resources are ready.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A notification in words: a title, facts as pairs of label and value, and what to do."""

    title: str
    facts: tuple[tuple[str, str], ...]
    advice: tuple[str, ...]
    lease_id: str | None


def describe(
    notification: Notification, payload: Mapping[str, Any], now: datetime, zone: tzinfo
) -> Wording:
    """Return a notification in words.

    ``payload`` is the payload that climate sends at ``now``. Times are in the zone ``zone``, with
    their offset from UTC.
    """
    kind, lease_id = notification.event_type, notification.lease_id
    window = blazar_wire.window(payload)
    values = {
        "name": f"\u201c{one_line(payload.get('name') or lease_id or '')}\u201d",
        "starts": _due("start", window.start, now) if window else "starts soon",
        "ends": _due("end", window.end, now) if window else "ends soon",
    }
    is_failed = payload.get("status") == LeaseStatus.ERROR.value
    default = "Lease {name}: {kind}" if lease_id else "{kind}"
    pattern = (is_failed and _FAILURES.get(kind)) or _TITLES.get(kind, default)
    advice = () if is_failed else _ADVICE.get(kind, ())
    return Wording(
        title=pattern.format(kind=one_line(kind), **values),
        facts=tuple(_facts(payload, zone)),
        advice=tuple(text.format(id=one_line(lease_id or "")) for text in advice),
        lease_id=lease_id,
    )


def show_time(moment: datetime, zone: tzinfo) -> str:
    """Return a time as text, such as ``Tuesday 2030-01-15 14:00 (UTC+01:00)``."""
    local = moment.astimezone(zone)
    offset = f"{local:%z}"
    shown = f"UTC{offset[:3]}:{offset[3:5]}"
    return f"{_WEEKDAYS[local.weekday()]} {local:%Y-%m-%d %H:%M} ({shown})"


def _due(verb: str, moment: datetime, now: datetime) -> str:
    """Return when something happens, such as ``starts in 10 minutes``.

    If the moment has passed, because the notification is late, the result does not claim that it
    happened: ``was due to start 2 hours ago``.
    """
    seconds = (moment - now).total_seconds()
    if abs(seconds) < _UNITS[-1][0]:
        return f"{verb}s in less than a minute" if seconds > 0 else f"{verb}s now"
    size, unit = next(item for item in _UNITS if abs(seconds) >= item[0])
    count = round(abs(seconds) / size)
    amount = f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{verb}s in {amount}" if seconds > 0 else f"was due to {verb} {amount} ago"


def one_line(value: object) -> str:
    """Return a value as one line of printable text, at most 200 characters long.

    A control character or a separator of lines becomes a space. Marks that change the direction of
    the text are removed.
    """
    text = "".join(
        " " if unicodedata.category(char) in _UNPRINTABLE else char
        for char in str(value)[: _LONGEST * 2]
        if char not in _DIRECTIONS
    )
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _facts(payload: Mapping[str, Any], zone: tzinfo) -> Iterator[tuple[str, str]]:
    window = blazar_wire.window(payload)
    if window:
        yield "Start", show_time(window.start, zone)
        yield "End", show_time(window.end, zone)
    if resources := _resources(payload):
        yield "Resources", resources
    if payload.get("status"):
        yield "Status", one_line(payload["status"])
    waiting = payload.get("waiting_for")
    if isinstance(waiting, Sequence) and not isinstance(waiting, str) and waiting:
        yield "Waits for", _listed([one_line(name) for name in waiting])
    if payload.get("reason"):
        yield "Reason", one_line(payload["reason"])
    if payload.get("error"):
        yield "Error", one_line(payload["error"])
    if payload.get("project_id"):
        yield "Project", one_line(payload["project_id"])


def _resources(payload: Mapping[str, Any]) -> str:
    """Return how many resources the lease has, and their names, such as ``2 hosts (a, b)``.

    If the payload does not name the resources, return what the reservations request.
    """
    named = [
        (noun, [one_line(item["name"]) for item in items])
        for noun, items in payload.items()
        if _is_named(items)
    ]
    if named:
        return ", ".join(
            f"{len(names)} {noun if len(names) != 1 else noun.removesuffix('s')} ({_listed(names)})"
            for noun, names in named
        )
    return ", ".join(_requested(reservation) for reservation in payload.get("reservations", []))


def _is_named(items: object) -> bool:
    """Return whether a value of a payload is a list of resources, each with its name."""
    if not isinstance(items, list) or not items:
        return False
    return all(
        isinstance(item, Mapping) and {"reservation_id", "name"} <= item.keys() for item in items
    )


def _requested(reservation: Mapping[str, Any]) -> str:
    least, most = reservation.get("min"), reservation.get("max")
    count = reservation.get("amount", most)
    amount = f"{least} to {most}" if least != most else f"{count if count is not None else 1}"
    return one_line(f"{amount} x {reservation['resource_type']}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_SHOWN])
    more = len(names) - _NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
