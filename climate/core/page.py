"""Which part of a long list is wanted: an order, a place in it, and what is left out.

A place is the key of the last item that was seen, not a count: what is made or removed meanwhile
neither repeats nor hides anything else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from climate.core.lease.model import Lease, Resource
from climate.core.matching.query import Query
from climate.core.provisioning.preparation import Preparation
from climate.core.provisioning.shutdown import Shutdown

T = TypeVar("T")

# What leases can be sorted by; the id decides among equals.
LEASE_SORTS: Mapping[str, Callable[[Lease], Any]] = {
    "start": lambda lease: lease.window.start,
    "end": lambda lease: lease.window.end,
    "created": lambda lease: lease.created_at,
    "name": lambda lease: lease.name,
}
RESOURCE_SORTS: Mapping[str, Callable[[Resource], Any]] = {"id": lambda resource: resource.id}
PREPARATION_SORTS: Mapping[str, Callable[[Preparation], Any]] = {
    "needed": lambda preparation: preparation.needed_at
}
SHUTDOWN_SORTS: Mapping[str, Callable[[Shutdown], Any]] = {
    "wanted": lambda shutdown: shutdown.wanted_at
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Up to ``limit`` items in order of ``sort``, beyond the key (value, id) ``after``."""

    sort: str
    descending: bool
    limit: int
    after: tuple[Any, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """The items of a page, and whether there are more beyond it."""

    items: list[T]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFilter:
    """Which leases are wanted; None (or no status) is any. ``before`` and ``after`` exclude."""

    project_id: str | None = None
    statuses: tuple[str, ...] = ()
    name: str | None = None
    resource_type: str | None = None
    starts_before: datetime | None = None
    starts_after: datetime | None = None
    ends_before: datetime | None = None
    ends_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFilter:
    """Which resources are wanted: of one of these types, matching ``query``."""

    resource_types: tuple[str, ...]
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationFilter:
    """Which preparations are wanted; None (or no state) is any.

    With ``claimable_at``, those that somebody could claim then.
    """

    states: tuple[str, ...] = ()
    node: str | None = None
    lease_id: str | None = None
    hardware: str | None = None
    claimable_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownFilter:
    """Which shutdowns are wanted; None (or no state) is any.

    With ``claimable_at``, those that somebody could claim then.
    """

    states: tuple[str, ...] = ()
    node: str | None = None
    hardware: str | None = None
    claimable_at: datetime | None = None
