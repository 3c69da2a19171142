"""Runtime: the collaborators of use cases; ``climate.bootstrap`` creates it once per process.

A function receives only the part that it needs: ``Store``, ``Catalog`` or ``Settings``. It receives
the whole ``Runtime`` only to pass it on to functions that need several parts.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from climate.clock import Clock
from climate.core.errors import UnsupportedResourceType
from climate.core.matching.selection import Preference, Selection
from climate.core.settings import Settings
from climate.db.engine.database import Database
from climate.db.wakeup import Wakeup
from climate.manager.enforcement import Enforcer
from climate.manager.process.deletion_waits import DeletionWaits
from climate.manager.process.long_poll import LongPoll
from climate.observability.metrics import Metrics
from climate.plugins.base import ResourcePlugin
from climate.plugins.openstack.trusts import Trusts

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Store:
    """The database, and the clock that provides the times that are stored in it."""

    database: Database
    clock: Clock


class Plugins(dict[str, ResourcePlugin]):
    """The plug-ins by resource type; raises UnsupportedResourceType for any other type."""

    def __missing__(self, resource_type: str) -> ResourcePlugin:
        enabled = ", ".join(sorted(self))
        raise UnsupportedResourceType(
            f"The {resource_type} resource type is not supported (enabled: {enabled})"
        )


@dataclass(frozen=True, slots=True)
class Catalog:
    """The resource types with their plug-ins, and how to choose among resources."""

    plugins: Plugins
    selection: Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The collaborators of the use cases.

    ``wakeup`` and ``news`` are hints between processes; a lost hint costs at most one poll
    interval. ``wakeup``: an event was written. ``news``: notifications got numbers. ``latest``
    wakes requests that wait for new notifications. ``deletions`` limits the requests that wait for
    the deletion of a lease. ``rng`` lets parallel requests begin with
    different resources, and varies the pauses before retries. Without an ``enforcer`` no
    enforcement service is called. Without ``trusts`` no plug-in can act as a user. ``store`` and
    ``catalog`` group some of the other fields.
    """

    database: Database
    clock: Clock
    plugins: Mapping[str, ResourcePlugin]
    settings: Settings
    wakeup: Wakeup
    news: Wakeup
    latest: LongPoll
    deletions: DeletionWaits
    selection: Selection = field(default_factory=Selection)
    enforcer: Enforcer | None = None
    trusts: Trusts | None = None
    rng: random.Random = field(default_factory=random.Random)
    metrics: Metrics = field(default_factory=Metrics)
    store: Store = field(init=False)
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        # In a frozen dataclass, fields can only be set like this.
        object.__setattr__(self, "store", Store(self.database, self.clock))
        catalog = Catalog(Plugins(self.plugins), self.selection)
        object.__setattr__(self, "catalog", catalog)

    def close(self) -> None:
        """Close all connections; no other thread may use the runtime any more."""
        self.latest.close()
        self.news.close()
        self.wakeup.close()
        self.database.dispose()

    def preference(self) -> Preference:
        """Return the preference by which one request orders resources; it varies by request."""
        return Preference(self.rng.random(), self.selection)

    def plugin(self, resource_type: str) -> ResourcePlugin:
        """Return the plug-in for a type; raises UnsupportedResourceType."""
        return self.catalog.plugins[resource_type]


def reading(query: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[Runtime, P], T]:
    """Return a use case that runs a database query in its own read transaction."""

    def use_case(runtime: Runtime, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with runtime.database.read() as session:
            return query(session, *args, **kwargs)

    return use_case
