"""What the process of a side must know: its database, its load, and whether it is the floor."""

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from benchmarks.calendar.book import Calendar


@dataclass(frozen=True, slots=True)
class Setup:
    """The load of one side; ``first`` is the ISO date on which the calendar begins.

    ``through`` is HOST:PORT of the proxy that delays the clients, "" if they need none. ``leases``
    start over ``seconds`` in the case idle, and ``drain`` leases are overdue in the case drain.
    """

    url: str | None
    through: str
    anywhere: bool
    is_floor: bool
    hosts: int
    bookings: int
    first: str
    rounds: int
    seconds: float
    leases: int
    drain: int

    @property
    def book(self) -> Calendar:
        """Return the calendar."""
        return Calendar(self.hosts, self.bookings, datetime.fromisoformat(self.first))

    def encoded(self) -> str:
        """Return the setup as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: str) -> "Setup":
        """Read a setup from JSON."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Turn:
    """A case that a side shall run; ``number`` is the seed of the requests."""

    case: str
    clients: int
    number: int
