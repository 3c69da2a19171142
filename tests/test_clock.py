"""The time of the database, independent of the clocks of the managers."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from climate.clock import SampledClock, SystemClock
from tests.conftest import NOON
from tests.support.clock import ManualClock
from tests.support.process import eventually

HOUR = 3600.0


class Server:
    """A database server with a clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOON)
        self.is_down = False
        self.requests = 0

    def __call__(self) -> datetime:
        self.requests += 1
        if self.is_down:
            raise ConnectionError("down")
        return self.clock.now()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock(server: Server, monkeypatch: pytest.MonkeyPatch) -> SampledClock:
    """Return a clock that samples the server; time passes only on the server."""
    return sampled(server, monkeypatch)


def sampled(server: Server, monkeypatch: pytest.MonkeyPatch) -> SampledClock:
    """Return a clock of the server whose own seconds are those of the server."""
    clock = SampledClock(server)
    monkeypatch.setattr(clock, "elapsed", server.clock.elapsed)
    return clock


def pass_time(server: Server, clock: SampledClock, seconds: float) -> None:
    """Advance the server's clock, and wait for the sample that a thread takes."""
    server.clock.advance(seconds)
    before = server.requests
    clock.now()
    if seconds >= SampledClock.INTERVAL:
        eventually(lambda: server.requests > before, "the server was asked for the time")
        for thread in threading.enumerate():
            if thread.name == "clock":
                thread.join()


def test_samples_the_server_every_ten_seconds_and_runs_on_in_between(
    server: Server, clock: SampledClock
) -> None:
    assert clock.now() == NOON
    for _ in range(9):
        pass_time(server, clock, 1)
    assert (clock.now(), server.requests) == (NOON + timedelta(seconds=9), 1)
    pass_time(server, clock, 1)
    assert (clock.now(), server.requests) == (NOON + timedelta(seconds=10), 2)


def test_an_inexact_sample_does_not_set_the_clock_back(server: Server, clock: SampledClock) -> None:
    before = clock.now()
    server.clock.step(-0.01)
    clock.sample()
    assert clock.now() == before
    server.clock.advance(0.02)
    assert clock.now() == before + timedelta(seconds=0.01)


@pytest.mark.parametrize("step", [HOUR, -HOUR, 1.0, -1.0])
def test_every_clock_follows_a_step_of_the_servers_clock(
    server: Server, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """As at a leap second; the machine's own wall clock plays no part."""
    clocks = [sampled(server, monkeypatch) for _ in range(2)]
    for clock in clocks:
        clock.sample()
    server.clock.step(step)
    for clock in clocks:
        clock.sample()
        assert abs((clock.now() - server.clock.now()).total_seconds()) <= abs(step) / 2


def test_time_goes_on_while_the_server_is_down(server: Server, clock: SampledClock) -> None:
    assert clock.now() == NOON
    server.is_down = True
    pass_time(server, clock, 60)
    assert clock.now() == NOON + timedelta(seconds=60)


def test_uses_the_machines_clock_if_the_server_never_answered(server: Server) -> None:
    server.is_down = True
    assert abs((SampledClock(server).now() - datetime.now(UTC)).total_seconds()) < HOUR


def test_a_slow_answer_does_not_replace_a_better_sample(
    server: Server, clock: SampledClock
) -> None:
    assert clock.now() == NOON

    def slow() -> datetime:
        server.clock.advance(1)
        return NOON + timedelta(days=1)

    clock._read = slow
    clock.sample()
    assert clock.now() == NOON + timedelta(seconds=1)


def test_elapsed_seconds_never_decrease() -> None:
    assert SystemClock().elapsed() <= SystemClock().elapsed()
