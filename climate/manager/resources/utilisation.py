"""Utilisation: which fraction of the resources is booked in each hour, day or week of a window."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sqlalchemy.orm import Session

from climate.core.errors import InvalidInput
from climate.core.matching.occupancy import Sums, filled
from climate.core.matching.query import Compare, Operand
from climate.core.window import Window
from climate.db.resources.occupancy import sums
from climate.manager.admission.availability import check_span
from climate.manager.admission.requirements import check_names
from climate.manager.process.runtime import Runtime

MAX_SERIES, MAX_VALUES = 200, 750


class Period(StrEnum):
    """The length of the periods into which a utilisation query divides its window."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def seconds(self) -> int:
        """The length of the period in seconds."""
        return {"hour": 3_600, "day": 86_400, "week": 604_800}[self.value]


class By(StrEnum):
    """How a utilisation query groups its result into series of numbers.

    The result contains one series per resource type (TYPE), per project (PROJECT), or per value of
    a property, for example per rack (PROPERTY).
    """

    TYPE = "type"
    PROJECT = "project"
    PROPERTY = "property"


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilisationQuery:
    """The parameters of a utilisation query: which resources, when, and how to group the result.

    If ``resource_type`` is None, the query covers all types. If ``by`` is PROPERTY, ``prop`` is the
    name of the property. ``private`` states whether the requester may name private properties
    (hidden from ordinary users).
    """

    resource_type: str | None
    window: Window
    period: Period
    by: By
    prop: str | None
    private: bool


@dataclass(frozen=True, slots=True)
class Series:
    """The booked part of a group of resources in each period, from 0 (nothing) to 1 (everything).

    ``name`` is the group: a resource type, project or property value. ``capacity`` is the number of
    resources in the group; for a project, the number of all resources of the type.
    """

    name: str
    capacity: int
    values: Sequence[float]


def show(runtime: Runtime, query: UtilisationQuery) -> list[Series]:
    """Return which part of the resources is booked in each period, as one series per group.

    The series are sorted by name. The cleaning time after a lease is included. If leases share a
    resource, the booked part of the resource is that of its fullest resource class (for example
    VCPU). Raises InvalidDate, InvalidInput, InvalidQuery, UnsupportedResourceType.
    """
    check_span(query.window)
    length = query.window.end - query.window.start
    if length / timedelta(seconds=query.period.seconds) > MAX_VALUES:
        raise InvalidInput(
            f"The window has more than {MAX_VALUES} periods: request a shorter window or a longer"
            " period"
        )
    with runtime.database.snapshot() as session:
        capacities, found = _read(runtime, session, query)
    if len(capacities) > MAX_SERIES:
        raise InvalidInput(
            f"There are more than {MAX_SERIES} series: request another property, or by=type"
        )
    return _series(query, capacities, found)


def _read(
    runtime: Runtime, session: Session, query: UtilisationQuery
) -> tuple[dict[str, int], list[Sums]]:
    """Return the data of all series: how many resources each has, and sums of its bookings.

    The first result maps the name of each series to its number of resources.

    Raises InvalidInput, InvalidQuery, UnsupportedResourceType.
    """
    window, resolution = query.window, query.period.seconds
    if query.by is By.TYPE:
        types = {plugin.type_of_resources for plugin in runtime.plugins.values()}
        if query.resource_type is not None:
            types = {runtime.plugin(query.resource_type).type_of_resources}
        capacities = sums.count_types(session, types)
        return capacities, sums.of_types(session, types, window, resolution)
    if query.resource_type is None:
        raise InvalidInput(f"With by={query.by.value} a resource_type is required")
    type_ = runtime.plugin(query.resource_type).type_of_resources
    if query.by is By.PROJECT:
        if sums.count_projects(session, window) > MAX_SERIES:
            raise InvalidInput(
                f"More than {MAX_SERIES} projects have leases in the window: request a shorter one,"
                " or by=type"
            )
        found = sums.of_projects(session, type_, window, resolution)
        total = sums.count_types(session, [type_]).get(type_, 0)
        return dict.fromkeys(sorted({item.name for item in found}), total), found
    if query.prop is None:
        raise InvalidInput("With by=property a property is required")
    named = Compare("==", query.prop, Operand(""), at="in property")
    check_names(session, runtime.catalog, type_, named, private=query.private)
    capacities = sums.count_values(session, type_, query.prop, MAX_SERIES + 1)
    if len(capacities) > MAX_SERIES:
        return capacities, []
    return capacities, sums.of_values(session, type_, query.prop, window, resolution)


def _series(
    query: UtilisationQuery, capacities: dict[str, int], found: Sequence[Sums]
) -> list[Series]:
    length = int((query.window.end - query.window.start).total_seconds())
    size = query.period.seconds
    by_name = filled(found, length, size)
    lengths = [min(size, length - start) for start in range(0, length, size)]
    series = []
    for name, capacity in sorted(capacities.items()):
        seconds = by_name[name].seconds if name in by_name else [0.0] * len(lengths)
        parts = (
            occupied / (capacity * part) if capacity else 0.0
            for occupied, part in zip(seconds, lengths, strict=True)
        )
        series.append(Series(name, capacity, [round(min(1.0, max(0.0, p)), 4) for p in parts]))
    return series
