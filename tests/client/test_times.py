"""Times and durations as people write them."""

import argparse
import datetime as dt
import re

import pytest

from climate.client.commands.options import times
from climate.client.commands.options.times import Parser, Zone

BERLIN = Zone("Europe/Berlin")
# A Tuesday, 15:30:05 in Berlin.
PRESENT = dt.datetime(2026, 11, 24, 14, 30, 5, tzinfo=dt.UTC)


def understood(text: str, zone: Zone = BERLIN) -> str:
    return times.show_fully(Parser(zone, lambda: PRESENT).parse(text), zone)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "Tue 2026-11-24 15:30:05"),
        ("in 2h", "Tue 2026-11-24 17:30:05"),
        ("+1h30m", "Tue 2026-11-24 17:00:05"),
        ("in an hour", "Tue 2026-11-24 16:30:05"),
        ("in 2 weeks", "Tue 2026-12-08 15:30:05"),
        ("tomorrow 09:00", "Wed 2026-11-25 09:00:00"),
        ("tomorrow at 9am", "Wed 2026-11-25 09:00:00"),
        ("09:00 tomorrow", "Wed 2026-11-25 09:00:00"),
        ("tomorrow", "Wed 2026-11-25 00:00:00"),
        ("day after tomorrow 09:00", "Thu 2026-11-26 09:00:00"),
        ("fri 14:00", "Fri 2026-11-27 14:00:00"),
        ("next monday 09:00", "Mon 2026-11-30 09:00:00"),
        ("tuesday 10:00", "Tue 2026-12-01 10:00:00"),
        ("next tuesday 18:00", "Tue 2026-12-01 18:00:00"),
        ("next tuesday 10:00", "Tue 2026-12-01 10:00:00"),
        ("today 18:00", "Tue 2026-11-24 18:00:00"),
        ("wednesday 10:00", "Wed 2026-11-25 10:00:00"),
        ("14:00", "Wed 2026-11-25 14:00:00"),
        ("18:00", "Tue 2026-11-24 18:00:00"),
        ("noon", "Wed 2026-11-25 12:00:00"),
        ("15 Jan 09:00", "Fri 2027-01-15 09:00:00"),
        ("Jan 15 2027 9pm", "Fri 2027-01-15 21:00:00"),
        ("2030-01-15", "Tue 2030-01-15 00:00:00"),
        ("2030-01-15 9:00", "Tue 2030-01-15 09:00:00"),
        ("2030-01-15T09:00Z", "Tue 2030-01-15 10:00:00"),
        ("tomorrow 09:00 UTC", "Wed 2026-11-25 10:00:00"),
        ("2 hours ago", "Tue 2026-11-24 13:30:05"),
        ("yesterday 10:00", "Mon 2026-11-23 10:00:00"),
    ],
)
def test_understands_times_in_the_zone_of_the_user(text: str, expected: str) -> None:
    assert understood(text) == f"{expected} CET (UTC+01:00)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no time"),
        ("foo", "is no time that is understood; write for example 'tomorrow 09:00'"),
        ("tomorow 09:00", "is no time"),
        ("2030-02-30 10:00", "is no time"),
        ("2h", "write 'in 2h'"),
        ("in 5", "'5' is no duration"),
        ("tomorrow 9", "'9' in 'tomorrow 9' is not clear"),
        ("tomorrow 25:00", "'25:00' in"),
        ("sat 9", "is not clear"),
        ("10", "is not clear"),
        ("2030", "is not clear"),
        ("1/2/2030 10:00", "could be two dates"),
        ("1.2.2030", "could be two dates"),
        ("tuesday 18:00", "could be today or in a week"),
        ("tonight", "is not a clear time"),
        ("next week", "is not a clear time"),
        ("tomorrow 09:00 PST", "PST is the name of several time zones"),
        ("2026-10-25 02:30", "is twice in Europe/Berlin: add +02:00 or +01:00"),
        ("2027-03-28 02:30", "does not exist in Europe/Berlin"),
    ],
)
def test_rejects_times_that_are_not_clear(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        understood(text)


def test_shows_zones_without_an_abbreviation_by_their_offset() -> None:
    assert times.show(PRESENT, Zone("Asia/Kathmandu")) == "2026-11-24 20:15:05 UTC+05:45"
    assert times.show_fully(PRESENT, Zone("UTC")) == "Tue 2026-11-24 14:30:05 UTC"
    assert understood("2026-10-25T02:30+01:00") == "Sun 2026-10-25 02:30:00 CET (UTC+01:00)"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200),
        ("1h30m", 5400),
        ("90 min", 5400),
        ("1 day and 12 hours", 129600),
        ("1.5h", 5400),
    ],
)
def test_reads_durations(text: str, seconds: int) -> None:
    assert times.duration(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "3600", "0s", "1y", "h", "2h x", "-1h", "99999w"])
def test_rejects_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="duration"):
        times.duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (3660, "1 h 1 min"), (-90061, "1 d 1 h")]
)
def test_shows_time_spans_to_two_units(seconds: float, text: str) -> None:
    assert times.span(seconds) == text
