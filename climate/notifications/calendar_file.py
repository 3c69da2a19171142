"""Renders calendar entries as an iCalendar file (RFC 5545, RFC 7986)."""

import unicodedata
from collections.abc import Iterable
from datetime import timedelta

from icalendar import Calendar, Event

from climate.core.notifications.feed import Entry

MEDIA_TYPE = "text/calendar; charset=utf-8"
_REFRESH = timedelta(minutes=5)
# Controls, and separators of lines and paragraphs: a reader could take them for line breaks.
_UNPRINTABLE = {"Cc", "Zl", "Zp"}


def render(name: str, entries: Iterable[Entry], console_url: str | None) -> str:
    """Return an iCalendar file: a calendar with the name ``name`` and the entries ``entries``.

    ``console_url`` is the absolute URL of the web console, without a slash at the end. The entry of
    a lease links to the lease in the console. If ``console_url`` is None, entries have no links.
    """
    calendar = Calendar()
    calendar.add("prodid", "-//climate//leases//EN")
    calendar.add("version", "2.0")
    calendar.add("name", _line(name))
    calendar.add("x-wr-calname", _line(name))
    calendar.add("refresh-interval", _REFRESH, parameters={"VALUE": "DURATION"})
    calendar.add("x-published-ttl", "PT5M")
    for entry in entries:
        calendar.add_component(_event(entry, console_url))
    content: bytes = calendar.to_ical()
    return content.decode()


def _event(entry: Entry, console_url: str | None) -> Event:
    event = Event()
    event.add("uid", entry.uid)
    event.add("summary", _line(entry.summary))
    event.add("dtstart", entry.window.start)
    event.add("dtend", entry.window.end)
    # Without METHOD, DTSTAMP is the time of the last change, as LAST-MODIFIED.
    event.add("dtstamp", entry.changed_at)
    event.add("last-modified", entry.changed_at)
    event.add("sequence", entry.sequence)
    event.add("status", entry.status.value)
    # A lease of machines does not make its reader busy.
    event.add("transp", "TRANSPARENT")
    if entry.created_at is not None:
        event.add("created", entry.created_at)
    if entry.details:
        event.add("description", "\n".join(map(_line, entry.details.split("\n"))))
    if console_url is not None and entry.lease_id is not None:
        event.add("url", f"{console_url}/leases/{entry.lease_id}")
    return event


def _line(text: str) -> str:
    """Return ``text`` with each line break or control character replaced by a space."""
    return "".join(" " if unicodedata.category(char) in _UNPRINTABLE else char for char in text)
