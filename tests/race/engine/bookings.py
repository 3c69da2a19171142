"""The bookings in the rows, checked by brute force."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from climate.core.matching.query import matches
from climate.core.matching.requirement import EXCLUSIVE, Layout, Requirement
from tests.race.engine import kinds
from tests.support.rows import Rows

Row = Mapping[str, Any]
LIVE = {"PENDING", "STARTING", "ACTIVE"}


@dataclass(frozen=True, slots=True)
class Booking:
    """An allocation; without ``name`` it is the whole resource."""

    resource: int
    reservation: str | None
    start: datetime
    until: datetime
    name: str | None
    amount: int

    def overlaps(self, start: datetime, end: datetime) -> bool:
        return self.start < end and start < self.until


class Bookings:
    """All resources and bookings."""

    def __init__(self, rows: Rows) -> None:
        self.leases = {row["id"]: row for row in rows["leases"]}
        self.reservations = {row["id"]: row for row in rows["reservations"]}
        self.resources = {row["id"]: row for row in rows["resources"]}
        self.properties: dict[int, dict[str, str]] = defaultdict(dict)
        for row in rows["resource_properties"]:
            self.properties[row["resource_id"]][row["name"]] = row["value"]
        self.capacity: dict[int, dict[str, int]] = defaultdict(dict)
        for row in rows["inventories"]:
            amount = math.floor((row["total"] - row["reserved"]) * row["allocation_ratio"])
            self.capacity[row["resource_id"]][row["resource_class"]] = amount
        self.bookings = [
            Booking(
                row["resource_id"],
                row["reservation_id"],
                row["start_at"],
                row["busy_until"],
                row["resource_class"],
                row["amount"] or 0,
            )
            for row in rows["allocations"]
        ]
        self.on: dict[int, list[Booking]] = defaultdict(list)
        self.of: dict[str | None, list[Booking]] = defaultdict(list)
        for booking in self.bookings:
            self.on[booking.resource].append(booking)
            self.of[booking.reservation].append(booking)

    def reservations_of(self, lease_id: str) -> list[Row]:
        found = [row for row in self.reservations.values() if row["lease_id"] == lease_id]
        return sorted(found, key=lambda row: row["position"])

    def matching(self, needs: Requirement) -> list[int]:
        """Return the resources of the type that match, whatever is booked."""
        return [
            id_
            for id_, row in self.resources.items()
            if row["type"] == needs.resource_type and matches(needs.query, self.properties[id_])
        ]

    def peak(self, resource: int, name: str, among: Collection[Booking]) -> int:
        """Return the largest amount of a class that is booked at one instant."""
        mine = [item for item in among if item.resource == resource and item.name == name]
        return max(
            (
                sum(other.amount for other in mine if other.start <= item.start < other.until)
                for item in mine
            ),
            default=0,
        )

    def units(self, reservation_id: str, needs: Requirement) -> dict[int, int]:
        """Return the reservation's units by resource; raises ValueError for a partial unit."""
        taken: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for item in self.of[reservation_id]:
            if item.name != EXCLUSIVE:
                taken[item.resource][item.name or ""] += item.amount
        found = {}
        for resource, amounts in taken.items():
            wanted = dict(needs.amounts) or {"": 0}
            count = min(amounts[name] // wanted[name] if name else 1 for name in wanted)
            if amounts != {name: amount * count for name, amount in wanted.items()}:
                raise ValueError(f"{dict(amounts)} of {resource} are no units of {wanted}")
            found[resource] = count
        return found


def violations(rows: Rows, now: datetime, cleaning: timedelta = timedelta()) -> list[str]:
    """Return each violated rule as a sentence."""
    books = Bookings(rows)
    return [
        *_conflicts(books),
        *(
            f"reservation {reservation['id']} ({lease['status']}): {wrong}"
            for lease in books.leases.values()
            for reservation in books.reservations_of(lease["id"])
            for wrong in (
                *_wrong_times(books, lease, reservation, cleaning),
                *_wrong_units(books, lease, reservation, now),
            )
        ),
    ]


def _conflicts(books: Bookings) -> Iterator[str]:
    """No class is ever over capacity, and a whole booking is alone."""
    for resource, mine in books.on.items():
        for number, one in enumerate(mine):
            for other in mine[:number]:
                if None in {one.name, other.name} and one.overlaps(other.start, other.until):
                    yield f"resource {resource} is taken as a whole beside another: {one}, {other}"
                is_exclusive = EXCLUSIVE in {one.name, other.name}
                is_shared = one.reservation != other.reservation
                if is_exclusive and is_shared and one.overlaps(other.start, other.until):
                    yield f"resource {resource} is not exclusive: {one}, {other}"
        for name in {item.name for item in mine if item.name} - {EXCLUSIVE}:
            peak, there = books.peak(resource, name, mine), books.capacity[resource].get(name, 0)
            if peak > there:
                yield f"{peak} of the {there} {name} of resource {resource} are taken at once"


def _wrong_times(
    books: Bookings, lease: Row, reservation: Row, cleaning: timedelta
) -> Iterator[str]:
    if lease["status"] == "DELETING":
        return
    for item in books.of[reservation["id"]]:
        if item.start < lease["start_at"] or item.until != lease["end_at"] + cleaning:
            yield f"booked {item.start} .. {item.until}, not as {lease}"


def _wrong_units(books: Bookings, lease: Row, reservation: Row, now: datetime) -> Iterator[str]:
    """A live reservation has what it requested, on resources that match."""
    if lease["status"] not in LIVE or lease["end_at"] <= now:
        return
    needs = kinds.requirement(reservation["resource_type"], reservation["params"])
    try:
        units = books.units(reservation["id"], needs)
    except ValueError as error:
        yield str(error)
        return
    if not needs.minimum <= sum(units.values()) <= needs.maximum:
        yield f"has {units}, wants {needs.minimum} to {needs.maximum}"
    if needs.layout is Layout.TOGETHER and len(units) > 1:
        yield f"is not together: {units}"
    if needs.layout is Layout.APART and max(units.values(), default=0) > 1:
        yield f"is not apart: {units}"
    if not set(units) <= set(books.matching(needs)):
        yield f"has what does not match: {units}"
    yield from _wrong_marks(books, reservation, units, needs)
    untimely = [
        item for item in books.of[reservation["id"]] if item.start > max(lease["start_at"], now)
    ]
    if untimely:
        yield f"does not have from the start: {untimely}"


def _wrong_marks(
    books: Bookings, reservation: Row, units: Mapping[int, int], needs: Requirement
) -> Iterator[str]:
    """An exclusive reservation has one mark on each of its resources, any other has none."""
    booked = books.of[reservation["id"]]
    marks = sorted(item.resource for item in booked if item.name == EXCLUSIVE)
    if marks != (sorted(units) if needs.exclusive else []):
        yield f"marks {marks} as exclusive, has {units}"
