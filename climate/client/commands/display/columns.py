"""Values of columns: text for people in tables, and plain values in JSON, YAML and CSV."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cliff.columns import FormattableColumn

from climate.client.commands.options import times
from climate.client.commands.options.times import Zone
from climate.client.leases import Offer
from climate.client.models import Lease, Reservation
from climate.client.transport import moment

# Values of parameters that say nothing to people.
_NOT_SHOWN: tuple[Any, ...] = (None, "", [], {}, "default")
_LONGEST_VALUE = 60
_TEXT_FORMATTERS = {"csv", "shell", "value"}


class Time(FormattableColumn[Any]):
    """A time: in the zone of the user in tables, else in UTC."""

    def __init__(self, value: datetime | None, zone: Zone) -> None:
        super().__init__(value)
        self._zone = zone

    def human_readable(self) -> str:
        """Return the time with its zone."""
        return "" if self._value is None else times.show(self._value, self._zone)

    def machine_readable(self) -> str | None:
        """Return the time in ISO 8601 in UTC."""
        return None if self._value is None else moment(self._value)


class Structured(FormattableColumn[Any]):
    """A value with a text for people."""

    def __init__(self, value: Any, text: str) -> None:  # noqa: ANN401 - any JSON value
        super().__init__(value)
        self._text = text

    def human_readable(self) -> str:
        """Return the text."""
        return self._text

    def machine_readable(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value."""
        return self._value


def for_formatter(value: Any, formatter: str) -> Any:  # noqa: ANN401 - any field
    """Return a value as a formatter of cliff needs it; some would write Python literals."""
    if formatter not in _TEXT_FORMATTERS:
        return value
    given = value.machine_readable() if isinstance(value, FormattableColumn) else value
    text = _text(given)
    if formatter == "shell":  # cliff escapes only quotes; others choose the names of leases
        return re.sub(r"([\\$`])", r"\\\1", text)
    return given if isinstance(given, int | float) and not isinstance(given, bool) else text


def _text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return plain(value)


def names(values: Sequence[str]) -> Structured:
    """Return a list of texts, which tables separate by commas."""
    return Structured(list(values), ", ".join(values))


def mapping(values: Mapping[str, Any]) -> Structured:
    """Return a mapping, which tables show as ``key=value``."""
    return Structured(dict(values), ", ".join(f"{k}={plain(v)}" for k, v in values.items()))


def plain(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a JSON value for people: text stays as it is."""
    return value if isinstance(value, str) else json.dumps(value)


def optional(value: Any) -> Structured:  # noqa: ANN401 - any JSON value
    """Return a value that is empty in tables if it is None."""
    return Structured(value, "" if value is None else plain(value))


def amount(reservation: Reservation) -> str:
    """Return how many units a reservation has, and of what: ``2-4 physical:host``."""
    params = reservation.params
    low, high = params.get("min"), params.get("max")
    count = params.get("amount", 1) if low is None else low if low == high else f"{low}-{high}"
    return f"{count} {reservation.resource_type}"


def reservations(lease: Lease | Offer) -> Structured:
    """Return the reservations of a lease or an offer: one line each in tables."""
    lines = []
    for reservation in lease.reservations:
        params = {
            name: value
            for name, value in {**reservation.params, **reservation.details}.items()
            if value not in _NOT_SHOWN and name not in {"min", "max", "amount"}
        }
        shown = "".join(f", {name}={_short(plain(value))}" for name, value in params.items())
        state = f", {reservation.run_state}" if reservation.run_state else ""
        head = f"{amount(reservation)} ({reservation.status}{state}{shown})"
        lines.append(f"{head}\n  {reservation.id}")
    return Structured(lease.to_dict()["reservations"], "\n".join(lines))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def events(lease: Lease, zone: Zone) -> Structured:
    """Return the events of a lease in the order of their times: one line each in tables."""
    ordered = sorted(lease.events, key=lambda event: event.at)
    lines = [f"{times.show(e.at, zone)}  {e.type} ({e.status})" for e in ordered]
    return Structured(lease.to_dict()["events"], "\n".join(lines))
