"""Backlog metrics: due events, unpublished notifications, hosts to prepare, and managers alive.

climate queries the database for these values whenever Prometheus reads the metrics. Each time, it
executes six SQL statements (eight with provisioning) on a bounded number of rows. ``collect``
raises no database error, because one of the metrics states whether the database is available.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from climate.core.provisioning.preparation import PreparationState
from climate.db import managers
from climate.db.engine.database import Database
from climate.db.events import queue as event_queue
from climate.db.notifications import outbox
from climate.db.provisioning import preparations
from climate.manager.process.runtime import Runtime
from climate.observability.metrics import Metrics, is_shared, label, state

# Counts stop here, so that reading metrics stays cheap even with a long backlog.
_MOST = 10_000
_DATABASE_UP = "climate_database_up", "1 if the database answers, else 0."


@dataclass(eq=False, slots=True)
class Backlog(Collector):
    """A Prometheus collector that queries the database whenever Prometheus reads the metrics."""

    runtime: Runtime

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; if the database is unavailable, yield only ``climate_database_up``."""
        now = self.runtime.clock.now()
        try:
            with self.runtime.database.read() as session:
                due = event_queue.count_due(session, now, _MOST)
                rows, oldest = outbox.lag(session, _MOST)
                prepared = list(self._preparations(session, now))
                alive, beat = len(managers.alive(session, now)), managers.last_beat(session)
        except SQLAlchemyError:
            yield Gauge(*_DATABASE_UP, 0)
            return
        yield Gauge(*_DATABASE_UP, 1)
        yield _by_kind(due)
        yield Gauge("climate_outbox_lag_rows", "Notifications not published yet.", rows)
        waited = (now - oldest).total_seconds() if oldest else 0.0
        text = "Age of the oldest unpublished notification."
        yield Gauge("climate_outbox_lag_seconds", text, max(0.0, waited))
        yield Gauge("climate_managers", "Managers with a heartbeat in the last 30 s.", alive)
        if beat is not None:
            age = max(0.0, (now - beat).total_seconds())
            text = "Age of the latest heartbeat of all managers."
            yield Gauge("climate_manager_heartbeat_age_seconds", text, age)
        yield from prepared

    def _preparations(self, session: Session, now: datetime) -> Iterator[Metric]:
        if self.runtime.settings.provisioning is None:
            return
        yield _by_state(preparations.counts(session, _MOST))
        unclaimed = preparations.count_unclaimed(session, now, _MOST)
        text = "Preparations that no provisioner has claimed for 30 s."
        yield Gauge("climate_preparations_unclaimed", text, unclaimed)


def _by_kind(due: dict[str, int]) -> Metric:
    text = "Due events that no manager has claimed, by kind."
    family = Gauge("climate_events_due", text, labels=["kind"])
    counts: Counter[str] = Counter()
    for kind, count in due.items():
        counts[label(kind)] += count
    for kind, count in sorted(counts.items()):
        family.add_metric([kind], count)
    return family


def _by_state(counts: Mapping[str, int]) -> Metric:
    text = "Open preparations of hosts, by state."
    family = Gauge("climate_preparations", text, labels=["state"])
    for progress in PreparationState:
        if progress is not PreparationState.OVER:
            family.add_metric([progress.value], counts.get(progress.value, 0))
    return family


def show_backlog(runtime: Runtime) -> None:
    """Register the backlog metrics with the metrics of this process.

    Does nothing if several processes share their metrics.
    """
    if not is_shared():
        runtime.metrics.registry.register(Backlog(runtime))


def show_pool(metrics: Metrics, database: Database) -> None:
    """Register two metrics of database connections: the number in use, and the maximum number.

    Does nothing if several processes share their metrics.
    """
    used, most = database.connections()
    name, registry = "climate_database_connections", metrics.registry
    state(registry, f"{name}_used", "Database connections in use.", used)
    state(registry, f"{name}_most", "Largest number of database connections.", most)
