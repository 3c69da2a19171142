"""The databases of the benchmarks: delayed ones, those of other releases, and processor time."""

import os
import socket
from collections.abc import Callable, Iterator

import pytest

from benchmarks.calendar.load import known
from benchmarks.databases.delay_proxy import Delay, proxy
from benchmarks.databases.processor_time import Meter, parse, seconds_of

STAT = "42 (a (b) c) S 1 42 42 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 1 0 9 10 11"


class Timers:
    """Timers that expire only when the test says so."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self._waiting: list[Callable[[], None]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.delays.append(seconds)
        self._waiting.append(call)

    def expire(self) -> None:
        for call in reversed(self._waiting):  # a loop does not keep the order of the same moment
            call()


def test_chunks_that_are_under_way_do_not_wait_for_each_other() -> None:
    timers = Timers()
    delivered: list[bytes] = []
    line = Delay(delivered.append, timers.call_later, 0.001)
    for chunk in (b"one", b"two", b""):
        line.accept(chunk)

    assert timers.delays == [0.001] * 3
    assert delivered == []
    timers.expire()
    assert delivered == [b"one", b"two", b""]


@pytest.fixture
def echo() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_proxy_forwards_both_directions_and_the_end(echo: socket.socket) -> None:
    sent = os.urandom(300_000)
    with (
        proxy("127.0.0.1", echo.getsockname()[1], 0.001) as port,
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        server, _ = echo.accept()
        with server:
            client.sendall(sent)
            assert server.recv(len(sent), socket.MSG_WAITALL) == sent
            server.sendall(b"answer")
        assert client.recv(6, socket.MSG_WAITALL) == b"answer"
        assert client.recv(1) == b""


def test_processor_time_is_that_of_user_and_system_mode() -> None:
    assert parse(STAT, 100) == 3.0


def test_a_process_that_is_gone_has_no_processor_time() -> None:
    assert seconds_of(2**30) is None


def test_a_meter_without_processes_measures_nothing() -> None:
    meter = Meter(list)
    meter.begin()
    meter.end()

    assert meter.seconds is None


def test_values_without_a_column_are_left_out() -> None:
    names, rows = known(["id", "new", "name"], [(1, 2, 3), (4, 5, 6)], {"id", "name", "other"})

    assert list(names) == ["id", "name"]
    assert list(rows) == [(1, 3), (4, 6)]
