"""A cell of the matrix: managers, a database and a broker behind proxies, and leases."""

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
from tests.faults.ground import FaultDatabase, ServerDatabase, runtime
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
    """Three managers, a database, a broker, a cloud, and leases whose events are due together."""

    def __init__(self, home: Path, ground: FaultDatabase, broker: RabbitMQ, moment: Moment) -> None:
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
        if isinstance(self.ground, ServerDatabase):
            self.ground.server.start()  # a failed fault may have left it stopped
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
            manager = running(self._home, "climate-manager", argument, prepare=part)
            self.managers.append(self._stack.enter_context(manager))
        for program in self.managers:
            program.says("climate-manager is at work")
        return self

    def __exit__(self, *failure: Any) -> None:  # noqa: PYI036 - handed on
        self.stage.release()
        self._stack.__exit__(*failure)

    def live(self, lasts: float, step: int | None) -> None:
        """Create leases; return when managers are held at the moment of some of them.

        ``lasts`` is the duration of the fault in seconds: the next moment comes after it.
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
        [(pid, _)] = self.stage.held().most_common(1)
        return next(manager for manager in self.managers if manager.pid == pid)

    def wait_until_over(self) -> None:
        """Wait until no work is left; fail with the rest after the time-out."""
        while left := self._remaining_work():
            late = time.monotonic() - self._over_at
            assert late < 0, f"not over {_PATIENCE} s after all should have been: {left}"
            time.sleep(_PAUSE)

    def end(self) -> Evidence:
        """Stop the managers, and return the evidence."""
        for program in self.managers:
            program.stop()
        effects = [json.loads(line) for line in self.journal.read_text().splitlines()]
        return Evidence(
            acknowledged=self.acknowledged,
            rows=dump(self.runtime.database),
            effects=[
                effect for effect in effects if effect["effect"] not in {"enroll", "boot_server"}
            ],
            messages=self._messages(),
            done=self.stage.done(),
            now=datetime.now(UTC),
        )

    def _dates(self, lasts: float) -> dict[Moment, datetime]:
        """Return the times of each lease's events, far enough apart to process all leases."""
        disturbed = Moment.START if self.moment is Moment.RELAY else self.moment
        gap, seconds = self.pace.gap(LEASES), self.pace.creation_time(LEASES)
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
            user_events=tuple((BEFORE_START, item) for item in [at.get(Moment.HEADS_UP)] if item),
        )
        return create_lease(self.runtime, Owner(user_id="alice", project_id="lab"), request).id

    def _lease_from_now(self) -> None:
        now, hour = self.runtime.clock.now(), timedelta(hours=1)
        at = {Moment.START: now, Moment.BEFORE_END: now + hour, Moment.END: now + 2 * hour}
        self._lease(at)

    def _is_one_at_a_time(self) -> bool:
        # Reminders that are due together are stored in one transaction.
        return self.moment in {Moment.RELAY, Moment.HEADS_UP}

    def _remaining_work(self) -> list[str]:
        """Return what is not over yet, at least a part of it."""
        event, outbox = EventRow, OutboxRow
        claim = (event.kind, event.status, event.owner, event.attempt, event.last_error)
        done = sa.select(RelayRow.published_seq).scalar_subquery()
        for left in (
            sa.select(*claim, event.run_at).where(event.status.in_(OPEN_EVENT)),
            sa.select(LeaseRow.id, LeaseRow.status).where(LeaseRow.status != "TERMINATED"),
            sa.select(outbox.event_type, outbox.seq).where(
                sa.or_(outbox.seq.is_(None), outbox.seq > done)
            ),
        ):
            with self.runtime.database.read() as session:
                if found := session.execute(left.limit(5)).all():
                    return [str(row) for row in found]
        return []

    def _url(self) -> str:
        """Return the managers' URL of the database, through the proxy if the database has one."""
        if not isinstance(self.ground, ServerDatabase):
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
            # Otherwise messages that are not received yet would be lost with the broker.
            oslo_messaging_rabbit__amqp_durable_queues=True,
        )

    def _messages(self) -> Sequence[dict[str, Any]]:
        """Return all messages in order, as a listener receives them."""
        found: list[dict[str, Any]] = []
        with kombu.Connection(self.broker.amqp) as connection, connection.channel() as channel:
            while message := channel.basic_get(f"{_TOPIC}.info", no_ack=True):
                content = json.loads(json.loads(message.body)["oslo.message"])
                found.append({**content["payload"], "event_type": content["event_type"]})
        return found

    def _remove_queue(self) -> None:
        with kombu.Connection(self.broker.amqp) as connection, connection.channel() as channel:
            channel.queue_delete(f"{_TOPIC}.info")
