"""The present, as the database says it, whatever the machines' own clocks do."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers import base
from apscheduler.triggers import interval

from climate import clock as clocks
from climate.clock import ManualClock, SampledClock, SystemClock
from climate.db.clock import present
from climate.db.engine import Database
from climate.manager import timer as timers
from climate.manager.timer import Timer
from tests.conftest import NOON
from tests.process import eventually

HOUR = 3600.0


class Server:
    """Whoever is asked for the time."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.is_away = False
        self.asked = 0

    def __call__(self) -> datetime:
        self.asked += 1
        if self.is_away:
            raise ConnectionError("away")
        return self.clock.now()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock(server: Server, monkeypatch: pytest.MonkeyPatch) -> SampledClock:
    """Return a clock that asks the server; only the server's time passes."""
    made = SampledClock(server)
    monkeypatch.setattr(made, "elapsed", server.clock.elapsed)
    return made


def pass_time(server: Server, clock: SampledClock, seconds: float) -> None:
    """Let time pass, and wait for what is asked in a thread of its own."""
    server.clock.advance(seconds)
    before = server.asked
    clock.now()
    if seconds >= SampledClock.INTERVAL:
        eventually(lambda: server.asked > before, "the server was asked")
        for thread in threading.enumerate():
            if thread.name == "clock":
                thread.join()


def test_time_is_asked_for_once_in_a_while_and_runs_on_in_between(
    server: Server, clock: SampledClock
) -> None:
    assert clock.now() == NOON
    for _ in range(9):
        pass_time(server, clock, 1)
    assert (clock.now(), server.asked) == (NOON + timedelta(seconds=9), 1)
    pass_time(server, clock, 1)
    assert (clock.now(), server.asked) == (NOON + timedelta(seconds=10), 2)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 1.0, -1.0])
def test_a_step_of_the_servers_clock_is_followed_by_all(server: Server, step: float) -> None:
    """As at a leap second; the machine's own clock is not even looked at."""
    mine, other = SampledClock(server), SampledClock(server)
    for one in (mine, other):
        one.sample()
    server.clock.step(step)
    for one in (mine, other):
        one.sample()
        assert abs((one.now() - server.clock.now()).total_seconds()) < 1e-1 + abs(step) / 2


def test_time_goes_on_while_nobody_answers(server: Server, clock: SampledClock) -> None:
    assert clock.now() == NOON
    server.is_away = True
    pass_time(server, clock, 60)
    assert clock.now() == NOON + timedelta(seconds=60)


def test_a_server_that_never_answered_leaves_us_with_our_own_clock(server: Server) -> None:
    server.is_away = True
    assert abs((SampledClock(server).now() - datetime.now(UTC)).total_seconds()) < HOUR


def test_what_a_slow_answer_says_counts_less_than_what_we_know(
    server: Server, clock: SampledClock
) -> None:
    assert clock.now() == NOON

    def slow() -> datetime:
        server.clock.advance(1)
        return NOON + timedelta(days=1)

    clock._ask = slow
    clock.sample()
    assert clock.now() == NOON + timedelta(seconds=1)


def test_the_database_says_what_time_it_is(database: Database) -> None:
    first, second = present(database), present(database)
    assert first.tzinfo is UTC
    assert first <= second
    assert abs((datetime.now(UTC) - second).total_seconds()) < HOUR


def test_seconds_pass_though_the_wall_clock_is_set() -> None:
    assert clocks.SystemClock().elapsed() <= SystemClock().elapsed()


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_timer_rings_on_when_the_wall_clock_was_set(
    step: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set back by an hour, APScheduler alone would be silent for an hour."""
    ahead = timedelta()

    class Wall(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + ahead

    for module in (base, interval):
        monkeypatch.setattr(module, "datetime", Wall)
    monkeypatch.setattr(timers, "_wall", lambda: Wall.now(UTC))
    monkeypatch.setattr(timers, "_LOOK", 0.05)
    rung = threading.Event()
    timer = Timer(SystemClock())
    timer.every(0.1, rung.set, "often")
    timer.start()
    try:
        assert rung.wait(20)
        ahead = timedelta(seconds=step)
        rung.clear()
        assert rung.wait(20)
        rung.clear()
        assert rung.wait(20)
    finally:
        timer.stop()
