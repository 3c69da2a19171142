"""Real managers that die, stop, or fall asleep in the middle of their work: nothing is lost."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from climate import config, service
from climate.core.change import Change
from climate.core.lease import Lease
from climate.core.schedule import END, START
from climate.db.outbox_tables import OutboxRow, RelayRow
from climate.db.tables import EventRow, LeaseRow
from climate.manager import leases, resources, updates
from climate.manager.dispatcher import Dispatcher
from climate.manager.drafts import LeaseRequest, Owner
from climate.manager.requests import ReservationRequest
from climate.manager.runtime import Runtime
from climate.manager.updates import LeaseChange
from tests.process import Program, eventually, running, write_config

HOSTS = [f"sim-{number}" for number in range(1, 6)]
# Seconds that each step of a start or an end takes: time enough to interfere.
STEP = 0.2
# Seconds after which a claim expires.
SOON, NEVER = 1.0, 1000.0


class World:
    """A database, a cloud, and managers that look after both."""

    def __init__(self, url: str, home: Path, programs: ExitStack, **options: object) -> None:
        self._home, self._programs = home, programs
        self._journal, self._config = home / "cloud", home / "climate.conf"
        write_config(
            self._config,
            database__connection=url,
            simulated__journal=self._journal,
            simulated__delay=STEP,
            manager__poll_interval=0.1,
            **options,
        )
        conf = config.new()
        config.load(conf, "test", [f"--config-file={self._config}"])
        conf.set_override("delay", 0.0, group="simulated")
        self.runtime: Runtime = service.make_runtime(conf)
        programs.callback(self.runtime.database.dispose)
        for name in HOSTS:
            resources.register(self.runtime, "physical:host", name)

    def start_managers(self, count: int) -> list[Program]:
        """Return managers at work; those that are left at the end must stop well when asked."""
        argument = f"--config-file={self._config}"
        made = [
            self._programs.enter_context(running(self._home, "climate-manager", argument))
            for _ in range(count)
        ]
        return [program.says("climate-manager is at work") for program in made]

    def reserve(self) -> Lease:
        """Make a lease of all hosts that starts now."""
        now = self.runtime.clock.now()
        anything = {"hypervisor_properties": "", "resource_properties": "", "before_end": "default"}
        params = {"min": len(HOSTS), "max": len(HOSTS), **anything}
        reservation = ReservationRequest(resource_type="physical:host", params=params)
        request = LeaseRequest(
            name="lease", start=now, end=now + timedelta(hours=2), reservations=(reservation,)
        )
        return leases.create(self.runtime, Owner(user_id="user", project_id="project"), request)

    def run_due(self) -> None:
        """Do what is due in this process, as fast as can be."""
        Dispatcher(self.runtime, "the test").run_due()

    def end(self, lease: Lease) -> None:
        """Have the lease end now."""
        change = LeaseChange(dates=Change(end=self.runtime.clock.now()))
        updates.update(self.runtime, lease.id, change)

    def until(self, lease: Lease, status: str) -> None:
        """Wait for a lease to have ``status``."""
        eventually(
            lambda: leases.get(self.runtime, lease.id).status == status, f"the lease is {status}"
        )

    def until_half(self, effect: str) -> None:
        """Wait until something was done to some of the hosts, and see that it is not over."""
        eventually(lambda: len(self.effects(effect)) >= 2, f"{effect} was begun")
        assert len(self.effects(effect)) < len(HOSTS), "too late to interfere"

    def effects(self, name: str) -> list[str]:
        """Return the hosts that something was done to, sorted."""
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        found = [json.loads(line) for line in lines]
        return sorted(effect["host"] for effect in found if effect["effect"] == name)

    def told(self, lease: Lease, kind: str) -> int:
        """Return how often the world was told that an event took place."""
        query = sa.select(sa.func.count()).where(
            OutboxRow.lease_id == lease.id, OutboxRow.event_type == f"lease.event.{kind}"
        )
        with self.runtime.database.read() as session:
            return session.scalar(query) or 0

    def who_runs(self, managers: list[Program], lease: Lease, kind: str) -> Program:
        """Return the manager that has claimed an event."""
        query = sa.select(EventRow.owner).where(
            EventRow.lease_id == lease.id, EventRow.kind == kind
        )
        with self.runtime.database.read() as session:
            owner = session.scalar(query) or ""
        return next(one for one in managers if f":{one.pid}:" in owner)

    def is_locked(self) -> bool:
        """Tell whether somebody is in the middle of a transaction that others may wait for."""
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


@pytest.fixture
def programs() -> Iterator[ExitStack]:
    """Return what ends all programs of the test."""
    with ExitStack() as made:
        yield made


@pytest.fixture
def world(database_url: str, tmp_path: Path, programs: ExitStack) -> World:
    """Return a world in which claims expire soon, on each kind of database."""
    return World(database_url, tmp_path, programs, manager__claim_timeout=SOON)


def test_a_start_whose_manager_is_killed_is_finished_by_another(world: World) -> None:
    managers = world.start_managers(2)
    lease = world.reserve()
    world.until_half("add_host")
    world.who_runs(managers, lease, START).kill()
    assert world.effects("add_host") != HOSTS
    world.until(lease, "ACTIVE")
    assert world.effects("add_host") == HOSTS
    assert world.told(lease, START) == 1


@pytest.mark.slow
def test_a_start_whose_manager_is_killed_is_finished_when_it_is_back(world: World) -> None:
    [manager] = world.start_managers(1)
    lease = world.reserve()
    world.until_half("add_host")
    manager.kill()
    assert world.effects("add_host") != HOSTS
    world.start_managers(1)
    world.until(lease, "ACTIVE")
    assert world.effects("add_host") == HOSTS
    assert world.told(lease, START) == 1


@pytest.mark.slow
def test_an_end_whose_manager_is_killed_is_finished_by_another(world: World) -> None:
    lease = world.reserve()
    world.run_due()
    managers = world.start_managers(2)
    world.end(lease)
    world.until_half("remove_host")
    world.who_runs(managers, lease, END).kill()
    assert world.effects("remove_host") != HOSTS
    world.until(lease, "TERMINATED")
    assert world.effects("remove_host") == HOSTS
    assert world.told(lease, END) == 1


@pytest.mark.slow
def test_a_manager_that_is_asked_to_stop_finishes_the_start_that_it_is_at(
    database_url: str, tmp_path: Path, programs: ExitStack
) -> None:
    world = World(database_url, tmp_path, programs, manager__claim_timeout=NEVER)
    [manager] = world.start_managers(1)
    lease = world.reserve()
    world.until_half("add_host")
    assert manager.stop() == 0
    assert leases.get(world.runtime, lease.id).status == "ACTIVE"
    assert world.effects("add_host") == HOSTS
    assert world.told(lease, START) == 1


@pytest.mark.slow
def test_a_manager_that_may_not_finish_hands_its_work_to_another_at_once(
    database_url: str, tmp_path: Path, programs: ExitStack
) -> None:
    options = {"manager__claim_timeout": NEVER, "manager__shutdown_timeout": 0}
    world = World(database_url, tmp_path, programs, **options)
    managers = world.start_managers(2)
    lease = world.reserve()
    world.until_half("add_host")
    stopping = world.who_runs(managers, lease, START)
    assert stopping.stop() == 0
    assert "handed back" in stopping.errors
    world.until(lease, "ACTIVE")
    assert world.effects("add_host") == HOSTS
    assert world.told(lease, START) == 1


@pytest.mark.slow
def test_a_manager_that_wakes_up_too_late_changes_nothing(world: World) -> None:
    managers = world.start_managers(2)
    lease = world.reserve()
    world.until_half("add_host")
    asleep = world.who_runs(managers, lease, START)
    asleep.freeze()
    while world.is_locked():
        asleep.signal(signal.SIGCONT)
        asleep.freeze()
    assert world.effects("add_host") != HOSTS
    world.until(lease, "ACTIVE")
    asleep.signal(signal.SIGCONT)
    asleep.says("was taken over")
    assert world.effects("add_host") == HOSTS
    assert world.told(lease, START) == 1
