"""Three managers, a database and a broker that can be cut off, a cloud, and leases due together."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

import kombu
import sqlalchemy as sa

from climate.core.lease.lifecycle import OPEN_EVENT
from climate.core.lease.schedule import BEFORE_START
from climate.db.tables.leases import EventRow, LeaseRow
from climate.db.tables.notifications import OutboxRow, RelayRow
from climate.manager.admission.requirements import ReservationRequest
from climate.manager.leases.create import LeaseRequest, Owner, create_lease
from climate.manager.process.runtime import Runtime
from tests.faults import pace, stage
from tests.faults.evidence import Evidence
from tests.faults.ground import Ground, OnServer, runtime
from tests.faults.private import RabbitMQ
from tests.faults.stage import Moment, Stage
from tests.support.process import Program, eventually, running, write_config
from tests.support.proxy import Proxy
from tests.support.rows import dump

MANAGERS = 3
LEASES = int(os.environ.get("CLIMATE_TEST_FAULT_LEASES", "200"))
# One for each lease, and at least as many as the machine's pace is measured with.
HOSTS = max(LEASES, pace.HOSTS)
# Seconds after which a claim expires.
CLAIM = 3.0
# Seconds in which all must be over once the last lease should be: relays that could not publish
# wait for up to thirty before they try again.
_PATIENCE = 90.0
_PAUSE = 0.2
# The least time between the making of a lease and its heads-up.
_AHEAD = timedelta(seconds=1)
_TOPIC = "faults"
_ORDER = (Moment.HEADS_UP, Moment.START, Moment.BEFORE_END, Moment.END)
_PARAMS = {
    "min": 1,
    "max": 1,
    "hypervisor_properties": "",
    "resource_properties": "",
    "before_end": "snapshot",
}


class Cell:
    """All of it, from ``with`` on; ``live`` has leases live, which ``moment`` is about."""

    def __init__(self, home: Path, ground: Ground, broker: RabbitMQ, moment: Moment) -> None:
        self.ground, self.broker, self.moment = ground, broker, moment
        self.journal = home / "cloud"
        self.stage = Stage(home / "stage")
        self.managers: list[Program] = []
        self.runtime: Runtime
        self.acknowledged: list[str] = []
        self.pace: pace.Pace
        self._home = home
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if isinstance(self.ground, OnServer):
            self.ground.server.start()  # whoever crashed it may have failed to start it
        self.broker.start()
        self.ground.clear(self.journal)
        self._remove_queue()
        self.way_to_broker = self._stack.enter_context(Proxy("127.0.0.1", self.broker.port))
        here = self._write_config("here.conf", self.ground.url)
        self.runtime = self._stack.enter_context(runtime(here))
        self.pace = pace.measure(self.runtime, self._lease_from_now)
        self.ground.clear(self.journal)
        argument = f"--config-file={self._write_config('managers.conf', self._url())}"
        part = partial(stage.take_part, self.stage.folder)
        for _ in range(MANAGERS):
            program = running(self._home, "climate-manager", argument, prepare=part)
            self.managers.append(self._stack.enter_context(program))
        for program in self.managers:
            program.says("climate-manager is at work")
        return self

    def __exit__(self, *failure: Any) -> None:  # noqa: PYI036 - handed on
        self.stage.release()
        self._stack.__exit__(*failure)

    def live(self, lasts: float, step: int | None) -> None:
        """Make leases, and return when managers are held in the moment of some of them.

        ``lasts`` are the seconds that the fault will take: the next moment comes after that.
        """
        self.stage.hold(self.moment, step)
        at = self._dates(lasts)
        for _ in range(LEASES):
            # If making them takes longer than thought, those that come late live later.
            late = max(self.runtime.clock.now() + _AHEAD - at[Moment.HEADS_UP], timedelta())
            dates = {moment: date + late for moment, date in at.items()}
            self.acknowledged.append(self._lease(dates))
        left = (dates[Moment.END] - self.runtime.clock.now()).total_seconds()
        self._over_at = time.monotonic() + left + lasts + _PATIENCE
        at_once = 1 if self._is_one_at_a_time() else min(MANAGERS, LEASES)
        held = self.stage.held
        eventually(lambda: held().total() >= at_once, f"managers are at {self.moment}", left + 30)

    def victim(self) -> Program:
        """Return a manager that is held."""
        [(pid, _)] = self.stage.held().most_common(1)
        return next(one for one in self.managers if one.pid == pid)

    def until_over(self) -> None:
        """Wait until nothing is left to do; fail, saying what is, if that takes too long."""
        while left := self._left():
            late = time.monotonic() - self._over_at
            assert late < 0, f"not over {_PATIENCE} s after all should have been: {left}"
            time.sleep(_PAUSE)

    def end(self) -> Evidence:
        """Stop the managers, and return what is found then."""
        for program in self.managers:
            program.stop()
        effects = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return Evidence(
            acknowledged=self.acknowledged,
            rows=dump(self.runtime.database),
            effects=[one for one in effects if one["effect"] not in {"enroll", "boot_server"}],
            messages=self._messages(),
            done=self.stage.done(),
            now=datetime.now(UTC),
        )

    def _dates(self, lasts: float) -> dict[Moment, datetime]:
        """Return when what happens to each lease: all of them can be done before the next."""
        disturbed = Moment.START if self.moment is Moment.RELAY else self.moment
        gap, seconds = self.pace.gap(LEASES), self.pace.to_make(LEASES)
        dates = {}
        for moment in _ORDER:
            dates[moment] = self.runtime.clock.now() + timedelta(seconds=seconds)
            seconds += gap + (lasts if moment is disturbed else 0)
        return dates

    def _lease(self, at: Mapping[Moment, datetime]) -> str:
        request = LeaseRequest(
            name="lease",
            start=at[Moment.START],
            end=at[Moment.END],
            before_end=at[Moment.BEFORE_END],
            reservations=(ReservationRequest(resource_type="physical:host", params=_PARAMS),),
            user_events=tuple((BEFORE_START, one) for one in [at.get(Moment.HEADS_UP)] if one),
        )
        return create_lease(self.runtime, Owner(user_id="alice", project_id="lab"), request).id

    def _lease_from_now(self) -> None:
        now, hour = self.runtime.clock.now(), timedelta(hours=1)
        at = {Moment.START: now, Moment.BEFORE_END: now + hour, Moment.END: now + 2 * hour}
        self._lease(at)

    def _is_one_at_a_time(self) -> bool:
        # Heads-ups that are due at once are told in one transaction.
        return self.moment in {Moment.RELAY, Moment.HEADS_UP}

    def _left(self) -> list[str]:
        """Return what is not over yet: some of it will do."""
        event, told = EventRow, OutboxRow
        claim = (event.kind, event.status, event.owner, event.attempt, event.last_error)
        done = sa.select(RelayRow.published_seq).scalar_subquery()
        for left in (
            sa.select(*claim, event.run_at).where(event.status.in_(OPEN_EVENT)),
            sa.select(LeaseRow.id, LeaseRow.status).where(LeaseRow.status != "TERMINATED"),
            sa.select(told.event_type, told.seq).where(sa.or_(told.seq.is_(None), told.seq > done)),
        ):
            with self.runtime.database.read() as session:
                if found := session.execute(left.limit(5)).all():
                    return [str(row) for row in found]
        return []

    def _url(self) -> str:
        """Return how managers reach the database: by a way that can be cut, if there is any."""
        if not isinstance(self.ground, OnServer):
            return self.ground.url
        server = self.ground.server
        self.way_to_database = self._stack.enter_context(Proxy("127.0.0.1", server.port))
        return server.url(self.way_to_database.port)

    def _write_config(self, name: str, url: str) -> Path:
        return write_config(
            self._home / name,
            database__connection=url,
            simulated__journal=self.journal,
            simulated__hosts=HOSTS,
            manager__claim_timeout=CLAIM,
            manager__poll_interval=0.5,
            notifications__transport_url=self.broker.url(self.way_to_broker.port),
            notifications__topics=_TOPIC,
            # Else what nobody has taken yet would be lost with the broker.
            oslo_messaging_rabbit__amqp_durable_queues=True,
        )

    def _messages(self) -> Sequence[dict[str, Any]]:
        """Return all that arrived, in order, as a listener finds it in its queue."""
        found: list[dict[str, Any]] = []
        with kombu.Connection(self.broker.amqp) as connection, connection.channel() as channel:
            while message := channel.basic_get(f"{_TOPIC}.info", no_ack=True):
                content = json.loads(json.loads(message.body)["oslo.message"])
                found.append({**content["payload"], "event_type": content["event_type"]})
        return found

    def _remove_queue(self) -> None:
        with kombu.Connection(self.broker.amqp) as connection, connection.channel() as channel:
            channel.queue_delete(f"{_TOPIC}.info")
