"""Prometheus metrics of a process: their definitions, and methods that record values.

Label values come from bounded sets: event kinds, resource types, hardware classes, error codes,
route templates. A name that a user chose is never a label value. Times are in seconds. Each runtime
has one ``Metrics`` with its own registry. If PROMETHEUS_MULTIPROC_DIR is set, the processes that
share this directory export combined metrics (prometheus-client's multiprocess mode).
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

# prometheus-client would add a ``_created`` series to each counter; no dashboard uses them.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE = CONTENT_TYPE_LATEST

# Each metric: its name, its help text, its labels.
_REQUESTS = (
    "climate_http_request_duration_seconds",
    "HTTP requests by method, route template and response status.",
    ["method", "route", "status"],
)
_ADMISSIONS = (
    "climate_admissions",
    "Requests to create or update leases: admitted, or the error code of the rejection.",
    ["request", "outcome"],
)
_CONFLICTS = (
    "climate_transaction_conflicts",
    "Transactions that ran again after a conflict, by the database's reason.",
    ["reason"],
)
_QUESTIONS = (
    "climate_calendar_questions",
    "Questions about free capacity, by where the answer came from: memory or SQL.",
    ["source"],
)
_EVENTS = (
    "climate_events",
    "Events by kind and outcome: claimed, done, retried, failed.",
    ["kind", "outcome"],
)
_LATENESS = (
    "climate_event_lateness_seconds",
    "Time from when an event was due to its first attempt.",
    ["kind"],
)
_READINESS = (
    "climate_lease_ready_lateness_seconds",
    "Time from the start of a lease until it was active, including the cloud's work.",
)
_STARTS = (
    "climate_lease_starts",
    "Leases with prepared hosts of a hardware class: ready at the start, late, or never.",
    ["hardware", "outcome"],
)
_EARLY = (
    "climate_host_ready_early_seconds",
    "Time from when a host was ready until it was needed; negative if it was late.",
    ["hardware"],
)
_CREATED = (
    "climate_created_early_seconds",
    "Time from when what climate creates was ready until the lease started; negative: late.",
    ["resource_type"],
)
_CLEANED = (
    "climate_node_cleaning_seconds",
    "Time from when the end of a lease began until its bare-metal node was available again.",
    ["resource_class"],
)
_CALLS = (
    "climate_plugin_call_duration_seconds",
    "Plug-in calls by outcome: done, waiting (called again later) or failed.",
    ["resource_type", "action", "outcome"],
)
_BROKEN = (
    "climate_invariant_broken",
    "1 if the self-audit found this invariant violated, else 0.",
    ["invariant"],
)
# Seconds, from unnoticeable delays to delays that an operator should investigate.
_LATENESS_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_EARLY_BUCKETS = (-3600, -1800, -600, -300, -60, 0, 60, 300, 600, 1800, 3600)
_CREATED_BUCKETS = (-900, -300, -60, -30, -10, -5, -1, 0, 1, 5, 10, 30, 60, 300, 900)
_CLEANED_BUCKETS = (10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)
_CALL_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

P = ParamSpec("P")
T = TypeVar("T")


class Metrics:
    """The metrics of one process, with a method for each kind of measurement."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        reg = self.registry
        self._requests = Histogram(*_REQUESTS, registry=reg)
        self._admissions = Counter(*_ADMISSIONS, registry=reg)
        self._conflicts = Counter(*_CONFLICTS, registry=reg)
        self._questions = Counter(*_QUESTIONS, registry=reg)
        self._events = Counter(*_EVENTS, registry=reg)
        self._lateness = Histogram(*_LATENESS, registry=reg, buckets=_LATENESS_BUCKETS)
        self._readiness = Histogram(*_READINESS, registry=reg, buckets=_LATENESS_BUCKETS)
        self._starts = Counter(*_STARTS, registry=reg)
        self._early = Histogram(*_EARLY, registry=reg, buckets=_EARLY_BUCKETS)
        self._created = Histogram(*_CREATED, registry=reg, buckets=_CREATED_BUCKETS)
        self._cleaned = Histogram(*_CLEANED, registry=reg, buckets=_CLEANED_BUCKETS)
        self._calls = Histogram(*_CALLS, registry=reg, buckets=_CALL_BUCKETS)
        self._broken = Gauge(*_BROKEN, registry=reg, multiprocess_mode="mostrecent")
        # These few series are used very often, and ``labels`` takes longer than to count.
        self._question = lru_cache(maxsize=None)(self._questions.labels)
        self._event = lru_cache(maxsize=None)(self._events.labels)
        self._late = lru_cache(maxsize=None)(self._lateness.labels)
        self._call = lru_cache(maxsize=None)(self._calls.labels)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record an HTTP request and its duration. ``route`` is a template, never a path."""
        bounded = method if method in _METHODS else "other"
        self._requests.labels(bounded, route, str(status)).observe(seconds)

    def admission(self, request: str, outcome: str) -> None:
        """Count a request to create or change a lease.

        ``request`` is the kind, such as ``create``. ``outcome`` is "admitted" or an error code.
        """
        self._admissions.labels(request, outcome).inc()

    def conflict(self, reason: str) -> None:
        """Count a database transaction that runs again after a conflict.

        ``reason`` is the database's error code, or a word such as "locked".
        """
        self._conflicts.labels(reason).inc()

    def calendar_question(self, *, from_memory: bool) -> None:
        """Count a question about free capacity that the calendar in memory could answer."""
        self._question("memory" if from_memory else "sql").inc()

    def event(self, kind: str, outcome: str) -> None:
        """Count an event of a lease by ``outcome``: claimed, done, retried or failed."""
        self._event(label(kind), outcome).inc()

    def tried(self, kind: str, late: timedelta) -> None:
        """Record ``late``: how long after its due time an event was first attempted."""
        self._late(label(kind)).observe(max(0.0, late.total_seconds()))

    def done(self, kind: str, late: timedelta) -> None:
        """Count an event of a lease as done.

        For the event ``start_lease``, also record the delay ``late``: how long after the start date
        the lease became active.
        """
        self.event(kind, "done")
        if kind == START:
            self._readiness.observe(max(0.0, late.total_seconds()))

    def started(self, hardware: str, outcome: str) -> None:
        """Count the start of a lease with hosts of the hardware class ``hardware``.

        ``outcome`` says whether these hosts were ready at the start: it is a value of the enum
        ``climate.core.provisioning.readiness.Outcome``, such as "late".
        """
        self._starts.labels(hardware, outcome).inc()

    def host_ready(self, hardware: str, early: float) -> None:
        """Record that a host was ready ``early`` seconds before it was needed (negative: late)."""
        self._early.labels(hardware).observe(early)

    def created(self, resource_type: str, early: float) -> None:
        """Record that climate created something ``early`` seconds before its lease starts."""
        self._created.labels(resource_type).observe(early)

    def cleaned(self, resource_class: str, seconds: float) -> None:
        """Record how long a bare-metal node was not available after a lease."""
        self._cleaned.labels(resource_class).observe(seconds)

    @contextmanager
    def call(self, resource_type: str, action: str, waiting: type[Exception]) -> Iterator[None]:
        """Context manager: record the duration and outcome of the plug-in call in its block.

        A plug-in raises ``waiting`` if the cloud has not finished. Such a call does not count as
        failed, because climate calls the plug-in again later.
        """
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
        """Record whether the invariant ``number`` (in ARCHITECTURE.md) is broken."""
        self._broken.labels(str(number)).set(broken)

    def exposition(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(_exposed(self.registry))


class HasMetrics(Protocol):
    """Interface of the first argument of functions that ``counted`` decorates."""

    @property
    def metrics(self) -> Metrics:
        """The metrics of this process."""


R = TypeVar("R", bound=HasMetrics)


def counted(
    request: str,
) -> Callable[[Callable[Concatenate[R, P], T]], Callable[Concatenate[R, P], T]]:
    """Return a decorator for functions that admit or reject leases. It counts their outcomes.

    If the function returns, the decorator counts "admitted"; if it raises an error, the error code.
    ``request`` is the kind of request in the metric, such as ``create``. An error whose attribute
    ``is_retried`` is true is not counted, because the caller calls the function again.
    """

    def decorate(use_case: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
        @wraps(use_case)
        def run(runtime: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                result = use_case(runtime, *args, **kwargs)
            except Exception as error:
                if not getattr(error, "is_retried", False):
                    runtime.metrics.admission(request, str(getattr(error, "code", "error")))
                raise
            runtime.metrics.admission(request, "admitted")
            return result

        return run

    return decorate


def label(kind: str) -> str:
    """Return the label value for events of the kind ``kind``: ``kind`` itself, or "user".

    The result is "user" if a user chose the kind, so that names from users never become label
    values.
    """
    return kind if kind in OWN_KINDS else "user"


def is_shared() -> bool:
    """Return whether several processes export combined metrics: PROMETHEUS_MULTIPROC_DIR is set."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ


def _exposed(registry: CollectorRegistry) -> CollectorRegistry:
    if not is_shared():
        return registry
    combined = CollectorRegistry()
    MultiProcessCollector(combined)  # type: ignore[no-untyped-call]
    return combined


class Exporter:
    """Serves the metrics of a manager process to Prometheus, on a port of its own."""

    def __init__(self, metrics: Metrics, host: str, port: int | None) -> None:
        """Prepare the exporter. If ``port`` is None, ``start`` does nothing."""
        self._registry = _exposed(metrics.registry)
        self._address = (host, port)
        self._server: WSGIServer | None = None

    def start(self) -> None:
        """Start serving in a thread; raises Misconfigured if the address cannot be bound."""
        host, port = self._address
        if port is None:
            return
        try:
            self._server, _ = start_http_server(port, host, self._registry)
        except OSError as error:
            where = f"{host}:{port}"
            raise Misconfigured(f"no metrics on {where}: {error.strerror or error}") from error

    def stop(self) -> None:
        """Stop serving, and close the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def state(registry: CollectorRegistry, name: str, text: str, read: Callable[[], Any]) -> None:
    """Add a metric with the name ``name`` and the help text ``text``.

    Each time Prometheus queries the metrics, the function ``read`` is called, and its result is the
    value of the metric. Does nothing if several processes export combined metrics, because
    prometheus-client cannot combine values of functions.
    """
    if not is_shared():
        Gauge(name, text, registry=registry).set_function(read)
