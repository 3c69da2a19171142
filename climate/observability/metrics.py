"""Prometheus metrics of all programs, and the port that exports them.

Label values come from bounded sets: kinds of events, resource types, hardware classes, error codes,
route templates. Names that users choose are never labels. Each runtime has one ``Metrics`` with its
own registry. Times are seconds. With PROMETHEUS_MULTIPROC_DIR set, each process exports the
combined metrics of all processes that share the directory (prometheus-client's multiprocess mode).
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    start_http_server,
)
from prometheus_client.multiprocess import MultiProcessCollector

from climate.config.registry import Misconfigured
from climate.core.lease.schedule import OWN_KINDS, START

# Without the time at which each counter was created, which would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = CONTENT_TYPE_LATEST

# Each metric: its name, its help text, its labels.
_REQUESTS = (
    "climate_http_request_duration_seconds",
    "Requests by method, template of the route, and status of the answer.",
    ["method", "route", "status"],
)
_ADMISSIONS = (
    "climate_admissions",
    "Leases asked for (create) or changed (update): admitted, or the code of the refusal.",
    ["request", "outcome"],
)
_CONFLICTS = (
    "climate_transaction_conflicts",
    "Transactions that ran again, by what the database called the conflict.",
    ["reason"],
)
_EVENTS = (
    "climate_events",
    "Events by kind, and what became of them: claimed, done, retried, failed.",
    ["kind", "outcome"],
)
_LATENESS = (
    "climate_event_lateness_seconds",
    "From the moment an event was due to its first try.",
    ["kind"],
)
_READINESS = (
    "climate_lease_ready_lateness_seconds",
    "From the start of a lease until it was active, the work of the cloud included.",
)
_STARTS = (
    "climate_lease_starts",
    "Leases with hosts of a class that were got ready: ready at the start, late, or never.",
    ["hardware", "outcome"],
)
_EARLY = (
    "climate_host_ready_early_seconds",
    "From when a host was ready until it was needed; negative: it was late.",
    ["hardware"],
)
_CALLS = (
    "climate_plugin_call_duration_seconds",
    "Calls of plugins, which are done, waiting (to be called again) or failed.",
    ["resource_type", "action", "outcome"],
)
_BROKEN = (
    "climate_invariant_broken",
    "1 if the self-audit found the invariant of this number broken, else 0.",
    ["invariant"],
)
# Seconds, from unnoticeable to a case for the operator.
_LATENESS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_EARLY_BUCKETS = (-3600, -1800, -600, -300, -60, 0, 60, 300, 600, 1800, 3600)
_CALL_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

P = ParamSpec("P")
T = TypeVar("T")


class Metrics:
    """The counters and histograms of a process."""

    def __init__(self) -> None:
        """Create all metrics, in a new registry."""
        self.registry = CollectorRegistry()
        reg = self.registry
        self._requests = Histogram(*_REQUESTS, registry=reg)
        self._admissions = Counter(*_ADMISSIONS, registry=reg)
        self._conflicts = Counter(*_CONFLICTS, registry=reg)
        self._events = Counter(*_EVENTS, registry=reg)
        self._lateness = Histogram(*_LATENESS, registry=reg, buckets=_LATENESS_BUCKETS)
        self._readiness = Histogram(*_READINESS, registry=reg, buckets=_LATENESS_BUCKETS)
        self._starts = Counter(*_STARTS, registry=reg)
        self._early = Histogram(*_EARLY, registry=reg, buckets=_EARLY_BUCKETS)
        self._calls = Histogram(*_CALLS, registry=reg, buckets=_CALL_BUCKETS)
        self._broken = Gauge(*_BROKEN, registry=reg, multiprocess_mode="mostrecent")
        # Few label sets, used very often: looking up a series takes longer than counting.
        self._event = lru_cache(maxsize=None)(self._events.labels)
        self._late = lru_cache(maxsize=None)(self._lateness.labels)
        self._call = lru_cache(maxsize=None)(self._calls.labels)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an HTTP request; ``route`` is a template, never a path."""
        label_value = method if method in _METHODS else "other"
        self._requests.labels(label_value, route, str(status)).observe(seconds)

    def admission(self, request: str, outcome: str) -> None:
        """Count the outcome of a request to create or change a lease."""
        self._admissions.labels(request, outcome).inc()

    def conflict(self, reason: str) -> None:
        """Count a transaction that runs again."""
        self._conflicts.labels(reason).inc()

    def event(self, kind: str, outcome: str) -> None:
        """Count an event that a manager claimed, or its outcome."""
        self._event(label(kind), outcome).inc()

    def tried(self, kind: str, late: timedelta) -> None:
        """Observe how late the first attempt of an event is."""
        self._late(label(kind)).observe(max(0.0, late.total_seconds()))

    def done(self, kind: str, late: timedelta) -> None:
        """Count an event that is done; for a start, observe how late the lease is active."""
        self.event(kind, "done")
        if kind == START:
            self._readiness.observe(max(0.0, late.total_seconds()))

    def started(self, hardware: str, outcome: str) -> None:
        """Count a lease by whether its hosts of a hardware class were ready at its start."""
        self._starts.labels(hardware, outcome).inc()

    def host_ready(self, hardware: str, early: float) -> None:
        """Observe how early a host is ready for its lease; negative if it is late."""
        self._early.labels(hardware).observe(early)

    @contextmanager
    def call(self, resource_type: str, action: str, waiting: type[Exception]) -> Iterator[None]:
        """Measure a call of a plug-in; it raises ``waiting`` if the manager must call it again."""
        began, outcome = time.monotonic(), "failed"
        try:
            yield
            outcome = "done"
        except waiting:
            outcome = "waiting"
            raise
        finally:
            calls = self._call(resource_type, action, outcome)
            calls.observe(time.monotonic() - began)

    def invariant(self, number: int, *, broken: bool) -> None:
        """Set whether an invariant is violated."""
        self._broken.labels(str(number)).set(broken)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(_exposed(self.registry))


class HasMetrics(Protocol):
    """A runtime with metrics."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of the process."""


R = TypeVar("R", bound=HasMetrics)


def counted(
    request: str,
) -> Callable[[Callable[Concatenate[R, P], T]], Callable[Concatenate[R, P], T]]:
    """Return a decorator that counts the outcomes of a use case as those of ``request``."""

    def decorate(use_case: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
        @wraps(use_case)
        def run(runtime: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
            outcome = "error"
            try:
                result = use_case(runtime, *args, **kwargs)
                outcome = "admitted"
            except Exception as error:
                outcome = str(getattr(error, "code", outcome))
                raise
            finally:
                runtime.metrics.admission(request, outcome)
            return result

        return run

    return decorate


def label(kind: str) -> str:
    """Return the label of a kind of event: ``user`` for all kinds that users define."""
    return kind if kind in OWN_KINDS else "user"


def is_shared() -> bool:
    """Return whether several processes share their metrics; gauges of a process are off then."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ


def _exposed(registry: CollectorRegistry) -> CollectorRegistry:
    if not is_shared():
        return registry
    everything = CollectorRegistry()
    MultiProcessCollector(everything)  # type: ignore[no-untyped-call]
    return everything


class Exporter:
    """Serves the metrics on a port of its own, for a process that serves no API."""

    def __init__(self, metrics: Metrics, host: str, port: int | None) -> None:
        """Prepare the server; without a ``port`` it never listens."""
        self._registry = _exposed(metrics.registry)
        self._address = (host, port)
        self._server: WSGIServer | None = None

    def start(self) -> None:
        """Listen, in a thread; raises Misconfigured if the port cannot be opened."""
        host, port = self._address
        if port is None:
            return
        try:
            self._server, _ = start_http_server(port, host, self._registry)
        except OSError as error:
            where = f"{host}:{port}"
            raise Misconfigured(f"no metrics on {where}: {error.strerror or error}") from error

    def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def state(registry: CollectorRegistry, name: str, text: str, read: Callable[[], Any]) -> None:
    """Add a gauge that calls ``read`` for its value at each export."""
    if not is_shared():
        Gauge(name, text, registry=registry).set_function(read)
