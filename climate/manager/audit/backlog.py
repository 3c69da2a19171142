"""What waits, as metrics that are asked for when they are read: due events, unsent notifications.

And hosts that are to be ready, if any are got ready. One look costs four statements (five) that
see a bounded number of rows, and never raises: a database that is away is itself a metric.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from climate.core.preparation import PreparationState
from climate.db import events, outbox, preparing
from climate.db.engine import Database
from climate.manager.process.runtime import Runtime
from climate.metrics import Metrics, is_shared, label, state

# More than so many are told as so many.
MOST = 10_000


@dataclass(eq=False, slots=True)
class Backlog(Collector):
    """Looks at the database for each reader of the metrics."""

    runtime: Runtime

    def collect(self) -> Iterator[Metric]:
        """Return what waits; only that the database is away, if it is."""
        now = self.runtime.clock.now()
        try:
            with self.runtime.database.read() as session:
                due = events.count_due(session, now, MOST)
                rows, oldest = outbox.lag(session, MOST)
                prepared = preparing.counts(session, MOST) if self._is_provisioning else None
        except SQLAlchemyError:
            yield _gauge("climate_database_up", "1 if the database answers, else 0.", 0)
            return
        yield _gauge("climate_database_up", "1 if the database answers, else 0.", 1)
        yield _by_kind(due)
        yield _gauge("climate_outbox_lag_rows", "Notifications not published yet.", rows)
        waited = (now - oldest).total_seconds() if oldest else 0.0
        yield _gauge("climate_outbox_lag_seconds", "Age of the oldest of these.", max(0.0, waited))
        if prepared is not None:
            yield _by_state(prepared)

    @property
    def _is_provisioning(self) -> bool:
        return self.runtime.settings.provisioning is not None


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _by_kind(due: dict[str, int]) -> Metric:
    text = "Events that are due and that nobody is at, by kind."
    family = GaugeMetricFamily("climate_events_due", text, labels=["kind"])
    counts: dict[str, int] = {}
    for kind, count in due.items():
        counts[label(kind)] = counts.get(label(kind), 0) + count
    for kind, count in sorted(counts.items()):
        family.add_metric([kind], count)
    return family


def _by_state(counts: Mapping[str, int]) -> Metric:
    text = "Hosts that are to be ready for a lease, by state."
    family = GaugeMetricFamily("climate_preparations", text, labels=["state"])
    for one in PreparationState:
        if one is not PreparationState.OVER:
            family.add_metric([one.value], counts.get(one.value, 0))
    return family


def show_backlog(runtime: Runtime) -> None:
    """Have the metrics of a manager tell what waits."""
    if not is_shared():
        runtime.metrics.registry.register(Backlog(runtime))


def show_pool(metrics: Metrics, database: Database) -> None:
    """Have the metrics tell how many connections are in use, and how many there may be."""
    used, most = database.connections()
    state(metrics.registry, "climate_database_connections_used", "Connections in use.", used)
    state(metrics.registry, "climate_database_connections_most", "The most there may be.", most)
