"""The correct decision of admission, found by trying all possibilities."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from climate.core.matching.requirement import Layout, Requirement
from tests.race.engine.bookings import Bookings

Units = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ModelDemand:
    """The need of a reservation besides the units that it has and keeps."""

    needs: Requirement
    has: Units = field(default_factory=dict)

    @property
    def minimum(self) -> int:
        return max(0, self.needs.minimum - sum(self.has.values()))

    @property
    def maximum(self) -> int:
        return max(0, self.needs.maximum - sum(self.has.values()))


@dataclass(frozen=True, slots=True)
class State:
    """The free amounts of each class, and the resources that are wholly free."""

    books: Bookings
    left: Mapping[int, Mapping[str, int]]
    untouched: frozenset[int]
    closed: frozenset[int]

    @classmethod
    def remaining(
        cls, books: Bookings, start: datetime, until: datetime, without: Sequence[str] = ()
    ) -> "State":
        """Return what is free throughout a window, without some reservations."""
        met = [
            booking
            for booking in books.bookings
            if booking.overlaps(start, until) and booking.reservation not in without
        ]
        # Of what meets the window, at no instant outside of it is more taken than inside.
        left = {
            id_: {
                name: has - books.peak(id_, name, met) for name, has in books.capacity[id_].items()
            }
            for id_ in books.resources
        }
        return cls(
            books,
            left,
            frozenset(books.resources) - {item.resource for item in met},
            frozenset(item.resource for item in met if item.name is None),
        )

    def units_on(self, needs: Requirement, resource: int) -> int:
        """Return how many units fit on a resource that matches."""
        if needs.is_whole:
            return int(resource in self.untouched)
        if resource in self.closed:
            return 0
        return max(
            0,
            min(
                self.left[resource].get(name, 0) // amount for name, amount in needs.amounts.items()
            ),
        )

    def with_units(self, needs: Requirement, units: Units) -> "State":
        """Return what is free after these units are booked, too."""
        taken = {id_ for id_, count in units.items() if count}
        left = {
            id_: {
                name: has - needs.amounts.get(name, 0) * units.get(id_, 0)
                for name, has in amounts.items()
            }
            for id_, amounts in self.left.items()
        }
        closed = self.closed | taken if needs.is_whole else self.closed
        return replace(self, left=left, untouched=self.untouched - taken, closed=closed)


def free_units(ask: ModelDemand, state: State) -> dict[int, int]:
    """Return the free units by resource, as far as the layout allows."""
    needs, books = ask.needs, state.books
    found = {
        id_: state.units_on(needs, id_)
        for id_ in books.matching(needs)
        if books.resources[id_]["reservable"]
    }
    if needs.is_whole:
        return {id_: count for id_, count in found.items() if count}
    if needs.layout is Layout.APART:
        found = {id_: min(1, count) for id_, count in found.items() if id_ not in ask.has}
    if needs.layout is Layout.TOGETHER and ask.has:
        found = {id_: count for id_, count in found.items() if id_ in ask.has}
    return {id_: count for id_, count in found.items() if count}


def most(ask: ModelDemand, state: State) -> int:
    """Return the largest number of units for a demand alone."""
    found = free_units(ask, state).values()
    together = ask.needs.layout is Layout.TOGETHER and not ask.needs.is_whole
    return min(ask.maximum, max(found, default=0) if together else sum(found))


def placements(ask: ModelDemand, state: State, count: int) -> Iterator[Units]:
    found = free_units(ask, state)
    if ask.needs.layout is Layout.TOGETHER and not ask.needs.is_whole:
        if count == 0:
            yield {}
        for id_, units_on in found.items():
            if count and units_on >= count:
                yield {id_: count}
    else:
        yield from _spread(list(found.items()), count)


def _spread(found: Sequence[tuple[int, int]], count: int) -> Iterator[Units]:
    if count == 0:
        yield {}
        return
    if sum(units_on for _, units_on in found) < count:
        return
    (id_, units_on), rest = found[0], found[1:]
    least = max(0, count - sum(more for _, more in rest))
    for here in range(min(units_on, count), least - 1, -1):
        for others in _spread(rest, count - here):
            yield {**({id_: here} if here else {}), **others}


def fits(asks: Sequence[ModelDemand], state: State) -> bool:
    """Return whether all demands can be met together."""
    if any(most(ask, state) < ask.minimum for ask in asks):
        return False
    if len(asks) <= 1:
        return True
    first, *rest = asks
    return any(
        fits(rest, state.with_units(first.needs, units))
        for units in placements(first, state, first.minimum)
    )


def must_fit(asks: Sequence[ModelDemand], state: State) -> bool:
    """Return whether a rejection would be wrong, because a simple choice meets all demands.

    A single demand, or only whole resources: if any placement exists. Otherwise: if the demands, in
    some order, are met whatever the earlier ones chose; whole resources come last, or first with
    any placement.
    """
    wholes = [ask for ask in asks if ask.needs.is_whole]
    shares = [ask for ask in asks if not ask.needs.is_whole]
    if len(asks) <= 1 or not shares:
        return fits(asks, state)
    return any(
        _blindly(order, wholes, state) or (wholes and _blindly_after(wholes, order, state))
        for order in itertools.permutations(shares)
    )


def _blindly(order: Sequence[ModelDemand], wholes: Sequence[ModelDemand], state: State) -> bool:
    """Return whether shares in this order, then whole resources, are met by any choice."""
    if not order:
        return fits(wholes, state)
    first, *rest = order
    ways = list(placements(first, state, first.minimum))
    return bool(ways) and all(
        _blindly(rest, wholes, state.with_units(first.needs, units)) for units in ways
    )


def _blindly_after(
    wholes: Sequence[ModelDemand], order: Sequence[ModelDemand], state: State
) -> bool:
    if not wholes:
        return _blindly(order, (), state)
    first, *rest = wholes
    ways = [
        units
        for count in range(first.minimum, first.maximum + 1)
        for units in placements(first, state, count)
    ]
    return bool(list(placements(first, state, first.minimum))) and all(
        _blindly_after(rest, order, state.with_units(first.needs, units)) for units in ways
    )


def can_keep(ask: ModelDemand, state: State) -> bool:
    """Return whether a reservation can keep its resources, although some may fail."""
    needs, has = ask.needs, ask.has
    there = set(state.books.matching(needs))
    laid_out = needs.is_whole or not (
        (needs.layout is Layout.TOGETHER and len(has) > 1)
        or (needs.layout is Layout.APART and max(has.values(), default=0) > 1)
    )
    enough = all(id_ in there and state.units_on(needs, id_) >= count for id_, count in has.items())
    return laid_out and enough and sum(has.values()) <= needs.maximum


def elsewhere(needs: Requirement, working: Units, count: int, state: State) -> int:
    """Return the units available for ``count`` that fail, beside those that work."""
    ask = ModelDemand(replace(needs, minimum=0, maximum=count + sum(working.values())), working)
    return most(ask, state)
