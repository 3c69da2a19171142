"""Which resources match a query, as a mask. See ``touched_hours`` for places and masks."""

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import zip_longest
from operator import and_, or_

from climate.core.matching.booked_hours.touched_hours import Mask, mask_of
from climate.core.matching.query import (
    And,
    Compare,
    Contains,
    Everything,
    In,
    Misfit,
    Not,
    Operand,
    Or,
    Query,
    as_number,
    matches,
)

# The masks of this many queries, and of their parts, are kept.
_CACHED = 512
# The masks of values that this many resources have are kept.
_FREQUENT = 64

# The value of a property. None: the resource does not have the property.
Value = str | None


class PropertyIndex:
    """The properties of resources, indexed so that a query examines values instead of resources."""

    def __init__(self) -> None:
        #: The places of all resources.
        self.present: Mask = 0
        self._columns: dict[str, _Column] = {}
        self._size = 0
        self._masks: dict[Query, Mask] = {}

    def put(self, place: int, properties: Mapping[str, str]) -> None:
        """Set the properties of the resource at ``place``."""
        self._masks.clear()
        self._size = max(self._size, place + 1)
        self.present |= 1 << place
        for name in properties.keys() - self._columns.keys():
            self._columns[name] = _Column()
        for name, column in self._columns.items():
            column.put(place, properties.get(name))

    def drop(self, place: int) -> None:
        """Remove the resource at ``place``."""
        self.put(place, {})
        self.present ^= 1 << place
        self._columns = {name: column for name, column in self._columns.items() if column.is_used}

    def matching(self, query: Query) -> Mask:
        """Return the resources whose properties match the query."""
        mask = self._masks.get(query)
        if mask is None:
            mask = self._computed(query)
            if len(self._masks) >= _CACHED:
                del self._masks[next(iter(self._masks))]
            self._masks[query] = mask
        return mask

    def _computed(self, query: Query) -> Mask:
        match query:
            case Everything() | Misfit():
                return self.present if isinstance(query, Everything) else 0
            case And():
                return reduce(and_, map(self.matching, query.parts), self.present)
            case Or():
                return reduce(or_, map(self.matching, query.parts), 0)
            case Not():
                return self.present & ~self.matching(query.part)
            case Compare() | In() | Contains():
                column = self._columns.get(query.name)
                if column is None:
                    return self.present if matches(query, {}) else 0
                return column.matching(query, self._size) & self.present


class _Column:
    """The values that one property has on all resources."""

    def __init__(self) -> None:
        # By place; may be shorter than the number of places.
        self._values: list[Value] = []
        self._used = 0
        # Computed when a query first needs them, for ``_indexed`` places.
        self._indexed = 0
        self._places: dict[Value, array[int]] = {}
        self._by_number: dict[float, list[str]] = {}
        self._masks: dict[Value, Mask] = {}

    @property
    def is_used(self) -> bool:
        """Whether a resource has the property."""
        return self._used > 0

    def put(self, place: int, value: Value) -> None:
        """Set the value of the resource at ``place``."""
        self._values += [None] * (place + 1 - len(self._values))
        before = self._values[place]
        if value == before:
            return
        self._used += (value is not None) - (before is not None)
        # Equal values of many resources share one object.
        self._values[place] = value if value is None else sys.intern(value)
        self._indexed = 0

    def matching(self, condition: Compare | In | Contains, size: int) -> Mask:
        """Return the places up to ``size`` whose values match the condition."""
        self._index(size)
        name = condition.name
        return self._union(
            value
            for value in self._candidates(condition)
            if value in self._places and matches(condition, {} if value is None else {name: value})
        )

    def _index(self, size: int) -> None:
        if self._indexed == size:
            return
        places: dict[Value, array[int]] = defaultdict(lambda: array("i"))
        for place, value in zip_longest(range(size), self._values):
            places[value].append(place)
        numbers: dict[float, list[str]] = defaultdict(list)
        for value in places:
            if value is not None and (number := as_number(value)) is not None:
                numbers[number].append(value)
        self._places, self._by_number, self._masks = dict(places), dict(numbers), {}
        self._indexed = size

    def _candidates(self, condition: Compare | In | Contains) -> Iterable[Value]:
        """Return all values that can match: few for an equality, otherwise all values."""
        match condition:
            case In():
                return {value for item in condition.values for value in self._equal(item)}
            case Compare(op="==", kind=kind) if kind != "version":
                return self._equal(condition.value)
            case _:
                return self._places

    def _equal(self, operand: Operand) -> set[Value]:
        number = operand.number
        return {None, operand.text, *(() if number is None else self._by_number.get(number, ()))}

    def _union(self, values: Iterable[Value]) -> Mask:
        mask = 0
        rare: list[int] = []
        for value in values:
            if len(self._places[value]) < _FREQUENT:
                rare += self._places[value]
            else:
                mask |= self._mask(value)
        return mask | mask_of(rare)

    def _mask(self, value: Value) -> Mask:
        if value not in self._masks:
            self._masks[value] = mask_of(self._places[value])
        return self._masks[value]
