"""Deadlines of connections: for resolving the name of a server, and for the whole exchange.

A socket's own time-out restarts with each byte, and ``getaddrinfo`` has none.
"""

import queue
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

#: An address as ``socket.getaddrinfo`` returns it: family, type, protocol, name, socket address.
Address = tuple[Any, Any, Any, Any, Any]


def resolve(host: str, port: int, seconds: float) -> Sequence[Address]:
    """Return the TCP addresses of ``host``. Raises OSError, or TimeoutError after ``seconds``.

    A thread that the function leaves behind ends with the time-out of the system's resolver.
    """
    answer: queue.SimpleQueue[Sequence[Address] | Exception] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            answer.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001 - the caller raises it
            answer.put(error)

    threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
    try:
        found = answer.get(timeout=max(0.0, seconds))
    except queue.Empty:
        raise TimeoutError(f"the name {host} was not resolved in time") from None
    if isinstance(found, Exception):
        raise found
    return found


@contextmanager
def cut_after(seconds: float, connection: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Shut down a connection if the block takes longer than ``seconds``.

    ``connection`` returns the present socket; None if there is none.
    """
    watch = threading.Timer(max(0.0, seconds), lambda: _cut(connection()))
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _cut(connected: socket.socket | None) -> None:
    """Shut down a connection, even while another thread reads from it."""
    if connected is not None:
        with suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)
