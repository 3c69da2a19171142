"""Views for load balancers, supervisors and Prometheus: liveness, readiness and metrics."""

from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from climate.api.call import Answer, Api
from climate.core.errors import NotFound
from climate.db.engine import schema
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.process import heartbeat
from climate.manager.process.runtime import Runtime
from climate.observability.metrics import CONTENT_TYPE

# A dispatcher without a database query for this many poll intervals is stuck.
_MAX_MISSED_POLLS = 10


def healthz(_api: Api) -> tuple[Any, int]:
    """Return 200 while the process serves requests."""
    return {"status": "ok"}, 200


def readyz(api: Api) -> tuple[Any, int]:
    """Return 200 if the process can serve requests that read and write; otherwise 503.

    The database must answer and accept writes, and its schema must match this release. If a manager
    runs in this process, it must also have queried for due events recently. ``warnings`` in the
    answer names absent managers and stalled periodic tasks. Warnings do not change the status: this
    process can still admit leases, and the cause can be in another process.
    """
    checks = {"database": "ok", "schema": "ok"}
    warnings: list[str] = []
    try:
        _check_schema(api, checks)
        if checks["schema"] == "ok":
            beats = heartbeat.find_beats(api.runtime.store)
            warnings = beats.warnings()
            if (error := api.write_trials.error(beats)) is not None:
                checks["database"] = f"cannot be written ({type(error).__name__})"
    except SQLAlchemyError as error:
        checks["database"] = f"does not answer ({type(error).__name__})"
        checks["schema"] = "unknown"
    if api.dispatcher is not None:
        checks["manager"] = _tick(api.runtime, api.dispatcher)
    ready = all(state == "ok" for state in checks.values())
    answer = {"status": "ready" if ready else "not ready", "checks": checks}
    return answer | ({"warnings": warnings} if warnings else {}), 200 if ready else 503


def _check_schema(api: Api, checks: dict[str, str]) -> None:
    try:
        schema.check(api.runtime.database)
    except schema.UnknownSchema:
        # The process started with a known schema, so a rolling upgrade is in progress. The
        # previous release works with a migrated schema.
        pass
    except schema.SchemaMismatch as error:
        checks["schema"] = str(error)


def metrics(api: Api) -> Answer:
    """Return the metrics of this process as text for Prometheus.

    If a manager runs in this process, the text includes its metrics. Raises NotFound unless ``[api]
    metrics`` is set.
    """
    if not api.conf.api.metrics:
        raise NotFound("There are no metrics here: see [api] metrics")
    return api.runtime.metrics.exposition().decode(), 200, {"Content-Type": CONTENT_TYPE}


def _tick(runtime: Runtime, dispatcher: Dispatcher) -> str:
    last = dispatcher.last_tick
    if last is None:
        return "has not queried for due events yet"
    age = runtime.clock.elapsed() - last
    limit = max(1.0, runtime.settings.poll_interval) * _MAX_MISSED_POLLS
    return "ok" if age <= limit else f"last queried for due events {age:.0f} s ago"
