"""Backlog metrics: due events, unpublished notifications, and hosts to prepare.

The values are queried whenever Prometheus reads the metrics. That executes four SQL statements
(five with provisioning) on a bounded number of rows. ``collect`` raises no database error: whether
the database is available is itself a metric.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from climate.core.provisioning.preparation import PreparationState
from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.notifications import outbox
from climate.db.provisioning import preparations
from climate.manager.process.runtime import Runtime
from climate.observability.metrics import Metrics, is_shared, label, state

# Counts stop here, so that reading metrics stays cheap even with a long backlog.
MOST = 10_000


@dataclass(eq=False, slots=True)
class Backlog(Collector):
    """Queries the database whenever metrics are read."""

    runtime: Runtime

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; only ``climate_database_up`` if the database is unavailable."""
        now = self.runtime.clock.now()
        try:
            with self.runtime.database.read() as session:
                due = event_queue.count_due(session, now, MOST)
                rows, oldest = outbox.lag(session, MOST)
                prepared = preparations.counts(session, MOST) if self._is_provisioning else None
        except SQLAlchemyError:
            yield _gauge("climate_database_up", "1 if the database answers, else 0.", 0)
            return
        yield _gauge("climate_database_up", "1 if the database answers, else 0.", 1)
        yield _by_kind(due)
        yield _gauge("climate_outbox_lag_rows", "Notifications not published yet.", rows)
        waited = (now - oldest).total_seconds() if oldest else 0.0
        yield _gauge(
            "climate_outbox_lag_seconds",
            "Age of the oldest unpublished notification.",
            max(0.0, waited),
        )
        if prepared is not None:
            yield _by_state(prepared)

    @property
    def _is_provisioning(self) -> bool:
        return self.runtime.settings.provisioning is not None


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)


def _by_kind(due: dict[str, int]) -> Metric:
    text = "Due events that no manager has claimed, by kind."
    family = GaugeMetricFamily("climate_events_due", text, labels=["kind"])
    counts: dict[str, int] = {}
    for kind, count in due.items():
        counts[label(kind)] = counts.get(label(kind), 0) + count
    for kind, count in sorted(counts.items()):
        family.add_metric([kind], count)
    return family


def _by_state(counts: Mapping[str, int]) -> Metric:
    text = "Open preparations of hosts, by state."
    family = GaugeMetricFamily("climate_preparations", text, labels=["state"])
    for progress in PreparationState:
        if progress is not PreparationState.OVER:
            family.add_metric([progress.value], counts.get(progress.value, 0))
    return family


def show_backlog(runtime: Runtime) -> None:
    """Register the backlog metrics of a manager; does nothing if processes share metrics."""
    if not is_shared():
        runtime.metrics.registry.register(Backlog(runtime))


def show_pool(metrics: Metrics, database: Database) -> None:
    """Register metrics of database connections: how many are in use, and how many may be.

    Does nothing if processes share metrics.
    """
    used, most = database.connections()
    state(
        metrics.registry, "climate_database_connections_used", "Database connections in use.", used
    )
    state(
        metrics.registry,
        "climate_database_connections_most",
        "Largest number of database connections.",
        most,
    )
