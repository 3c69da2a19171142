"""The calendar as a chart of characters: a row for each resource, a cell for a span of time.

A cell that is occupied during a part of its span only shows how large the part is. The functions
know nothing of terminals: the caller passes the width, and whether colours and Unicode can be used.
"""

import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from climate.client.commands.options import times
from climate.client.commands.options.times import Zone
from climate.client.models import Calendar, CalendarRow

TAKEN, OWN, CLEANING, UNAVAILABLE, HELD, PREPARING, SHARED = range(7)
KINDS = ("taken", "lease", "cleaning", "unavailable", "held", "preparing", "shared")

_MEANINGS: Mapping[int, str] = {
    TAKEN: "taken by others",
    CLEANING: "cleaning",
    UNAVAILABLE: "not bookable",
    HELD: "held for a decision",
    PREPARING: "is made ready",
    SHARED: "partly taken",
}
_UNICODE = dict(zip(_MEANINGS, "▒░×?▚▄", strict=True))  # noqa: RUF001 - a sign of the chart
_ASCII = dict(zip(_MEANINGS, "#~x?+-", strict=True))
_HEIGHTS = "▁▂▃▄▅▆▇█"
_LETTERS = string.ascii_uppercase
_RESET = "\x1b[0m"
# Of each kind: own leases are in reverse video of a colour, one of six by turns.
_COLOURS: Mapping[int, str] = {
    TAKEN: "\x1b[90m",
    CLEANING: "\x1b[36m",
    UNAVAILABLE: "\x1b[31m",
    HELD: "\x1b[33m",
    PREPARING: "\x1b[34m",
    SHARED: "\x1b[90m",
}
_OWN_COLOURS = [f"\x1b[30;4{number}m" for number in (2, 6, 3, 5, 4, 7)]

# A cell that is occupied for more of its span than this counts as full.
_MOST = 0.94
_LONGEST_NAME = 24
_SMALLEST_CHART = 20
_LABEL = 8
_TICKS = [3600 * hours for hours in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 672)]
_DAY = 86400


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of a row: offsets in seconds, and a lease's index (kind 1) or tenths (kind 6)."""

    start: int
    end: int
    kind: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """How to draw: the width in characters, and what the terminal can show."""

    width: int
    ascii: bool = False
    colours: bool = False


@dataclass(frozen=True, slots=True)
class _Cell:
    """The interval that a cell shows, and the part of the cell that it occupies, up to 1."""

    interval: Interval
    part: float


def intervals(row: CalendarRow) -> Iterator[Interval]:
    """Yield the intervals of a row of the calendar."""
    numbers = iter(row.x)
    for start in numbers:
        length, kind = next(numbers), next(numbers)
        number = next(numbers) if kind in {OWN, SHARED} else None
        yield Interval(start, start + length, kind, number)


def draw(calendar: Calendar, zone: Zone, style: Style) -> Iterator[str]:
    """Yield the lines of the chart: the axis, the rows by group, and what the signs mean."""
    margin = min(_LONGEST_NAME, max((len(row.name) for row in calendar.rows), default=0)) + 1
    count = max(_SMALLEST_CHART, style.width - margin)
    seconds = (calendar.end - calendar.start).total_seconds() / count
    yield " " * margin + _axis(calendar.start, seconds, count, zone)
    heads = {group.first: group for group in calendar.groups}
    used: set[int] = set()
    for number, row in enumerate(calendar.rows, calendar.offset):
        if number in heads:
            group = heads[number]
            yield f"{group.name or '(none)'}: {group.free_now} of {group.rows} free now"
        cells = _cells(row, seconds, count)
        used.update(cell.interval.kind for cell in cells if cell)
        name = row.name if len(row.name) < margin else f"{row.name[: margin - 2]}~"
        yield f"{name:<{margin}}{_drawn(cells, style)}"
    yield from _legend(calendar, used, zone, style)


def _cells(row: CalendarRow, seconds: float, count: int) -> list[_Cell | None]:
    """Return the cells of a row: an own lease if there is one, else what occupies most."""
    cells: list[_Cell | None] = [None] * count
    for interval in intervals(row):
        first = max(0, int(interval.start / seconds))
        last = min(count - 1, int((interval.end - 1) / seconds))
        for position in range(first, last + 1):
            begin = position * seconds
            shown = min(interval.end, begin + seconds) - max(interval.start, begin)
            cell = _Cell(interval, min(1.0, shown / seconds))
            cells[position] = max(cells[position] or cell, cell, key=_weight)
    return cells


def _weight(cell: _Cell) -> tuple[bool, float]:
    return cell.interval.kind == OWN, cell.part


def _drawn(cells: Sequence[_Cell | None], style: Style) -> str:
    text, colour, previous = "", "", None
    for cell in cells:
        wanted = _colour(cell) if style.colours else ""
        if wanted != colour:
            text += (_RESET if colour else "") + wanted
            colour = wanted
        text += _sign(cell, previous, style)
        previous = cell
    return text + (_RESET if colour else "")


def _sign(cell: _Cell | None, previous: _Cell | None, style: Style) -> str:
    if cell is None:
        return "." if style.ascii else "·"
    interval, is_full = cell.interval, cell.part > _MOST
    if interval.kind == OWN:
        is_first = previous is None or previous.interval.number != interval.number
        return _own_sign(interval.number, cell.part, style, is_first=is_first)
    if interval.kind == SHARED:
        tenths = interval.number or 0
        return str(min(tenths, 9)) if style.ascii else _height(tenths / 10)
    if interval.kind == TAKEN and not is_full:
        return "-" if style.ascii else _height(cell.part)
    return (_ASCII if style.ascii else _UNICODE)[interval.kind]


def _own_sign(index: int | None, part: float, style: Style, *, is_first: bool) -> str:
    letter = _letter(index)
    if style.ascii:
        return letter if part > _MOST else letter.lower()
    if is_first:
        return letter
    return " " if style.colours else _height(part)


def _height(part: float) -> str:
    return _HEIGHTS[min(len(_HEIGHTS) - 1, int(part * len(_HEIGHTS)))]


def _letter(index: int | None) -> str:
    return _LETTERS[index] if index is not None and index < len(_LETTERS) else "*"


def _colour(cell: _Cell | None) -> str:
    if cell is None:
        return ""
    if cell.interval.kind == OWN:
        return _OWN_COLOURS[(cell.interval.number or 0) % len(_OWN_COLOURS)]
    return _COLOURS[cell.interval.kind]


def _axis(start: datetime, seconds: float, count: int, zone: Zone) -> str:
    """Return the line with the times: the day at midnight, else the time of day."""
    step = next((tick for tick in _TICKS if tick / seconds >= _LABEL), _TICKS[-1])
    line = [" "] * count
    local = zone.at(start)
    day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    tick = day
    end = start + timedelta(seconds=seconds * count)
    while (instant := zone.near(tick)) < end:
        position = int((instant - start).total_seconds() / seconds)
        if instant >= start:
            is_day = (tick.hour, tick.minute) == (0, 0)
            label = f"|{tick:%a %d}" if is_day else f"|{tick:%H:%M}"
            if position + len(label) <= count:
                line[position : position + len(label)] = label
        tick += timedelta(seconds=step)
    return "".join(line).rstrip()


def _legend(calendar: Calendar, used: set[int], zone: Zone, style: Style) -> Iterator[str]:
    signs = _ASCII if style.ascii else _UNICODE
    meanings = [f"{signs[kind]} {text}" for kind, text in _MEANINGS.items() if kind in used]
    free = "." if style.ascii else "·"
    local = zone.at(calendar.start)
    yield f"{free} free  {'  '.join(meanings)}".rstrip() + f"  (times in {local:%Z})"
    for index, lease in enumerate(calendar.leases):
        window = f"{times.show(lease.start, zone)} - {times.show(lease.end, zone)}"
        owner = "" if lease.mine else f"  project {lease.project_id}"
        yield f"{_letter(index)}  {lease.name}  {window}  {lease.status}{owner}"
