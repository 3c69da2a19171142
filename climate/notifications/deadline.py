"""Cuts a connection at a deadline: a socket's own time-out restarts with each byte."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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
