"""A TCP proxy that delays each direction, to simulate a database on another machine.

It delays each chunk of bytes by the same time, however many are under way, so that it adds to the
round trip and does not limit the bandwidth. It runs in a process of its own on the loopback.
"""

import asyncio
import multiprocessing
import selectors
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa

_SPAWN = multiprocessing.get_context("spawn")
_PATIENCE = 60.0
_CHUNK = 1 << 16
_PORTS = {"postgresql": 5432, "mysql": 3306}


class Delay:
    """A direction of a connection: calls ``deliver`` with each chunk ``seconds`` after its arrival.

    The order is kept, even that of timers that expire at the same moment.
    """

    def __init__(
        self,
        deliver: Callable[[bytes], object],
        call_later: Callable[[float, Callable[[], None]], object],
        seconds: float,
    ) -> None:
        """Use ``call_later`` of an event loop."""
        self._deliver, self._call_later, self._seconds = deliver, call_later, seconds
        self._under_way: deque[bytes] = deque()

    def accept(self, chunk: bytes) -> None:
        """Deliver a chunk later; the empty chunk is the end of the connection."""
        self._under_way.append(chunk)
        self._call_later(self._seconds, self._deliver_next)

    def _deliver_next(self) -> None:
        self._deliver(self._under_way.popleft())


@contextmanager
def delayed(url: str | None, milliseconds: float) -> Iterator[list[str]]:
    """Run a proxy of the server of ``url``; yield its HOST:PORT, as the only element of a list.

    Raises SystemExit for SQLite, which has no server.
    """
    server = sa.make_url(url or "sqlite://")
    port = server.port or _PORTS.get(server.get_backend_name())
    if port is None:
        raise SystemExit("--delay-ms needs a database on a server: --database")
    with proxy(server.host or "127.0.0.1", port, milliseconds / 1000) as through:
        yield [f"127.0.0.1:{through}"]


@contextmanager
def proxy(host: str, port: int, seconds: float) -> Iterator[int]:
    """Run a proxy of a server in a new process; yield its port on the loopback."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_run, args=(theirs, host, port, seconds), daemon=True)
    process.start()
    assert ours.poll(_PATIENCE), "the proxy does not start"
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join(_PATIENCE)


def _run(pipe: Any, host: str, port: int, seconds: float) -> None:  # noqa: ANN401
    # epoll waits for whole milliseconds; select does not.
    factory = partial(asyncio.SelectorEventLoop, selectors.SelectSelector())
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(pipe, host, port, seconds))


async def _serve(pipe: Any, host: str, port: int, seconds: float) -> None:  # noqa: ANN401
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(
            _forward(reader, far_writer, seconds), _forward(far_reader, writer, seconds)
        )

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    """Forward all chunks, and then the end of the connection."""

    def deliver(chunk: bytes) -> None:
        if chunk:
            writer.write(chunk)
        else:
            writer.close()

    line = Delay(deliver, asyncio.get_running_loop().call_later, seconds)
    try:
        while chunk := await reader.read(_CHUNK):
            line.accept(chunk)
    except ConnectionResetError:
        pass  # a killed client; its server must see the end, too
    line.accept(b"")
