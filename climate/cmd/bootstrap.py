"""Creates the objects of a process from its configuration and connects them (composition root)."""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa
from flask import Flask
from oslo_config.cfg import ConfigOpts

from climate.api.app import make_app
from climate.api.server import http_server
from climate.clock import Clock, SampledClock
from climate.cmd.database import check_exists, make_database
from climate.config import registry as config_registry
from climate.config.registry import SERVICE_USER, Misconfigured
from climate.core.settings import Settings
from climate.db import wakeup
from climate.db.engine import schema
from climate.db.engine.advisory_lock import AdvisoryLocks
from climate.db.engine.clock import present
from climate.manager import enforcement
from climate.manager.audit.backlog import show_backlog, show_pool
from climate.manager.audit.changes_in_cloud import follow_task
from climate.manager.audit.invariants import report_memory, self_audit
from climate.manager.audit.reported_changes import ReportedChanges
from climate.manager.events.dispatcher import Dispatcher, owner_name
from climate.manager.notifications.relay import Relay
from climate.manager.notifications.subscription_delivery import SubscriptionDelivery
from climate.manager.process.calendar_memory.memory import CalendarMemory, Use
from climate.manager.process.deletion_waits import DeletionWaits
from climate.manager.process.heartbeat import ManagerHeartbeat
from climate.manager.process.long_poll import LongPoll
from climate.manager.process.periodic_task import PeriodicTask
from climate.manager.process.runtime import Runtime, Store
from climate.manager.provisioning.planner import Planner
from climate.manager.resources.inventory_sync import InventorySync
from climate.manager.wait_list.passes import wait_list_task
from climate.notifications import emit, listen, mail_sender, webhook_sender
from climate.notifications.listen import BackgroundListener
from climate.observability.metrics import Exporter, Metrics
from climate.plugins.loader import load_plugins, load_selection
from climate.plugins.openstack.trusts import Trusts

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Manager:
    """The parts of a manager process, which run in threads.

    ``periodic`` contains the periodic tasks that the configuration enables, and ``listeners`` the
    listeners for notifications of the cloud.
    """

    dispatcher: Dispatcher
    relay: Relay
    periodic: list[InventorySync | PeriodicTask | Planner]
    listeners: list[BackgroundListener]
    exporter: Exporter
    deliveries: SubscriptionDelivery
    heartbeat: ManagerHeartbeat

    def start(self) -> None:
        """Start all parts of the manager in threads.

        Raises Misconfigured if the port for metrics cannot be opened.
        """
        for part in (
            self.exporter,
            self.dispatcher,
            self.relay,
            *self.periodic,
            *self.listeners,
            self.deliveries,
        ):
            part.start()
        self.heartbeat.start()

    def stop(self) -> None:
        """Stop all parts, and release their claims, so that other managers continue the work.

        Notifications that are not published yet remain in the database for another manager.
        """
        for part in (self.exporter, *self.listeners, *self.periodic):
            part.stop()
        for owner in (self.dispatcher, self.relay, self.deliveries, self.heartbeat):
            try:
                owner.stop()
            except sa.exc.DBAPIError as error:
                LOG.warning(
                    "cannot release claims, other managers reclaim them when they expire: %s",
                    error.orig,
                )


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
    metrics = Metrics()
    report = partial(report_memory, Store(database, clock), metrics)
    plugins = load_plugins(conf, conf.manager.plugins, AdvisoryLocks(database).hold, clock)
    _check_reminder_rules(settings, plugins)
    runtime = Runtime(
        database=database,
        clock=clock,
        plugins=plugins,
        settings=settings,
        wakeup=wakeup.for_database(database),
        news=news,
        latest=LongPoll(database, news, settings.poll_interval, followers),
        deletions=DeletionWaits(http_server.deletion_waits(conf)),
        calendar=CalendarMemory(database, metrics, Use(settings.calendar_memory), report),
        selection=load_selection(conf),
        enforcer=enforcement.for_config(conf),
        # To act as users, climate needs the credentials of a service user.
        trusts=Trusts(conf) if user.auth_type or user.auth_section else None,
        metrics=metrics,
    )
    database.on_conflict = runtime.metrics.conflict
    show_pool(runtime.metrics, database)
    show_backlog(runtime)
    return runtime


def _check_reminder_rules(settings: Settings, plugins: Collection[str]) -> None:
    """Raise Misconfigured if a rule is for a resource type that no plug-in manages."""
    for rule in settings.reminder_rules:
        if rule.resource_type not in plugins:
            raise Misconfigured(
                f"[manager] reminder_rules: no plug-in manages {rule.resource_type}"
                f" (enabled: {', '.join(sorted(plugins))})"
            )


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

    Raises SchemaMismatch if the database has the schema of another release. Raises Misconfigured if
    the database is an SQLite file that does not exist.
    """
    check_exists(conf)
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
    mailer = mail_sender.for_config(conf, runtime.settings.webhooks.secret_keys)
    deliveries = SubscriptionDelivery(runtime, poster, owner, mailer)
    periodic: list[InventorySync | PeriodicTask | Planner]
    follow, listeners = _follow(conf, runtime)
    periodic = [InventorySync(runtime), wait_list_task(runtime), *follow, *audit, *planner]
    loops = (dispatcher, relay, deliveries, *periodic)
    return Manager(
        dispatcher,
        relay,
        periodic,
        listeners,
        Exporter(runtime.metrics, conf.manager.metrics_host, conf.manager.metrics_port),
        deliveries,
        ManagerHeartbeat(
            runtime.store, owner, lambda: [item for loop in loops for item in loop.progress]
        ),
    )


def _follow(
    conf: ConfigOpts, runtime: Runtime
) -> tuple[list[PeriodicTask], list[BackgroundListener]]:
    """Return the tasks that follow what users change in the cloud, and the listeners for them.

    Raises BrokenTransport if the URL of Heat's broker cannot be used.
    """
    if not any(plugin.follows_changes for plugin in runtime.plugins.values()):
        return [], []
    options = conf["virtual:stack"]
    if not options.notification_transport_url:
        return [follow_task(runtime)], []
    reported = ReportedChanges(runtime)
    listening = partial(
        listen.from_broker,
        emit.open_transport(
            conf, options.notification_transport_url, "[virtual:stack] notification_transport_url"
        ),
        options.notification_topics,
        reported.hear,
        options.notification_pool,
        options.notification_exchange,
        ("info", "error"),
    )
    return [follow_task(runtime), reported], [BackgroundListener(listening)]


def make_api(conf: ConfigOpts, runtime: Runtime, manager: Manager | None = None) -> Flask:
    """Return the WSGI application of the API.

    ``manager`` is the manager that runs in the same process; None if no manager does. The readiness
    check of the API includes this manager.
    """
    return make_app(conf, runtime, manager.dispatcher if manager else None)
