"""A calendar for benchmarks: hosts, with bookings that leave them free 45 % of the time.

Four hosts of five have consecutive bookings of the whole host. Each fifth host has bookings of
shares, with three rows each, which may overlap. A third of all hosts have the property ``gpu``. Ten
bookings belong to a lease, which has one reservation and two events. They are ten consecutive ones
in the order of their starts, mostly on different hosts, and they lie in the window of the lease.
"""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from climate.core.window import Window

# The inventory of each host, and the amounts of one unit.
INVENTORY = {"VCPU": 64, "MEMORY_MB": 262_144, "DISK_GB": 2_000}
UNIT = {"VCPU": 4, "MEMORY_MB": 8_192, "DISK_GB": 40}
# The maximum number of hosts in the case hotspot.
HOT = 1_000
PER_LEASE = 10


@dataclass(frozen=True, slots=True)
class Calendar:
    """``bookings`` of ``hosts``, from ``first`` on."""

    hosts: int
    bookings: int
    first: datetime

    @property
    def per_host(self) -> int:
        """Return the number of bookings of a host."""
        return max(1, self.bookings // self.hosts)

    @property
    def hours(self) -> int:
        """Return the length of the calendar; there are no bookings after it."""
        return 65 * self.per_host

    @property
    def hot(self) -> int:
        """Return how many hosts have the property ``hot``."""
        return min(HOT, self.hosts)

    def random_window(self, dice: random.Random) -> Window:
        """Return a random window of half a day to two and a half days."""
        start = self.first + timedelta(minutes=dice.randrange(self.hours * 57))
        return Window(start, start + timedelta(minutes=dice.randrange(12 * 60, 60 * 60)))

    def hot_window(self, round_: int) -> Window:
        """Return two days without bookings; each round has its own."""
        start = self.first + timedelta(hours=self.hours, days=300 + 10 * round_)
        return Window(start, start + timedelta(days=2))

    @property
    def full_window(self) -> Window:
        """Return two days on which all hosts are booked."""
        start = self.first + timedelta(hours=self.hours, days=200)
        return Window(start, start + timedelta(days=2))


def calendar(hosts: int, bookings: int) -> Calendar:
    """Return a calendar that begins the day after tomorrow, as a run may last beyond midnight."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return Calendar(hosts, bookings, today + timedelta(days=2))
