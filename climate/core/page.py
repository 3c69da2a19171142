"""Filters and pages of lists.

A page starts after the key of the last item of the previous page, not at an offset. So items that
are created or removed meanwhile do not make others appear twice or not at all.
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

# Sort keys of leases; the id breaks ties.
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
    """Request for ``limit`` items in the order of ``sort``, after the key (value, id) ``after``."""

    sort: str
    descending: bool
    limit: int
    after: tuple[Any, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[T]):
    """The items of a page, and whether more follow."""

    items: list[T]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseFilter:
    """Conditions on leases; None (or no status) matches any. Bounds are exclusive."""

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
    """Conditions on resources: one of these types, matching ``query``."""

    resource_types: tuple[str, ...]
    query: Query


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparationFilter:
    """Conditions on preparations; None (or no state) matches any.

    ``claimable_at`` selects those that a provisioner could claim at that time.
    """

    states: tuple[str, ...] = ()
    node: str | None = None
    lease_id: str | None = None
    hardware: str | None = None
    claimable_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownFilter:
    """Conditions on shutdowns; None (or no state) matches any.

    ``claimable_at`` selects those that a provisioner could claim at that time.
    """

    states: tuple[str, ...] = ()
    node: str | None = None
    hardware: str | None = None
    claimable_at: datetime | None = None
