"""What every use case needs, made once by climate.service and handed over as one argument."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from climate.clock import Clock
from climate.core.errors import UnsupportedResourceType
from climate.core.selection import Preference, Selection
from climate.core.settings import Settings
from climate.db.engine import Database
from climate.enforcement import Enforcer
from climate.manager.process.long_poll import Latest
from climate.metrics import Metrics
from climate.plugins.base import ResourcePlugin
from climate.plugins.trusts import Trusts
from climate.wakeup import Wakeup


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The collaborators of the use cases; ``rng`` only spreads parallel requests and retries.

    ``wakeup`` hints at work, ``news`` at notifications with new numbers, for which ``latest`` has
    others wait. Without an ``enforcer`` nobody outside is asked about leases, without ``trusts``
    nobody's user can be acted for. ``defined`` are the names of extra properties by resource type,
    as far as they were seen: what is defined stays so.
    """

    database: Database
    clock: Clock
    plugins: Mapping[str, ResourcePlugin]
    settings: Settings
    wakeup: Wakeup
    news: Wakeup
    latest: Latest
    selection: Selection = field(default_factory=Selection)
    enforcer: Enforcer | None = None
    trusts: Trusts | None = None
    rng: random.Random = field(default_factory=random.Random)
    defined: dict[str, frozenset[str]] = field(default_factory=dict)
    metrics: Metrics = field(default_factory=Metrics)

    def close(self) -> None:
        """Close what was opened; nothing may be at work any more."""
        self.latest.close()
        self.news.close()
        self.wakeup.close()
        self.database.dispose()

    def preference(self) -> Preference:
        """Return what one request prefers."""
        return Preference(self.rng.random(), self.selection)

    def plugin(self, resource_type: str) -> ResourcePlugin:
        """Return the plugin for a type; raises UnsupportedResourceType."""
        try:
            return self.plugins[resource_type]
        except KeyError:
            known = ", ".join(sorted(self.plugins))
            raise UnsupportedResourceType(
                f"The {resource_type} resource type is not supported (enabled: {known})"
            ) from None
