"""The whole service on a virtual clock, in one thread: API, admission, events, relay and wait list.

The clock jumps from one due time to the next. All choices depend on the seed, so the same input
always has the same outcome.
"""

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from oslo_config.cfg import ConfigOpts

from climate.cmd import bootstrap
from climate.core.lease.schedule import END
from climate.core.notifications.message import Notification
from climate.db.engine import ids, schema
from climate.db.events import queue as event_queue
from climate.manager.audit.invariants import check_once
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.notifications.relay import Relay
from climate.manager.resources.inventory_sync import synchronise
from climate.manager.wait_list.passes import place_waiting

# A real manager renews claims, synchronises and audits far more often, with the same result.
_UPKEEP = timedelta(days=1)
# More events than can be due at a time.
_MANY = 100_000


class VirtualClock:
    """A clock that only moves when its owner moves it."""

    def __init__(self, now: datetime) -> None:
        """Start at ``now`` (aware)."""
        self._now = self._began = now.astimezone(UTC)

    def now(self) -> datetime:
        """Return the time to which the clock was moved, as aware UTC."""
        return self._now

    def elapsed(self) -> float:
        """Return the seconds since the beginning."""
        return (self._now - self._began).total_seconds()

    def set(self, now: datetime) -> None:
        """Move to ``now`` (aware), which must not be earlier."""
        self._now = max(self._now, now.astimezone(UTC))


class Wish(Protocol):
    """What a user wants to do at a time. Wishes are ordered by time."""

    @property
    def at(self) -> datetime:
        """When the user sends the request."""

    def __lt__(self, other: Any, /) -> bool:  # noqa: ANN401 - another wish
        """Return whether this wish comes first."""


W = TypeVar("W", bound=Wish)
Listener = Callable[[Notification, Mapping[str, Any]], None]


class World:
    """The parts of ``climate-standalone``, without threads, on a virtual clock.

    ``listener`` is called with each notification that the relay publishes.
    """

    def __init__(self, conf: ConfigOpts, begin: datetime, seed: int) -> None:
        """Create the parts, and the schema of the database. The clock starts at ``begin``."""
        self.listener: Listener | None = None
        self.begin, self.clock = begin, VirtualClock(begin)
        self.runtime = bootstrap.make_runtime(conf, self.clock)
        self.runtime.rng.seed(seed)
        schema.upgrade(self.runtime.database)
        self.http = bootstrap.make_api(conf, self.runtime).test_client()
        self._dispatcher = Dispatcher(self.runtime, "manager")
        self._relay = Relay(self.runtime, self, "manager")

    def register(self, hosts: int) -> None:
        """Register the simulated hosts ``sim-1`` to ``sim-N``."""
        for number in range(1, hosts + 1):
            answer = self.http.post("/v1/os-hosts", json={"name": f"sim-{number}"})
            if answer.status_code != 201:  # noqa: PLR2004 - Created
                raise RuntimeError(answer.text)

    def live(
        self, wishes: list[W], ask: Callable[[W], bool], after: Callable[[Collection[str]], None]
    ) -> None:
        """Advance the clock from one due time to the next, until no event and no wish remains.

        ``wishes`` is a heap. ``ask`` sends the request of a wish, may add wishes, and returns
        whether the request may have freed capacity. ``after`` is called after all that happened at
        a time, with the kinds of the events that were due. Notifications are published once a day,
        and by ``flush``.
        """
        upkeep = self.begin
        while (now := self._next(wishes)) is not None:
            while upkeep <= now:
                self.keep(upkeep)
                upkeep += _UPKEEP
            self.clock.set(now)
            has_room = False
            while wishes and wishes[0].at <= now:
                has_room |= ask(heapq.heappop(wishes))
            after(self._manage(has_room=has_room))
        self.keep(self.clock.now())

    def keep(self, at: datetime) -> None:
        """Run the periodic tasks of a manager."""
        self.clock.set(at)
        self._dispatcher.upkeep.renew()
        self.flush()
        synchronise(self.runtime)
        check_once(self.runtime)

    def flush(self) -> None:
        """Publish all notifications."""
        self._relay.flush()

    def publish(self, notification: Notification, payload: Mapping[str, Any]) -> None:
        """Pass a notification of the relay on."""
        if self.listener is not None:
            self.listener(notification, payload)

    def close(self) -> None:
        """Do nothing: the relay closes its emitter, and there is no connection."""

    def _next(self, wishes: list[W]) -> datetime | None:
        with self.runtime.database.read() as session:
            event = event_queue.next_run(session, self.clock.now())
        moments = [moment for moment in (event, wishes[0].at if wishes else None) if moment]
        return min(moments, default=None)

    def _manage(self, *, has_room: bool) -> Collection[str]:
        """Run all due events. If capacity was freed, place waiting leases, until none fits.

        Returns the kinds of the events that were due. A real manager looks for waiting leases after
        each event, but only an end frees capacity.
        """
        kinds, is_over = set[str](), False
        while not is_over:
            due = self._due()
            kinds.update(due)
            has_run = bool(due and self._dispatcher.run_due())
            has_room = (has_room or END in due) and bool(place_waiting(self.runtime))
            is_over = not (has_run or has_room)
        return kinds

    def _due(self) -> Collection[str]:
        """Return the kinds of the events that are due."""
        with self.runtime.database.read() as session:
            return event_queue.count_due(session, self.clock.now(), _MANY)


@contextmanager
def ids_from(make: Callable[[], str]) -> Iterator[None]:
    """Make ids reproducible: events due at the same instant run in the order of their ids."""
    real = ids.new_id
    ids.new_id = make
    try:
        yield
    finally:
        ids.new_id = real
