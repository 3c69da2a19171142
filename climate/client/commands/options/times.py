"""Times and durations as people write them, and times as the commands show them.

A time without a zone is in the zone of ``--time-zone``, or of the machine. Times that are not clear
are rejected: a wrong guess would reserve machines for the wrong day.
"""

import argparse
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

NOW, ASAP = "now", "asap"
ZONE_VARIABLE = "CLIMATE_TIME_ZONE"

_UNITS = {
    "s": "s sec secs second seconds",
    "m": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
    "w": "w week weeks",
}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_UNIT_OF = {word: unit for unit, words in _UNITS.items() for word in words.split()}
_LONGEST = 3653 * 86400
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?\s*(?:and\s+)?", re.IGNORECASE)
_LATER = re.compile(r"(?:in\s+|\+\s*)(.+)", re.IGNORECASE)

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = r"(?:[12]?\d|3[01])(?:st|nd|rd|th)?"
_DATE = (
    r"\d{4}-\d\d-\d\d"  # ISO 8601
    rf"|\b{_DAY}\s+(?:of\s+)?{_MONTH}(?:\s+\d{{4}})?"
    rf"|\b{_MONTH}\s+{_DAY}\b(?!:)(?:,?\s+\d{{4}}\b(?!:))?"
)
_DATED = re.compile(_DATE, re.IGNORECASE)
# Parts of a text that are unambiguous. Digits outside of these parts are ambiguous.
_CLEAR = re.compile(
    _DATE + r"|(?<![\d:.])(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?![\d:])"  # a time of day
    r"|\b(?:0?[1-9]|1[0-2])\s*[ap]\.?m\b\.?"
    r"|[+-]\d\d:?\d\d\b"  # the offset of a zone
    rf"|\b\d+\s+(?:{'|'.join(_UNIT_OF)})\s+ago\b",
    re.IGNORECASE,
)
_OF_DAY = re.compile(r"\d:\d\d|\d\s*[ap]\.?m|\b(?:noon|midnight|ago)\b", re.IGNORECASE)
# People mean different times by these words.
_VAGUE = re.compile(
    r"\b(?:tonight|morning|afternoon|evening|night|(?:next|this) (?:week|month|year))\b"
)
# Abbreviations of zones have several meanings: CST is in America and in China.
_ABBREVIATION = re.compile(r"\b[A-Z]{3,5}\b")
_KNOWN_WORDS = re.compile(
    r"UTC|GMT|(?:MON|TUE|WED|THU|FRI|SAT|SUN|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)",
)
_EXAMPLES = "for example 'tomorrow 09:00', 'fri 14:00', 'in 2h' or 2030-01-15T09:00+01:00"


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone: a name such as ``Europe/Berlin``; None is the zone of the machine."""

    name: str | None = None

    def at(self, instant: datetime) -> datetime:
        """Return an instant in this zone."""
        return instant.astimezone(ZoneInfo(self.name) if self.name else None)

    def of(self, local: datetime) -> datetime:
        """Return the instant of a naive local time. Raises ValueError unless there is just one."""
        first, second = (self._resolve(local, fold) for fold in (0, 1))
        if self.at(first.astimezone(UTC)).replace(tzinfo=None) != local:
            raise ValueError(
                f"{local} does not exist in {self._called(first)}: the clock skips it then."
            )
        if first.utcoffset() != second.utcoffset():
            offsets = " or ".join(map(_offset, (first, second)))
            raise ValueError(f"{local} is twice in {self._called(first)}: add {offsets}.")
        return first

    def near(self, local: datetime) -> datetime:
        """Return an instant of a naive local time, the first of two, also if the clock skips it."""
        return self._resolve(local, 0).astimezone(UTC)

    def _resolve(self, local: datetime, fold: int) -> datetime:
        if self.name:
            return local.replace(tzinfo=ZoneInfo(self.name), fold=fold)
        return local.replace(fold=fold).astimezone()

    def _called(self, local: datetime) -> str:
        return self.name or f"the zone of this machine ({local:%Z})"


def now() -> datetime:
    """Return the present, to which what people write is relative."""
    return datetime.now(UTC)


def zone(name: str) -> Zone:
    """Return the zone called ``name``, as an argument of the command line."""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise argparse.ArgumentTypeError(
            f"{name!r} is no time zone; use a name such as Europe/Berlin or UTC"
        ) from None
    return Zone(name)


def default_zone() -> Zone:
    """Return the zone that the environment names, else that of the machine."""
    name = os.environ.get(ZONE_VARIABLE)
    return zone(name) if name else Zone()


def show(instant: datetime, where: Zone) -> str:
    """Return an instant with its zone, such as ``2030-01-15 09:00:00 CET``."""
    local = where.at(instant)
    name = local.tzname() or ""
    if not name or name[0] in "+-":  # zones without an abbreviation
        name = f"UTC{_offset(local)}"
    return f"{local:%Y-%m-%d %H:%M:%S} {name}"


def show_fully(instant: datetime, where: Zone) -> str:
    """Return an instant with weekday, zone and offset, for people who check it."""
    local = where.at(instant)
    name = show(instant, where)
    offset = _offset(local)
    suffix = "" if name.endswith((f"UTC{offset}", "UTC")) else f" (UTC{offset})"
    return f"{local:%a} {name}{suffix}"


def _offset(local: datetime) -> str:
    text = f"{local:%z}"
    return f"{text[:3]}:{text[3:5]}"


def span(seconds: float) -> str:
    """Return a time span for people, to two units, such as ``2 h 5 min``."""
    left = round(abs(seconds))
    parts = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def duration(text: str) -> timedelta:
    """Parse a duration such as ``2h``, ``1h30m``, ``90 min`` or ``1 day and 12 hours``.

    Days have 24 hours. Raises ArgumentTypeError.
    """
    left, seconds = text.strip(), 0.0
    while left:
        part = _PART.match(left)
        if part is None or part[2].lower() not in _UNIT_OF:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no duration: write a number and a unit (s, m, h, d, w), for example"
                " 2h, 1h30m or '3 days'"
            )
        seconds += float(part[1]) * _SECONDS[_UNIT_OF[part[2].lower()]]
        left = left[part.end() :]
    if not 1 <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no usable duration: use 1 s to 10 years")
    return timedelta(seconds=round(seconds))


class Parser:
    """Parses times relative to the present, in one zone."""

    def __init__(self, where: Zone, present: Callable[[], datetime] = now) -> None:
        self.zone = where
        self._now = present

    def parse(self, text: str) -> datetime:
        """Return the instant that a person means. Raises ValueError, which says what to write."""
        text = " ".join(text.split())
        if text.lower() == NOW:
            return self._now()
        if later := _LATER.fullmatch(text):
            return self._now() + _length(re.sub(r"^(?:an?|one)\s", "1 ", later[1]))
        try:
            given = datetime.fromisoformat(text)
        except ValueError:
            given = self._read(text)
        return given if given.tzinfo else self.zone.of(given)

    def _read(self, text: str) -> datetime:
        _check_clear(text)
        import dateparser  # noqa: PLC0415 - takes 0.2 s, which ISO 8601 and 'in 2h' do not need

        local = self.zone.at(self._now()).replace(tzinfo=None)
        settings = {"PREFER_DATES_FROM": "future", "RELATIVE_BASE": local}
        found: datetime | None = dateparser.parse(text, languages=["en"], settings=settings)
        if found is None:
            raise ValueError(f"{text!r} is no time that is understood; write {_EXAMPLES}")
        if not _OF_DAY.search(text):
            found = found.replace(hour=0, minute=0, second=0)
        _check_weekday(text, found, local)
        return found.replace(microsecond=0)


def _length(text: str) -> timedelta:
    try:
        return duration(text)
    except argparse.ArgumentTypeError as error:
        raise ValueError(str(error)) from None


def _check_weekday(text: str, found: datetime, local: datetime) -> None:
    """Raise ValueError if a text names the present weekday, and a time that is still to come."""
    today = f"{local:%a}".lower()
    is_named = re.search(rf"(?<!next )\b{today}[a-z]*\b", text.lower())
    if is_named and not _DATED.search(text) and found.time() > local.time():
        raise ValueError(f"{text!r} could be today or in a week; write 'today' or a date")


def _check_clear(text: str) -> None:
    if _PART.fullmatch(text):
        raise ValueError(f"{text!r} is a duration; for a time from now, write 'in {text}'")
    if vague := _VAGUE.search(text.lower()):
        raise ValueError(f"{vague[0]!r} is not a clear time; write {_EXAMPLES}")
    if re.search(r"\d+[/.]\d+[/.]\d+", text):
        raise ValueError(f"{text!r} could be two dates; write the date as in 2030-01-15")
    rest = _CLEAR.sub(" ", text)
    if digits := re.search(r"\d[\d:.]*", rest):
        raise ValueError(
            f"{digits[0]!r} in {text!r} is not clear; write times as in 09:00 or 9am, and dates as"
            " in 2030-01-15 or 15 Jan"
        )
    for word in _ABBREVIATION.findall(rest):
        if not _KNOWN_WORDS.match(word):
            raise ValueError(
                f"{word} is the name of several time zones; write an offset, as in"
                " 2030-01-15T09:00+01:00, or use --time-zone"
            )
