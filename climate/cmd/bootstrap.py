"""Creates the objects of a process from its configuration and connects them (composition root)."""

import gc
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from flask import Flask
from keystoneauth1.noauth import NoAuth
from keystoneauth1.session import Session
from oslo_config.cfg import ConfigOpts

from climate.api.app import make_app
from climate.api.server import http_server
from climate.clock import Clock, SampledClock
from climate.config import registry as config_registry
from climate.config.registry import SERVICE_USER, Misconfigured
from climate.db import wakeup
from climate.db.engine import schema
from climate.db.engine.advisory_lock import AdvisoryLocks
from climate.db.engine.clock import present
from climate.db.engine.database import Database
from climate.manager import enforcement
from climate.manager.audit.backlog import show_backlog, show_pool
from climate.manager.audit.invariants import self_audit
from climate.manager.events.dispatcher import Dispatcher, owner_name
from climate.manager.notifications.relay import Relay
from climate.manager.notifications.webhook_delivery import WebhookDelivery
from climate.manager.process.deletion_waits import DeletionWaits
from climate.manager.process.heartbeat import ManagerHeartbeat
from climate.manager.process.long_poll import LongPoll
from climate.manager.process.periodic_task import PeriodicTask
from climate.manager.process.runtime import Runtime
from climate.manager.provisioning.planner import Planner
from climate.manager.resources.inventory_sync import InventorySync
from climate.notifications import emit, webhook_sender
from climate.notifications.emit import node_topic
from climate.notifications.listen import from_broker
from climate.observability.metrics import Exporter
from climate.plugins.loader import load_plugins, load_selection
from climate.plugins.openstack import session as openstack_session
from climate.plugins.openstack.trusts import Trusts
from climate.provisioner.agent import Provisioner
from climate.provisioner.client import ClimateClient
from climate.provisioner.groups import Groups
from climate.provisioner.nodes import InvalidNodeConfig
from climate.provisioner.power.loader import load_drivers
from climate.provisioner.prepare import Tools

LOG = logging.getLogger(__name__)
# Seconds between a provisioner's searches for shutdowns while power saving is disabled. If it was
# enabled before, some hosts may have to be switched on again.
_REMNANTS = 60.0
# Python collects garbage after this many allocations; one collection takes about 5 ms.
_COLLECT = 50_000
_DATABASES = ("sqlite", "postgresql", "mysql", "mariadb")


@dataclass(frozen=True, slots=True)
class Manager:
    """The parts of a manager process, which run in threads.

    ``periodic`` contains the periodic tasks that the configuration enables.
    """

    dispatcher: Dispatcher
    relay: Relay
    periodic: list[InventorySync | PeriodicTask | Planner]
    exporter: Exporter
    deliveries: WebhookDelivery
    heartbeat: ManagerHeartbeat

    def start(self) -> None:
        """Start all parts of the manager in threads.

        Raises Misconfigured if the port for metrics cannot be opened.
        """
        for part in (self.exporter, self.dispatcher, self.relay, *self.periodic, self.deliveries):
            part.start()
        self.heartbeat.start()

    def stop(self) -> None:
        """Stop all parts, and release their claims, so that other managers continue the work.

        Notifications that are not published yet remain in the database for another manager.
        """
        for part in (self.exporter, *self.periodic):
            part.stop()
        for owner in (self.dispatcher, self.relay, self.deliveries, self.heartbeat):
            try:
                owner.stop()
            except sa.exc.DBAPIError as error:
                LOG.warning("claims were not released, they will expire: %s", error.orig)


def database_url(conf: ConfigOpts) -> sa.URL:
    """Return the URL of the database; raise Misconfigured if climate does not support it."""
    try:
        url = sa.make_url(conf.database.connection)
    except sa.exc.ArgumentError as error:
        raise Misconfigured(f"[database] connection: {error}") from error
    backend = url.get_backend_name()
    if backend not in _DATABASES:
        raise Misconfigured(
            f"[database] connection names {backend}, which is none of {', '.join(_DATABASES)}"
        )
    if backend == "sqlite" and url.database in {None, "", ":memory:"}:
        raise Misconfigured(
            "[database] connection names an SQLite database in memory, which several threads"
            " cannot share: name a file, as in sqlite:///climate.sqlite"
        )
    return url


def make_database(conf: ConfigOpts) -> Database:
    """Return the configured database. The first query connects to it. Raises Misconfigured."""
    url = database_url(conf)
    try:
        return Database(url.render_as_string(hide_password=False), conf.database.pool_size)
    except (sa.exc.ArgumentError, ImportError) as error:
        raise Misconfigured(f"[database] connection names {url.drivername}: {error}") from error


@contextmanager
def open_database(conf: ConfigOpts) -> Iterator[Database]:
    """Yield the configured database; close its connections after the block."""
    database = make_database(conf)
    try:
        yield database
    finally:
        database.dispose()


def make_runtime(conf: ConfigOpts, clock: Clock | None = None) -> Runtime:
    """Return the runtime: the database, plug-ins, clock and so on, which all requests share.

    If ``clock`` is None, the runtime gets a clock that follows the database's clock. Raises
    Misconfigured, BrokenPlugin.
    """
    database = make_database(conf)
    settings = config_registry.settings(conf)
    user = conf[SERVICE_USER]
    clock = clock or SampledClock(partial(present, database))
    news = wakeup.for_database(database, wakeup.NEWS)
    followers = conf.notifications.followers
    runtime = Runtime(
        database=database,
        clock=clock,
        plugins=load_plugins(conf, conf.manager.plugins, AdvisoryLocks(database).hold, clock),
        settings=settings,
        wakeup=wakeup.for_database(database),
        news=news,
        latest=LongPoll(database, news, settings.poll_interval, followers),
        deletions=DeletionWaits(http_server.deletion_waits(conf)),
        selection=load_selection(conf),
        enforcer=enforcement.for_config(conf),
        # To act as users, climate needs the credentials of a service user.
        trusts=Trusts(conf) if user.auth_type or user.auth_section else None,
    )
    database.on_conflict = runtime.metrics.conflict
    show_pool(runtime.metrics, database)
    show_backlog(runtime)
    return runtime


@contextmanager
def open_runtime(conf: ConfigOpts) -> Iterator[Runtime]:
    """Yield the runtime (database, plug-ins, clock and so on); close it after the block."""
    runtime = make_runtime(conf)
    try:
        yield runtime
    finally:
        runtime.close()


def make_checked_runtime(conf: ConfigOpts) -> Runtime:
    """Check the database schema; return the runtime (database, plug-ins, clock and so on).

    Raises SchemaMismatch if the database has the schema of another release.
    """
    runtime = make_runtime(conf)
    schema.check(runtime.database)
    return runtime


def make_manager(conf: ConfigOpts, runtime: Runtime) -> Manager:
    """Create the parts of a manager process; the caller must start them."""
    owner = owner_name()
    settings = runtime.settings.provisioning
    planner = [Planner(runtime, settings)] if settings else []
    audit = [self_audit(runtime)] if runtime.settings.self_audit_interval else []
    dispatcher = Dispatcher(runtime, owner)
    relay = Relay(runtime, emit.for_config(conf), owner)
    poster = webhook_sender.for_config(conf, runtime.settings.webhooks)
    deliveries = WebhookDelivery(runtime, poster, owner)
    periodic: list[InventorySync | PeriodicTask | Planner]
    periodic = [InventorySync(runtime), *audit, *planner]
    loops = (dispatcher, relay, deliveries, *periodic)
    return Manager(
        dispatcher,
        relay,
        periodic,
        Exporter(runtime.metrics, conf.manager.metrics_host, conf.manager.metrics_port),
        deliveries,
        ManagerHeartbeat(
            runtime.store, owner, lambda: [item for loop in loops for item in loop.progress]
        ),
    )


def make_api(conf: ConfigOpts, runtime: Runtime, manager: Manager | None = None) -> Flask:
    """Return the WSGI application of the API.

    ``manager`` is the manager that runs in the same process; None if no manager does. The readiness
    check of the API includes this manager.
    """
    return make_app(conf, runtime, manager.dispatcher if manager else None)


@contextmanager
def open_provisioner(conf: ConfigOpts) -> Iterator[Provisioner]:
    """Yield a provisioner; the caller must run it. Raises Misconfigured.

    If a broker and ``[provisioning] topics`` are configured, a notification about a host wakes the
    provisioner at once. Otherwise it finds new tasks only at its next poll.
    """
    settings = conf.provisioner
    tools = Tools(
        climate=_climate(conf),
        drivers=load_drivers(),
        groups=Groups(settings.group_limit, settings.group_pause),
        power_timeout=settings.power_timeout,
        ready_timeout=settings.ready_timeout,
        shutdown_timeout=settings.shutdown_timeout,
    )
    try:
        file = Path(settings.nodes_file)
        pause = 0.0 if conf.provisioning.power_off else _REMNANTS
        provisioner = Provisioner(tools, file, settings.workers, settings.claim_timeout, pause)
    except InvalidNodeConfig as error:
        raise Misconfigured(f"[provisioner] nodes_file: {error}") from None
    broker = conf.notifications.transport_url
    if not (broker and conf.provisioning.topics):
        yield provisioner
        return
    topics = [node_topic(name) for name in provisioner.nodes]
    wake = provisioner.wake.set
    with from_broker(conf, broker, topics, lambda *_: wake(), "climate-provisioner"):
        yield provisioner


def _climate(conf: ConfigOpts) -> ClimateClient:
    url = conf.provisioner.url
    if conf.api.auth_strategy == "noauth":
        return ClimateClient(Session(auth=NoAuth()), url or http_server.url(conf.host, conf.port))
    session = openstack_session.make_session(conf)
    region = conf[SERVICE_USER].region_name
    endpoint = url or session.get_endpoint(service_type="reservation", region_name=region)
    if not endpoint:
        raise Misconfigured("[provisioner] url is not set, and the catalog has no reservation")
    return ClimateClient(session, endpoint.rstrip("/").removesuffix("/v1"))


def settle() -> None:
    """Tune the garbage collector for a long-running process; call this when all code is loaded.

    From now on, the collector ignores all objects that exist already. Checking them would stop all
    threads for about 100 ms, and delay the starts of leases. The function also makes collections
    rare, because reference counting frees nearly all objects. With Python's default threshold, a
    busy manager spends a fifth of its time on collections.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT)


def stop_on_signal() -> threading.Event:
    """Return a threading.Event that SIGTERM and SIGINT set, whichever thread receives the signal.

    Python runs signal handlers only in the main thread. If the kernel delivers the signal to
    another thread, the main thread sleeps on, and a handler that sets the event would not run. So
    Python writes a byte to a socket (``signal.set_wakeup_fd``), which works in any thread. A
    separate thread reads the byte and sets the event.
    """
    stopping = threading.Event()
    receiver, sender = socket.socketpair()
    sender.settimeout(0)  # the C signal handler must not block
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    parts = (stopping, receiver, sender)
    threading.Thread(target=_await_signals, args=parts, name="signals", daemon=True).start()
    return stopping


def _await_signals(
    stopping: threading.Event, receiver: socket.socket, _sender: socket.socket
) -> None:
    """Set ``stopping`` when a byte arrives at ``receiver``, which means that a signal has arrived.

    The parameter ``_sender`` only keeps its socket open.
    """
    while receiver.recv(1):
        stopping.set()
