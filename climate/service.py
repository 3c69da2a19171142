"""The composition root: the one place that makes the parts and puts them together."""

import signal
import threading
from dataclasses import dataclass

from flask import Flask
from oslo_config.cfg import ConfigOpts

from climate import config, wakeup
from climate.api.app import make_app
from climate.clock import Clock, SystemClock
from climate.db import schema
from climate.db.engine import Database
from climate.manager.dispatcher import Dispatcher, owner_name
from climate.manager.relay import Relay
from climate.manager.runtime import Runtime
from climate.notifications import emit
from climate.plugins.loader import load_plugins


@dataclass(frozen=True, slots=True)
class Manager:
    """What a manager process runs: the dispatcher of events and the relay of notifications."""

    dispatcher: Dispatcher
    relay: Relay

    def start(self) -> None:
        """Begin to work, in threads."""
        self.dispatcher.start()
        self.relay.start()

    def stop(self) -> None:
        """Finish or hand back what is under way; what that wrote is still published."""
        self.dispatcher.stop()
        self.relay.stop()


def make_runtime(conf: ConfigOpts, clock: Clock | None = None) -> Runtime:
    """Return the collaborators of the use cases; raises BrokenPlugin."""
    database = Database(conf.database.connection, conf.database.pool_size)
    return Runtime(
        database=database,
        clock=clock or SystemClock(),
        plugins=load_plugins(conf, conf.manager.plugins),
        settings=config.settings(conf),
        wakeup=wakeup.for_database(database),
    )


def make_checked_runtime(conf: ConfigOpts) -> Runtime:
    """Return the collaborators; raises SchemaMismatch if the database is not at our schema."""
    runtime = make_runtime(conf)
    schema.check(runtime.database)
    return runtime


def make_manager(conf: ConfigOpts, runtime: Runtime) -> Manager:
    """Return a manager, not yet started."""
    owner = owner_name()
    return Manager(Dispatcher(runtime, owner), Relay(runtime, emit.for_config(conf), owner))


def make_api(conf: ConfigOpts, runtime: Runtime, manager: Manager | None = None) -> Flask:
    """Return the WSGI application; ``manager`` is the one in this process, if any."""
    return make_app(conf, runtime, manager.dispatcher if manager else None)


def stop_on_signal() -> threading.Event:
    """Return an event that is set by SIGTERM and SIGINT."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping
