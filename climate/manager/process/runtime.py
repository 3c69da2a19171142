"""Runtime: the objects that use cases need; ``climate.cmd.bootstrap`` creates it once per process.

A function that needs one part of the runtime takes only this part as a parameter: ``Store``,
``Catalog`` or ``Settings``. A function that needs several parts, for itself or for functions that
it calls, takes the whole ``Runtime``.
"""

import difflib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from climate.clock import Clock
from climate.core.errors import UnsupportedResourceType
from climate.core.matching.property_type import Types
from climate.core.matching.selection import Preference, Selection
from climate.core.settings import Settings
from climate.db.engine.database import Database
from climate.db.wakeup import Wakeup
from climate.manager.enforcement import Enforcer
from climate.manager.process.calendar_memory.memory import CalendarMemory
from climate.manager.process.cleaning_times import CleaningTimes
from climate.manager.process.creation_times import CreationTimes
from climate.manager.process.deletion_waits import DeletionWaits
from climate.manager.process.lead_times import LeadTimes
from climate.manager.process.long_poll import LongPoll
from climate.observability.metrics import Metrics
from climate.plugins.base import ResourcePlugin
from climate.plugins.openstack.trusts import Trusts

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Store:
    """The database, and the clock whose times climate stores in it."""

    database: Database
    clock: Clock


class Plugins(dict[str, ResourcePlugin]):
    """A dictionary of plug-ins by resource type.

    Access to a type that is not enabled raises UnsupportedResourceType.
    """

    def __missing__(self, resource_type: str) -> ResourcePlugin:
        enabled = sorted(self)
        similar = difflib.get_close_matches(resource_type, enabled, n=1)
        suggestion = f". Did you mean {similar[0]}?" if similar else ""
        raise UnsupportedResourceType(
            f"The {resource_type} resource type is not supported{suggestion}"
            f" (enabled: {', '.join(enabled)})"
        )


@dataclass(frozen=True, slots=True)
class Catalog:
    """The plug-ins by resource type, and the operator's rules for choosing resources.

    ``property_types`` are the declared types of properties, by which expressions compare values.
    """

    plugins: Plugins
    selection: Selection
    property_types: Types = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The objects that the use cases of a process need.

    - ``wakeup`` and ``news`` send hints between processes. A hint of ``wakeup`` means that an event
      was written. A hint of ``news`` means that there are new notifications. If a hint is lost,
      other processes notice the news at most one poll interval later.
    - ``latest`` wakes requests that wait for new notifications.
    - ``deletions`` limits the requests that wait for the deletion of a lease.
    - ``rng`` is a source of random numbers. It lets parallel requests begin with different
      resources, and varies the pauses before retries.
    - ``calendar`` is the calendar in memory.
    - ``enforcer`` is None if no enforcement service is configured.
    - ``trusts`` is None if no plug-in can act as a user.
    - ``creation_times`` estimates how early climate must begin to create servers, volumes,
      networks and stacks. It is None if climate creates nothing before the start of a lease.
    - ``cleaning_times`` estimates how long bare-metal nodes are cleaned after a lease. It is None
      if climate does not learn this.
    - ``lead_times`` estimates how long the preparation of hosts takes. It is None if climate
      prepares no hosts.
    - ``store`` and ``catalog`` group some of the other fields.
    """

    database: Database
    clock: Clock
    plugins: Mapping[str, ResourcePlugin]
    settings: Settings
    wakeup: Wakeup
    news: Wakeup
    latest: LongPoll
    deletions: DeletionWaits
    calendar: CalendarMemory
    selection: Selection = field(default_factory=Selection)
    enforcer: Enforcer | None = None
    trusts: Trusts | None = None
    rng: random.Random = field(default_factory=random.Random)
    metrics: Metrics = field(default_factory=Metrics)
    lead_times: LeadTimes | None = field(init=False)
    creation_times: CreationTimes | None = field(init=False)
    cleaning_times: CleaningTimes | None = field(init=False)
    store: Store = field(init=False)
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        # In a frozen dataclass, fields can only be set like this.
        provisioning = self.settings.provisioning
        object.__setattr__(self, "lead_times", LeadTimes(provisioning) if provisioning else None)
        creation = self.settings.creation
        object.__setattr__(self, "creation_times", CreationTimes(creation) if creation else None)
        cleaning = self.settings.cleaning
        object.__setattr__(self, "cleaning_times", CleaningTimes(cleaning) if cleaning else None)
        object.__setattr__(self, "store", Store(self.database, self.clock))
        types = self.settings.property_types
        catalog = Catalog(Plugins(self.plugins), self.selection, types)
        object.__setattr__(self, "catalog", catalog)

    def close(self) -> None:
        """Close all connections. No other thread may use the runtime afterwards."""
        self.calendar.close()
        self.latest.close()
        self.news.close()
        self.wakeup.close()
        self.database.dispose()

    def preference(self, *, packs: bool = False) -> Preference:
        """Return the order in which one request tries resources.

        Each call returns another order, chosen at random. But if ``packs`` is set, or the operator
        wants it, resources with low ids come first.
        """
        is_packed = packs or self.settings.packs_hosts
        return Preference(0.0 if is_packed else self.rng.random(), self.selection)

    def plugin(self, resource_type: str) -> ResourcePlugin:
        """Return the plug-in for a resource type; raises UnsupportedResourceType."""
        return self.catalog.plugins[resource_type]


def reading(query: Callable[Concatenate[Session, P], T]) -> Callable[Concatenate[Runtime, P], T]:
    """Return a use case: a function that runs ``query`` in its own read transaction.

    The use case has the parameters of ``query``, but takes a runtime instead of the session.
    """

    def use_case(runtime: Runtime, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with runtime.database.read() as session:
            return query(session, *args, **kwargs)

    return use_case
