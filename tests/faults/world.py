"""A world for faults: a database, a cloud, and managers as processes.

A test can kill, freeze, resume and start managers during their work: each change of the cloud
takes a while. Afterwards the world shows the effects on the cloud and the notifications.
"""

import json
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.core.lease.change import Change
from climate.core.lease.lifecycle import OPEN_EVENT
from climate.core.lease.model import Lease
from climate.db.tables.leases import EventRow, LeaseRow
from climate.db.tables.notifications import OutboxRow, RelayRow
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.leases.read import get_lease
from climate.manager.leases.reservation_changes import LeaseChange
from climate.manager.leases.update import update_lease
from climate.manager.process.runtime import Runtime
from climate.manager.resources import registry as resources
from tests.support.process import Program, eventually, running, write_config

HOSTS = [f"sim-{number}" for number in range(1, 6)]
# Seconds that each step of a start or an end takes: time enough to interfere.
STEP = 0.2
# Seconds after which a claim expires.
SOON, NEVER = 3.0, 1000.0
_PLUGINS = "physical.host.plugin,virtual.instance.plugin"


def whole_hosts(count: int) -> ReservationRequest:
    anything = {"hypervisor_properties": "", "resource_properties": "", "before_end": "default"}
    params = {"min": count, "max": count, **anything}
    return ReservationRequest(resource_type="physical:host", params=params)


def instances(count: int) -> ReservationRequest:
    size = {"vcpus": 1, "memory_mb": 1, "disk_gb": 0}
    params = {"amount": count, **size, "affinity": None, "resource_properties": ""}
    return ReservationRequest(resource_type="virtual:instance", params=params)


class World:
    """A database, a cloud, and managers as processes."""

    def __init__(self, url: str, home: Path, programs: ExitStack, **options: object) -> None:
        self._home, self._programs = home, programs
        self._journal, self._config = home / "cloud", home / "climate.conf"
        settings: dict[str, Any] = {
            "database__connection": url,
            "simulated__journal": self._journal,
            "simulated__delay": STEP,
            "simulated__hosts": 50,
            "manager__plugins": _PLUGINS,
            "manager__poll_interval": 0.1,
        }
        write_config(self._config, **settings | options)
        conf = config_registry.new()
        config_registry.load(conf, "test", [f"--config-file={self._config}"])
        conf.set_override("delay", 0.0, group="simulated")
        self.runtime: Runtime = bootstrap.make_runtime(conf)
        programs.callback(self.runtime.database.dispose)
        self.register(*HOSTS)

    def register(self, *names: str) -> None:
        for name in names:
            resources.register(self.runtime, "physical:host", name)

    def start_managers(self, count: int) -> list[Program]:
        """Start managers; at the end those that still run must stop with exit code 0."""
        argument = f"--config-file={self._config}"
        made = [
            self._programs.enter_context(running(self._home, "climate-manager", argument))
            for _ in range(count)
        ]
        return [program.says("climate-manager is at work") for program in made]

    def reserve(
        self,
        *asked: ReservationRequest,
        project: str = "project",
        start: float = 0.0,
        seconds: float = 7200.0,
    ) -> Lease:
        """Create a lease, by default of all hosts, that starts in ``start`` seconds."""
        begin = self.runtime.clock.now() + timedelta(seconds=start)
        request = LeaseRequest(
            name="lease",
            start=begin,
            end=begin + timedelta(seconds=seconds),
            reservations=asked or (whole_hosts(len(HOSTS)),),
        )
        return create_lease(self.runtime, Owner(user_id="user", project_id=project), request)

    def run_due(self) -> None:
        """Process all due events in this process, without delays."""
        Dispatcher(self.runtime, "the test").run_due()

    def end(self, lease: Lease) -> None:
        change = LeaseChange(dates=Change(end=self.runtime.clock.now()))
        update_lease(self.runtime, lease.id, change)

    def until(self, lease: Lease, status: str) -> None:
        eventually(
            lambda: get_lease(self.runtime, lease.id).status == status, f"the lease is {status}"
        )

    def until_half(self, effect: str) -> None:
        """Wait until an effect occurred on some of the hosts, but not on all."""
        eventually(lambda: len(self.effects(effect)) >= 2, f"{effect} was begun")
        assert len(self.effects(effect)) < len(HOSTS), "too late to interfere"

    def effects(self, name: str) -> list[str]:
        """Return the hosts on which an effect occurred, sorted."""
        return sorted(str(effect.get("host")) for effect in self.journal(name))

    def journal(self, *names: str) -> list[dict[str, Any]]:
        """Return the effects on the cloud, all or those of these names, in order."""
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        found = [json.loads(line) for line in lines]
        return [effect for effect in found if not names or effect["effect"] in names]

    def count_notifications(self, lease: Lease, kind: str) -> int:
        """Return how many notifications say that an event took place."""
        query = sa.select(sa.func.count()).where(
            OutboxRow.lease_id == lease.id, OutboxRow.event_type == f"lease.event.{kind}"
        )
        with self.runtime.database.read() as session:
            return session.scalar(query) or 0

    def claim_owner(self, managers: list[Program], lease: Lease, kind: str) -> Program:
        """Return the manager that has claimed an event."""
        query = sa.select(EventRow.owner).where(
            EventRow.lease_id == lease.id, EventRow.kind == kind
        )
        with self.runtime.database.read() as session:
            owner = session.scalar(query) or ""
        return next(manager for manager in managers if f":{manager.pid}:" in owner)

    def is_locked(self) -> bool:
        """Return whether a transaction holds locks that others may wait for."""
        database = self.runtime.database
        if database.dialect == "sqlite":
            engine = sa.create_engine(database.engine.url, connect_args={"timeout": 0})
            statements: list[sa.Executable] = [sa.text("BEGIN IMMEDIATE")]
        else:
            engine = database.engine
            rows = (LeaseRow.id, EventRow.id, RelayRow.id)
            statements = [sa.select(id_).with_for_update(nowait=True) for id_ in rows]
        try:
            with engine.connect() as connection:
                for statement in statements:
                    connection.execute(statement)
        except sa.exc.OperationalError:
            return True
        finally:
            if engine is not database.engine:
                engine.dispose()
        return False

    def freeze(self, manager: Program) -> None:
        """Stop a manager, but not while it holds locks."""
        manager.freeze()
        while self.is_locked():
            manager.signal(signal.SIGCONT)
            manager.freeze()

    def pause(self, manager: Program, seconds: float) -> None:
        self.freeze(manager)
        time.sleep(seconds)
        manager.signal(signal.SIGCONT)

    def attempts(self) -> Counter[int]:
        """Return the number of events by their number of attempts."""
        with self.runtime.database.read() as session:
            return Counter(session.scalars(sa.select(EventRow.attempt)))

    def is_quiet(self, now_due: Sequence[str] = ()) -> bool:
        """Return whether no event (of these kinds) is due and open."""
        due = sa.select(EventRow.id).where(
            EventRow.status.in_([status.value for status in OPEN_EVENT]),
            EventRow.due_at <= self.runtime.clock.now(),
        )
        if now_due:
            due = due.where(EventRow.kind.in_(now_due))
        with self.runtime.database.read() as session:
            return session.scalar(due.limit(1)) is None
